"""Packing: one experiment in one file, with everything that its head is computed from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from sqlalchemy import select

from ...db.database import Database
from ...db.schema import experiment, recorder, redaction, tag
from ...errors import StoreError
from ...experiments.records import Experiment
from ...experiments.seal import seal_of
from ...json_text import too_long
from ...log.chain import head as head_of
from ...log.chain_counters import Counters
from ...log.chain_walk import Source, walk
from ...log.event_log import EventLog
from ..chain_loader import Chain, check_seal
from ..fields import InvalidEntry
from ..output_file import open_output
from .event_lines import EventLines
from .layout import (
    BATCH,
    EXPERIMENT,
    FORMAT,
    MOST_RECORDERS,
    MOST_REDACTIONS,
    RECORDER,
    REDACTION,
    row_to_json,
)


@dataclass(frozen=True, slots=True)
class Packed:
    """The contents of a pack."""

    exp_id: str
    head: str
    events: int
    recorders: int
    recording: int
    """Recorders that were still recording: the pack has the events that they had committed at its start."""


@dataclass(slots=True)
class _Snapshot:
    """An experiment without its events, read in one transaction."""

    of: dict[str, Any]
    tags: list[str]
    recorders: list[dict[str, Any]]
    redactions: list[dict[str, Any]]

    @property
    def head(self) -> str:
        return head_of((row["uuid"], row["seal"] or row["head_hash"]) for row in self.recorders)


async def pack(
    log: EventLog,
    exp_id: str,
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Packed:
    """Write an experiment to one file (`-` for standard output), from which `unpack` restores the same experiment.

    The file appears when it is complete. The same experiment gives the same file. An experiment that is being
    recorded is packed as it was at the start; its live recorders end with their last heartbeat in the pack.
    `progress` gets the number of events done and in total. Raise `StoreError` if the log is damaged, as the pack
    could not be unpacked.
    """
    of = await log.experiment(exp_id)
    alive = {row.uuid for row in await log.recorders(of) if row.state == "alive"}
    taken = await _snapshot(log.database, of, alive)
    total = sum(row["last_seq"] for row in taken.recorders)
    done = 0
    source = Source(log.database, of.id)
    with open_output(path) as file:
        out = _Lines(file)
        try:
            _describe(out, taken)
            lines = EventLines()
            for row in taken.recorders:
                chain = Chain(f"recorder {row['ordinal']}", Counters.before(row["uuid"]))
                async for walked in walk(source, row["id"], last=row["last_seq"]):
                    part = {key: getattr(walked.row, key) for key in BATCH}
                    out.write({"batch": row_to_json(BATCH, part)})
                    async for page in chain.pages(walked, part):
                        out.write_lines(lines.of(page))
                        if progress and done // 1000 < (done + len(page)) // 1000:
                            progress(done + len(page), total)
                        done += len(page)
                chain.check_row(row)
        except InvalidEntry as error:
            if not await log.has_experiment(of.exp_id):
                raise StoreError(f"the experiment {of.exp_id!r} was removed while it was packed") from None
            raise StoreError(
                f"the experiment {of.exp_id!r} cannot be packed: {error}. Run `messager verify` for a full report."
            ) from None
        out.end()
    return Packed(of.exp_id, taken.head, total, len(taken.recorders), len(alive))


async def _snapshot(database: Database, of: Experiment, alive: set[str]) -> _Snapshot:
    """Return the experiment. The recorders in `alive` end with their last heartbeat, with a seal."""
    async with database.reading() as connection:

        async def rows(table: Any, column: Any, order: Any) -> list[dict[str, Any]]:
            found = await connection.execute(select(table).where(column == of.id).order_by(order))
            return [dict(row._mapping) for row in found]

        taken = _Snapshot(
            (await rows(experiment, experiment.c.id, experiment.c.id))[0],
            sorted(row["tag"] for row in await rows(tag, tag.c.experiment_id, tag.c.tag)),
            await rows(recorder, recorder.c.experiment_id, recorder.c.ordinal),
            await rows(redaction, redaction.c.experiment_id, redaction.c.id),
        )
    for row in taken.recorders:
        if row["uuid"] in alive and row["ended_at"] is None:
            row["ended_at"] = row["heartbeat_at"]
            row["seal"] = seal_of(row)
    return taken


def _describe(out: _Lines, taken: _Snapshot) -> None:
    if len(taken.recorders) > MOST_RECORDERS:
        raise InvalidEntry(f"it has {len(taken.recorders):,} recorders; a pack holds at most {MOST_RECORDERS:,}")
    if len(taken.redactions) > MOST_REDACTIONS:
        raise InvalidEntry(f"it has {len(taken.redactions):,} redactions; a pack holds at most {MOST_REDACTIONS:,}")
    out.write({"format": FORMAT})
    of = row_to_json(EXPERIMENT, taken.of)
    out.write({"experiment": of, "tags": taken.tags, "redactions": len(taken.redactions), "head": taken.head})
    for row in taken.recorders:
        row["epoch"] = max(row["epoch"], 1)  # that of a gathered recorder says how it came into this store
        check_seal(f"recorder {row['ordinal']}", row)
        out.write({"recorder": row_to_json(RECORDER, row)})
    for row in taken.redactions:
        out.write({"redaction": row_to_json(REDACTION, row)})


class _Lines:
    """Lines of JSON, and the hash of all lines."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha = hashlib.sha256()

    def write(self, data: dict[str, Any]) -> None:
        try:
            line = json.dumps(data, ensure_ascii=False).encode() + b"\n"
        except UnicodeEncodeError:
            raise InvalidEntry("it holds a lone surrogate") from None
        self._check(line)
        self._file.write(line)
        self._sha.update(line)

    def write_lines(self, lines: list[str]) -> None:
        """Write lines of JSON without their line feeds."""
        try:
            data = "\n".join([*lines, ""]).encode()
        except UnicodeEncodeError:
            raise InvalidEntry("it holds a lone surrogate") from None
        if too_long(data) is not None:
            for line in data.split(b"\n"):
                self._check(line)
        self._file.write(data)
        self._sha.update(data)

    @staticmethod
    def _check(line: bytes) -> None:
        """Raise `InvalidEntry` for a line that could not be read again."""
        if (reason := too_long(line)) is not None:
            raise InvalidEntry(f"an event has a line that is {reason}")

    def end(self) -> None:
        self.write({"end": self._sha.hexdigest()})
