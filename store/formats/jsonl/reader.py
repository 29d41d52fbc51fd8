"""Import of a JSON Lines file as a new experiment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...experiments import lifecycle
from ...experiments.records import Experiment
from ...log.event import Fields, NewEvent
from ...log.event_log import EventLog
from ...log.writer import Writer
from ..fields import InvalidEntry
from ..importing import BATCH_BYTES, BATCH_EVENTS, check_unused, importing
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
    await check_unused(log, exp_id)
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
        ) as of:
            await _import_events(log, of, source, header, progress)
            before = of.meta.get("imported")
            facts = {**(before if isinstance(before, dict) else {}), **source.provenance()}
            await lifecycle.set_meta(log.database, of, "imported", facts)
    return await log.experiment(exp_id)


async def _import_events(
    log: EventLog, of: Experiment, source: Parser, header: dict[str, Any], progress: Callable[[int], None] | None
) -> None:
    described = header.get("recorders", [])
    writers: list[Writer] = []

    async def writer(ordinal: int) -> Writer:
        while len(writers) < ordinal:  # ordinals are assigned in order
            facts = described[len(writers)] if len(writers) < len(described) else {}
            writers.append(await log.register(of, role="import", meta=facts))
        return writers[ordinal - 1]

    await writer(max(1, len(described)))  # its heartbeat shows that this import is alive
    waiting: dict[int, list[Fields]] = {}
    held = 0
    labelled: dict[int, tuple[int, int]] = {}
    seqs: dict[int, int] = {}
    for count, (ordinal, entry, label, cause, length) in enumerate(source.events(), 1):
        seqs[ordinal] = seqs.get(ordinal, 0) + 1
        if label is not None:
            labelled[label] = (ordinal, seqs[ordinal])
        if cause is not None:
            if cause not in labelled:
                raise InvalidEntry(f"its cause {cause} is not the label of an earlier line")
            entry = NewEvent._make(entry)._replace(cause=labelled[cause])
        waiting.setdefault(ordinal, []).append(entry)
        held += length
        if count % BATCH_EVENTS == 0 or held >= BATCH_BYTES:
            await _append(log, writer, waiting)
            held = 0
            if progress:
                progress(count)
    await _append(log, writer, waiting)


async def _append(log: EventLog, writer: Callable[[int], Any], waiting: dict[int, list[Fields]]) -> None:
    for ordinal in sorted(waiting):
        await log.append(await writer(ordinal), waiting[ordinal])
    waiting.clear()
