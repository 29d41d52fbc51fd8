"""Packing: one experiment in one file, with everything that its head is made of."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from sqlalchemy import case, func, null, select

from ...db.database import Database
from ...db.schema import KINDS, SEQ_BITS, batch, event, experiment, recorder, redaction, tag
from ...errors import StoreError
from ...experiments import registry
from ...experiments.registry import Experiment
from ...log.chain import head as head_of
from ...log.event_log import EventLog
from ...log.hashed_fields import CHANNEL_NAME, NAMED_EVENTS, RECIPIENT_NAME, SENDER_NAME
from ..fields import Unfit, bytes_field
from ..input_file import MOST_LINE
from ..output_file import open_output
from .layout import BATCH, EXPERIMENT, FORMAT, MOST_RECORDERS, MOST_REDACTIONS, RECORDER, REDACTION, Chain, row_to_json

PAGE = 1000
LARGE = 32 * 1024
"""A payload of more bytes is fetched by itself."""
_SEQ_MASK = (1 << SEQ_BITS) - 1


@dataclass(frozen=True, slots=True)
class Packed:
    """What a pack holds."""

    exp_id: str
    head: str
    events: int
    recorders: int
    recording: int
    """Recorders that were still recording: the pack has what they had committed when it was begun."""


@dataclass(slots=True)
class _Snapshot:
    """An experiment but for its events, as it was at one moment."""

    of: dict[str, Any]
    tags: list[str]
    recorders: list[dict[str, Any]]
    redactions: list[dict[str, Any]]

    @property
    def head(self) -> str:
        return head_of((row["uuid"], row["head_hash"]) for row in self.recorders)


async def pack(
    log: EventLog,
    exp_id: str,
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Packed:
    """Write an experiment to one file (`-` for standard output) that `unpack` makes the same experiment of.

    The file appears when it is complete. The same experiment gives the same file. One that is
    being recorded is packed as it was when packing began; its live recorders are told of as
    ended with their last heartbeat. `progress` is told how many events of how many. Raises `StoreError`
    where the log does not keep its promises: a pack that could not be unpacked is of no use.
    """
    of = await log.experiment(exp_id)
    alive = {row.uuid for row in await registry.recorders_of(log.database, of.id) if row.state == "alive"}
    taken = await _snapshot(log.database, of)
    total = sum(row["last_seq"] for row in taken.recorders)
    done = 0
    with open_output(path) as file:
        out = _Lines(file)
        try:
            _describe(out, taken, alive)
            ordinals = {row["id"]: row["ordinal"] for row in taken.recorders}
            for row in taken.recorders:
                chain = Chain(row["ordinal"], row["uuid"], taken.of["schema_version"])
                async for part in _batches(log.database, row):
                    out.write({"batch": row_to_json(BATCH, part)})
                    chain.begin(part)
                    async for entry in _events(log.database, row["id"], part):
                        out.write(_event_line(entry, chain, ordinals))
                        done += 1
                        if progress and done % 1000 == 0:
                            progress(done, total)
                    chain.end()
                chain.hold_against(row)
        except Unfit as error:
            if await registry.by_exp_id(log.database, of.exp_id) is None:
                raise StoreError(f"the experiment {of.exp_id!r} was removed while it was packed") from None
            raise StoreError(
                f"the experiment {of.exp_id!r} cannot be packed: {error}. `messager verify` tells everything."
            ) from None
        out.end()
    return Packed(of.exp_id, taken.head, total, len(taken.recorders), len(alive))


async def _snapshot(database: Database, of: Experiment) -> _Snapshot:
    async with database.reading() as connection:

        async def rows(table: Any, column: Any, order: Any) -> list[dict[str, Any]]:
            found = await connection.execute(select(table).where(column == of.id).order_by(order))
            return [dict(row._mapping) for row in found]

        return _Snapshot(
            (await rows(experiment, experiment.c.id, experiment.c.id))[0],
            sorted(row["tag"] for row in await rows(tag, tag.c.experiment_id, tag.c.tag)),
            await rows(recorder, recorder.c.experiment_id, recorder.c.ordinal),
            await rows(redaction, redaction.c.experiment_id, redaction.c.id),
        )


def _describe(out: _Lines, taken: _Snapshot, alive: set[str]) -> None:
    if len(taken.recorders) > MOST_RECORDERS:
        raise Unfit(f"it has {len(taken.recorders):,} recorders, a pack holds {MOST_RECORDERS:,}")
    if len(taken.redactions) > MOST_REDACTIONS:
        raise Unfit(f"it has {len(taken.redactions):,} redactions, a pack holds {MOST_REDACTIONS:,}")
    out.write({"format": FORMAT})
    of = row_to_json(EXPERIMENT, taken.of)
    out.write({"experiment": of, "tags": taken.tags, "redactions": len(taken.redactions), "head": taken.head})
    for row in taken.recorders:
        if row["uuid"] in alive and row["ended_at"] is None:
            row["ended_at"] = row["heartbeat_at"]
        out.write({"recorder": row_to_json(RECORDER, row)})
    for row in taken.redactions:
        out.write({"redaction": row_to_json(REDACTION, row)})


async def _batches(database: Database, row: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The batches of a recorder, up to its last seq of the snapshot."""
    at = 0
    while True:
        query = (
            select(batch)
            .where(batch.c.recorder_id == row["id"], batch.c.first_seq > at, batch.c.first_seq <= row["last_seq"])
            .order_by(batch.c.first_seq)
            .limit(PAGE)
        )
        async with database.reading() as connection:
            parts = (await connection.execute(query)).all()
        for part in parts:
            yield dict(part._mapping)
        if len(parts) < PAGE:
            return
        at = parts[-1].first_seq


async def _events(database: Database, recorder_id: int, part: dict[str, Any]) -> AsyncIterator[list[Any]]:
    """The events of a batch, with their names' bytes, one page in memory at a time."""
    row = event.c
    base = recorder_id << SEQ_BITS
    at, end = part["first_seq"], part["first_seq"] + part["count"]
    while at < end:
        query = (
            select(
                row.id,
                row.ts,
                row.kind,
                row.flags,
                CHANNEL_NAME.c.value,
                SENDER_NAME.c.value,
                RECIPIENT_NAME.c.value,
                row.msg_id,
                row.duration_ns,
                row.receivers,
                row.cause,
                row.meta,
                case((func.length(row.payload) <= LARGE, row.payload), else_=null()),
            )
            .select_from(NAMED_EVENTS)
            .where(row.id >= base | at, row.id < base | min(end, at + PAGE))
            .order_by(row.id)
        )
        async with database.reading() as connection:
            found = (await connection.execute(query)).all()
        for number, *entry in found:
            if number & _SEQ_MASK != at:
                raise Unfit(f"batch at seq {part['first_seq']}: the event of seq {at} is missing")
            if entry[-1] is None:
                async with database.reading() as connection:
                    large = select(event.c.payload).where(event.c.id == number)
                    entry[-1] = (await connection.execute(large)).scalar()
            at += 1
            yield entry
        if len(found) < PAGE and at < end:
            raise Unfit(f"batch at seq {part['first_seq']}: the event of seq {at} is missing")


def _event_line(entry: list[Any], chain: Chain, ordinals: dict[int, int]) -> dict[str, Any]:
    """The line of an event; the chain takes note of it."""
    ts, kind, flags, channel, sender, recipient, msg_id, duration_ns, receivers, cause, meta, payload = entry
    origin = None
    if cause is not None:
        if not isinstance(cause, int):
            raise Unfit(f"the event behind seq {chain.last_seq} has a cause of the wrong type")
        origin = (ordinals.get(cause >> SEQ_BITS, 0), cause & _SEQ_MASK)
    chain.add(
        ts,
        kind,
        flags,
        channel,
        sender,
        recipient,
        msg_id,
        duration_ns,
        receivers,
        None if origin is None else origin[0] << SEQ_BITS | origin[1],
        meta,
        payload,
    )
    line: dict[str, Any] = {"ts": ts, "kind": KINDS[kind - 1]}
    for key, value in (("channel", channel), ("from_id", sender), ("to_id", recipient)):
        if value is not None:
            line |= bytes_field(key, value)
    if flags:
        line["flags"] = flags
    for key, value in (
        ("msg_id", msg_id),
        ("duration_ns", duration_ns),
        ("receivers", receivers),
        ("cause", origin),
        ("meta", meta),
    ):
        if value is not None:
            line[key] = value
    return line | bytes_field("payload", payload)


class _Lines:
    """Lines of JSON, and the hash of all of them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha = hashlib.sha256()

    def write(self, data: dict[str, Any]) -> None:
        try:
            line = json.dumps(data, ensure_ascii=False).encode() + b"\n"
        except UnicodeEncodeError:
            raise Unfit("it holds half a character (a lone surrogate)") from None
        if len(line) > MOST_LINE:
            raise Unfit(f"an event of it takes {len(line):,} bytes, a line of a pack holds {MOST_LINE:,}")
        self._file.write(line)
        self._sha.update(line)

    def end(self) -> None:
        self.write({"end": self._sha.hexdigest()})
