"""Import of a JSON Lines file as a new experiment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...errors import BadFile
from ...experiments.records import Experiment
from ...log.event import NewEvent
from ...log.event_log import EventLog
from ..fields import InvalidEntry
from ..importing import Import, Imported, Part, Split, importing
from .parser import Parser


async def import_jsonl(
    log: EventLog,
    path: str | os.PathLike[str],
    exp_id: str,
    *,
    name: str | None = None,
    tags: tuple[str, ...] = (),
    meta: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Experiment:
    """Import a file (`-` for standard input) as a new, closed experiment, and return it.

    The experiment is visible only when it is complete; if a line is invalid, nothing is imported. `name` replaces
    that of the header; `tags` and `meta` are added to those of the header. Raise `BadFile` with the number of the
    line, and `ExperimentExists`.
    """
    return (await read(log, path, exp_id, name=name, tags=tags, meta=meta, progress=progress)).experiment


async def read(
    log: EventLog,
    path: str | os.PathLike[str],
    exp_id: str,
    *,
    name: str | None = None,
    tags: tuple[str, ...] = (),
    meta: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
    split: Split | None = None,
) -> Imported:
    """Import a file as `import_jsonl`, or with `split` as several experiments, of which all appear or none."""
    source = Parser(path)
    with source.opened():
        header = source.header()
        async with importing(
            log,
            exp_id,
            name=name or header.get("name"),
            tags={*tags, *header.get("tags", [])},
            meta={**header.get("meta", {}), **(meta or {})},
            parent=header.get("parent"),
            split=split,
            recorders=header.get("recorders", []),
            progress=progress,
        ) as made:
            await _import_events(made, source)
            if not made.parts and split is not None:
                raise BadFile(source.path, None, f"none of its events has {split.by}")
            await made.note(source.provenance())
    return await made.imported()


async def _import_events(made: Import, source: Parser) -> None:
    labelled: dict[int, tuple[Part | None, int, int]] = {}
    for ordinal, entry, label, cause, length in source.events():
        part = await made.part_of(entry)
        seq = 0 if part is None else part.next_seq(ordinal)
        if label is not None:
            labelled[label] = (part, ordinal, seq)
        if cause is not None:
            if cause not in labelled:
                raise InvalidEntry(f"its cause {cause} is not the label of an earlier line")
            there, by, seq_of_cause = labelled[cause]
            if there is not part:
                raise InvalidEntry(
                    f"it and its cause {cause} would be in different experiments. Split by another field"
                )
            entry = NewEvent._make(entry)._replace(cause=(by, seq_of_cause))
        if part is not None:
            await made.add(part, ordinal, entry, length)
    await made.flush()
