"""The page as one file, which opens offline and can be mailed."""

from __future__ import annotations

import asyncio
import os
import time
import zlib
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple, Unpack

from messager import __version__

from ..errors import StoreError
from ..experiments.records import Experiment
from ..formats.output_file import open_output
from ..formats.sharing import Sharing
from ..json_text import dump_strict
from ..log.event import iso
from ..log.event_log import EventLog
from ..log.selection import Filters, Selection, selection_of
from ..maintenance.verify import verify
from ..projection.query import projected
from ..queries.problems import problems
from ..text import plural, safe
from .columns import CHUNK_BYTES, ROWS, Chunk, Names, chunk
from .head import head, problems_of, verdict_of
from .page import document, part
from .shown import Reader

MOST = 500_000
"""Messages in a file."""

Progress = Callable[[int, int | None, str], None]
"""Called with what is done, the total if it is known, and the name of the work."""


async def report(
    log: EventLog,
    exp: str,
    path: str | os.PathLike[str],
    selection: Selection | None = None,
    *,
    chosen: str = "",
    shared: Sharing | None = None,
    progress: Progress | None = None,
    **filters: Unpack[Filters],
) -> int:
    """Write an experiment as a page to a file; return its number of messages.

    `chosen` describes the selection, for the page. `shared` erases or pseudonymises, as in `export`. Raises
    `StoreError` for more than `MOST` messages, and for a file that cannot be written.
    """
    with open_output(path) as file:
        page = await page_of(
            log, exp, selection_of(selection, filters), chosen=chosen, shared=shared, progress=progress
        )
        file.write(page.html.encode("utf-8", "replace"))
    return page.messages


@dataclass(frozen=True, slots=True)
class Page:
    """An experiment as one HTML document. A notebook shows it in a frame of its own."""

    html: str
    messages: int
    """Number of messages in it."""
    height: int = 640
    """Height of the frame, px."""

    def __repr__(self) -> str:
        return f"<Page: {plural(self.messages, 'message')}, {len(self.html) / 1e6:,.1f} MB of HTML>"

    def _repr_html_(self) -> str:
        """Return a frame without rights: its scripts reach nothing of the notebook."""
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" title="experiment" '
            f'style="width:100%;height:{self.height}px;border:1px solid #8888"></iframe>'
        )


async def page_of(
    log: EventLog,
    exp: str,
    selection: Selection,
    *,
    chosen: str = "",
    shared: Sharing | None = None,
    most: int = MOST,
    progress: Progress | None = None,
) -> Page:
    """Return an experiment as a page. Raises `StoreError` for more than `most` messages."""
    of = await log.experiment(exp)
    if shared is not None:
        shared.begin(await log.agents(of))
    run = await run_parts(log, of, 0, selection, chosen=chosen, shared=shared, most=most, progress=progress)
    return Page(document(f"{run.title} - messager", run.elements), run.messages)


class RunParts(NamedTuple):
    """One experiment in a document."""

    messages: int
    """Their number."""
    title: str
    elements: str
    """Elements with its data."""


async def run_parts(
    log: EventLog,
    of: Experiment,
    run: int,
    selection: Selection,
    *,
    chosen: str = "",
    shared: Sharing | None = None,
    most: int = MOST,
    progress: Progress | None = None,
) -> RunParts:
    """Return an experiment for a document. `shared` must have begun."""

    def note(what: str) -> Callable[[int, int], None] | None:
        return None if progress is None else lambda done, total: progress(done, total, what)

    parts: list[str] = []
    count, names = 0, Names()
    async with projected(log, of, note("bringing the projection up to date")) as here:
        reader = Reader(log, of, here, selection, None if shared is None else shared.event)
        async with aclosing(reader.chunks(ROWS, CHUNK_BYTES)) as chunks:
            async for shown in chunks:
                count += shown.messages.num_rows
                if count > most:
                    raise StoreError(
                        f"{of.exp_id} has more than {most:,} messages to show: select some, by time, channel or agent, "
                        "or use `messager view`"
                    )
                if progress is not None:
                    progress(count, None, "reading")
                made = chunk(shown, names)
                parts.append(await asyncio.to_thread(_part_of, made, run))
    described = await head(log, of, selection, messages=count, shared=shared)
    whole = selection.limit is None and not selection.context and selection.last_per is None
    found = await problems(log, of, selection) if whole else None
    verdict = None if shared is not None else await verify(log, of, progress=note("verifying"))
    data = described | {
        "problems": None if found is None else problems_of(found, shared),
        "verify": None if verdict is None else verdict_of(verdict),
        "selection": chosen if shared is None or not chosen else "selected messages",  # the filters may tell names
        "shared": _changes(shared),
        "made": {"version": __version__, "at": iso(time.time_ns())},
    }
    title = safe(described["name"] or described["exp_id"])
    return RunParts(count, title, part("head", run, packed(data)) + "".join(parts))


def _part_of(made: Chunk, run: int) -> str:
    return part("chunk", run, made.packed(small=True))


def packed(data: Any) -> bytes:
    """Return JSON as a packed part of a document."""
    return zlib.compress(dump_strict(data).encode(), 6)


def _changes(shared: Sharing | None) -> str:
    if shared is None:
        return ""
    erased = ["parts of payloads erased"] if shared.clean is not None else []
    return ", ".join(erased + (["pseudonymised"] if shared.pseudonymise else []))
