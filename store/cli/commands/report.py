"""messager report"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...text import plural
from ..filters import Filters, note_where, selection_options
from ..match_options import match_options
from ..options import asynchronous, open_log, store_option
from ..output import note
from ..place import PLACE
from ..progress import Progress
from ..sharing_notes import note_sharing

if TYPE_CHECKING:
    from ...matching.match import Match


@click.command()
@click.argument("exp")
@click.argument("other", required=False, metavar="[B]")
@click.option("-o", "--output", type=PLACE, required=True, metavar="FILE", help="File to write, for example run.html.")
@selection_options
@click.option(
    "--redact", "paths", multiple=True, metavar="PATH", help="Erase this part of payloads: content, items.*.name."
)
@click.option("--pseudonymise", is_flag=True, help="Replace ids and names of agents; leave out facts about machines.")
@match_options
@click.option("--store-b", type=PLACE, metavar="URL", help="The store of B, if it is a different one.")
@store_option
@asynchronous
async def command(
    exp: str,
    other: str | None,
    output: str,
    paths: tuple[str, ...],
    pseudonymise: bool,
    match: Match | None,
    store_b: str | None,
    store: str,
    filters: Filters,
) -> None:
    """Write an experiment as one HTML file, which a browser opens offline.

    The file has the messages with their payloads, a timeline, sequence, matrix and problems, and the result of
    `verify`. It loads nothing and sends nothing. The filters are those of `events`; --redact and --pseudonymise are
    those of `export`. At most 500,000 messages: select some of a longer experiment, or use `messager view`.

    With B, the file has both experiments side by side, aligned as by `diff`; --framework, --ignore, --shape,
    --tolerance and --bytes are those of `diff`.
    """
    from ...formats.sharing import sharing
    from ...view.comparing import report_two
    from ...view.report import report

    selection = filters.selection()
    if other is None and (store_b is not None or match is not None):
        raise click.UsageError(
            "--store-b, --framework, --ignore, --shape, --tolerance and --bytes are for two experiments: name the "
            "second one"
        )
    if other is not None:
        filters.refuse("last_per", "context", reason="messages are compared in order: leave it out")
    counts: tuple[int, ...]
    shared = sharing(paths, pseudonymise=pseudonymise)
    how: Any = {"selection": selection, "chosen": filters.typed(), "shared": shared}
    async with open_log(store) as log, open_log(store_b or store) as log_b:
        await filters.note_unknown(log, await log.experiment(exp))
        with Progress("reading", "messages") as progress:
            if other is None:
                counts = (await report(log, exp, output, progress=progress, **how),)
            else:
                counts = await report_two(log, exp, other, output, log_b=log_b, match=match, progress=progress, **how)
    note_where(selection)
    size = "" if output == "-" else f" ({_size(output) / 1e6:,.1f} MB)"
    note(f"wrote {' and '.join(plural(count, 'message') for count in counts)} to {output}{size}")
    note_sharing(shared)


def _size(output: str) -> int:
    return Path(output).stat().st_size
