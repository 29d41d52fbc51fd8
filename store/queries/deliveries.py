"""Deliveries: which reception belongs to which sending. A side table, filled in replay order.

Events arrive late: a spool is drained, a part of an experiment is gathered. So each run first looks for the earliest
new event, P. Deliveries of receptions before P are final. From P on they are matched again, with a state that is
restored from the minute before P (`matching`). The result is the same as if all events had been matched at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import bindparam, case, delete, func, null, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.codes import KINDS, REDACTED, SEQ_BITS
from ..db.database import Database
from ..db.schema import delivery, event, indexed_experiment, indexed_recorder, recorder, replay_place
from ..log.attributes import meta_of
from ..log.event_query import EventQuery, parameter
from ..log.matching import WITHIN_NS, Listener, Matching, begins_listening, key_of
from ..log.retractions import RETRACTING, retracted
from . import side_tables
from .side_tables import COMPLETE, FIRST_NS
from .texts import MAX_FETCHED, Progress

PAGE = 2000
"""Maximum of events in one transaction."""
_SENT, _RECEIVED, _FAILED, _GAP, _MARK = (
    KINDS.index(kind) + 1 for kind in ("sent", "received", "failed", "gap", "mark")
)


class _Row(NamedTuple):
    """An event as `_QUERY` selects it."""

    id: int
    ts: int
    kind: int
    channel_id: int | None
    attributes: str | None
    sending_id: int | None
    """Of a reception: the sending that it was matched with before."""
    payload: bytes | None
    """None if redacted, or above `MAX_FETCHED` bytes."""
    redacted: int
    messager_id: int | None

    @property
    def listener(self) -> Listener:
        return self.id >> SEQ_BITS, self.messager_id


_QUERY = (
    select(
        *(event.c.id, event.c.ts, event.c.kind, event.c.channel_id),
        case((event.c.kind.in_((_RECEIVED, _MARK)), event.c.attributes), else_=null()),
        delivery.c.sending_id,
        case((func.length(event.c.payload) <= MAX_FETCHED, event.c.payload), else_=null()),
        event.c.flags.op("&")(REDACTED),
        event.c.messager_id,
    )
    .select_from(event)
    .outerjoin(delivery, delivery.c.event_id == event.c.id)
    .where(
        event.c.experiment_id == parameter("experiment_id"),
        replay_place > tuple_(parameter("ts"), parameter("number")),
        event.c.kind.in_((_SENT, _RECEIVED, _GAP, _MARK)),
    )
    .order_by(event.c.ts, event.c.id)
    .limit(parameter("size"))
)


class _Overtaken(Exception):
    """Another indexer took the turn, or the state was cleared."""


@dataclass(slots=True)
class _Run:
    """Deliveries to compute. Events that are committed meanwhile may count already; the next run begins at them."""

    turn: int
    start: int
    """P: receptions before this time (ns UTC) are matched."""
    events: int
    began: dict[int, int]
    redactions: int
    matchable: bool
    """True if there are both sendings and receptions."""
    failed: bool
    """True if a sending may be retracted."""


async def fill(database: Database, experiment_id: int, progress: Progress | None = None) -> int | None:
    """Match what is in the log now; return the number of new or changed deliveries, None if the state was cleared.

    A sending counts unless a later `failed` event says that it was not sent. Redacted events and retained copies
    do not count.
    """
    changed = 0
    while True:
        try:
            run = await _begin(database, experiment_id)
            if run is None:
                return None
            if run.start == COMPLETE:
                return changed
            async for found in _match(database, experiment_id, run, progress):
                changed += found
        except _Overtaken:
            await asyncio.sleep(random.uniform(0, 0.05))  # let the other one finish its page
            continue
        return changed


async def _begin(database: Database, experiment_id: int) -> _Run | None:
    """Take in what is new: raise `delivery_seq`, and lower `matched_until` to the earliest new event.

    Return the run to make, with `start` = COMPLETE if there is nothing to do; None if the state was cleared.
    """
    columns = ("id", "last_seq", "started_at", "first_ts", "sent_count", "received_count", "failed_count")
    query = (
        select(*(recorder.c[column] for column in columns), indexed_recorder.c.delivery_seq)
        .join(indexed_recorder, indexed_recorder.c.recorder_id == recorder.c.id)
        .where(recorder.c.experiment_id == experiment_id)
        .order_by(recorder.c.id)
    )
    state_query = select(indexed_experiment).where(indexed_experiment.c.experiment_id == experiment_id)
    async with database.reading() as connection:
        state = (await connection.execute(state_query)).one_or_none()
        if state is None:
            return None
        recorders = (await connection.execute(query)).all()
        new = [row for row in recorders if row.last_seq > row.delivery_seq]
        start = state.matched_until
        if new and not any(row.delivery_seq for row in recorders):
            start = FIRST_NS
        elif new:
            start = min(start, await _earliest(database, connection, experiment_id, new))
        run = _Run(
            turn=state.turn,
            start=start,
            events=sum(row.last_seq for row in recorders),
            began={
                row.id: row.started_at
                for row in recorders
                if row.first_ts is not None and row.started_at <= row.first_ts
            },
            redactions=await side_tables.redactions(connection, experiment_id),
            matchable=any(row.sent_count for row in recorders) and any(row.received_count for row in recorders),
            failed=any(row.failed_count for row in recorders),
        )
    if not new:
        return run
    async with database.writing() as connection:
        await _take_turn(connection, experiment_id, run, start)
        await connection.execute(
            update(indexed_recorder)
            .where(indexed_recorder.c.recorder_id == bindparam("number"))
            .values(delivery_seq=bindparam("reached")),
            [{"number": row.id, "reached": row.last_seq} for row in new],
        )
    return run


async def _take_turn(connection: AsyncConnection, experiment_id: int, run: _Run, until: int) -> None:
    """Set `matched_until` in this transaction. Raises `_Overtaken` if another indexer, or a redaction, was faster."""
    taken = await connection.execute(
        update(indexed_experiment)
        .where(indexed_experiment.c.experiment_id == experiment_id, indexed_experiment.c.turn == run.turn)
        .values(turn=run.turn + 1, matched_until=until)
    )
    if taken.rowcount != 1 or await side_tables.redactions(connection, experiment_id) != run.redactions:
        raise _Overtaken
    run.turn += 1


async def _earliest(database: Database, connection: AsyncConnection, experiment_id: int, new: list[Any]) -> int:
    """Return the ts of the earliest new event, or of the earliest sending that a new event retracts."""
    behind = event.c.id > parameter("after"), event.c.id <= parameter("upto")
    earliest = EventQuery(select(func.min(event.c.ts)).where(*behind))
    retracting = EventQuery(RETRACTING.where(*behind))
    found = [COMPLETE]
    for row in new:
        bounds = {"after": row.id << SEQ_BITS | row.delivery_seq, "upto": row.id << SEQ_BITS | row.last_seq}
        found += [ts for (ts,) in await earliest.rows_within(connection, database, **bounds) if ts is not None]
        if not row.failed_count:
            continue
        rows = await retracting.rows_within(connection, database, **bounds)
        for sending, ts in retracted(rows, await _ids(connection, experiment_id)).items():
            sent_at = select(event.c.ts).where(event.c.id == sending, event.c.ts <= ts)
            found += (await connection.execute(sent_at)).scalars()
    return min(found)


async def _match(database: Database, experiment_id: int, run: _Run, progress: Progress | None) -> AsyncIterator[int]:
    """Match page by page; yield the number of deliveries that each page added, changed or removed."""
    if not run.matchable:
        yield await _write(database, experiment_id, run, COMPLETE, _Changes())
        return
    first = max(run.start - WITHIN_NS, FIRST_NS)
    matching = Matching(run.began, await _retractions(database, experiment_id, first) if run.failed else None)
    done = 0
    query = EventQuery(_QUERY)
    place = first, -1
    while True:
        values = {"experiment_id": experiment_id, "ts": place[0], "number": place[1], "size": PAGE}
        rows = [_Row._make(row) for row in await query.rows(database, **values)]
        changes = _Changes()
        for row in rows:
            if row.ts < run.start:
                await _restore(database, matching, row)
            else:
                changes.note(row, await _sending_of(database, matching, row))
        done += len(rows)
        if progress is not None:
            progress(min(done, run.events), run.events)
        if len(rows) < PAGE:
            yield await _write(database, experiment_id, run, COMPLETE, changes)
            return
        place = rows[-1].ts, rows[-1].id
        if place[0] >= run.start:
            yield await _write(database, experiment_id, run, place[0], changes)


async def _retractions(database: Database, experiment_id: int, first: int) -> dict[int, int]:
    """Return the sendings since `first` that were not sent, with the time at which that was known."""
    query = RETRACTING.where(event.c.experiment_id == experiment_id, event.c.ts >= first)
    async with database.reading() as connection:
        rows = (await connection.execute(query)).all()
        return retracted(rows, await _ids(connection, experiment_id))


async def _ids(connection: AsyncConnection, experiment_id: int) -> dict[str, int]:
    """Return the recorders' ids by uuid."""
    query = select(recorder.c.uuid, recorder.c.id).where(recorder.c.experiment_id == experiment_id)
    return {row.uuid: row.id for row in await connection.execute(query)}


async def _restore(database: Database, matching: Matching, row: _Row) -> None:
    """Bring the state of the matching behind an event that was matched before."""
    if row.kind == _RECEIVED:
        if row.sending_id is not None:
            matching.restore(row.listener, row.sending_id)
    else:
        await _sending_of(database, matching, row)


async def _sending_of(database: Database, matching: Matching, row: _Row) -> int | None:
    """Bring the state of the matching behind an event; return the sending that it is a reception of, if any."""
    if row.kind == _GAP:
        matching.gap(row.id >> SEQ_BITS, row.ts)
    elif row.kind == _MARK:
        if begins_listening(meta_of(row.attributes)):
            matching.subscribed(row.listener, row.ts)
    elif row.redacted:
        return None  # redacted events have the same, empty payload
    elif row.kind == _SENT:
        matching.sent(row.id, row.ts, await _key(database, row))
    elif not meta_of(row.attributes).get("retained"):  # no copy of an earlier message
        return matching.received(row.listener, row.ts, await _key(database, row))
    return None


async def _key(database: Database, row: _Row) -> bytes:
    payload = row.payload
    if payload is None:
        async with database.reading() as connection:
            query = select(event.c.payload).where(event.c.id == row.id)
            payload = (await connection.execute(query)).scalar_one()
    return key_of(row.channel_id, payload)


@dataclass(slots=True)
class _Changes:
    """Changes of the table that a page makes."""

    removed: list[int] = field(default_factory=list)
    """Event ids of receptions."""
    added: list[tuple[int, int, int]] = field(default_factory=list)
    """Rows of the table."""

    def note(self, row: _Row, sending_id: int | None) -> None:
        if sending_id == row.sending_id:
            return
        if row.sending_id is not None:
            self.removed.append(row.id)
        if sending_id is not None:
            self.added.append((row.id, sending_id, row.ts))


async def _write(database: Database, experiment_id: int, run: _Run, until: int, changes: _Changes) -> int:
    """Write a page and raise `matched_until`; return the number of changes. Raises `_Overtaken`."""
    async with database.writing() as connection:
        await _take_turn(connection, experiment_id, run, until)
        if changes.removed:
            same = delivery.c.event_id == bindparam("number")
            await connection.execute(delete(delivery).where(same), [{"number": n} for n in changes.removed])
        await database.dialect.insert(connection, delivery, changes.added)
    return len(set(changes.removed) | {row[0] for row in changes.added})
