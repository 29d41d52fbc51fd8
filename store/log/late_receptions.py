"""Receptions on channels with sendings, at times when no recorder of a sender was recording.

They count as messages, except those that belong to a sending: the last messages of a recorder may be received just
after its end. The pairs are computed here, because a store may be read-only and its side tables empty.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from sqlalchemy import ColumnElement, select

from ..db.codes import KINDS, REDACTED, SEQ_BITS
from ..db.database import Database
from ..db.schema import event, place_at, replay_place
from ..experiments.records import Experiment, RecorderRow
from .attributes import meta_of
from .matching import WITHIN_NS, Matching, begins_listening, key_of
from .retractions import RETRACTING, retracted

_SENT, _RECEIVED, _GAP, _MARK = (KINDS.index(kind) + 1 for kind in ("sent", "received", "gap", "mark"))
PAGE = 2000
_FIRST_NS, _LAST_NS = -(2**63), 2**63 - 1

Interval = tuple[int, int]
"""First and last ns UTC, both included."""


class Times:
    """A set of times, as disjoint intervals in order."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self.intervals: list[Interval] = []
        for start, end in sorted(intervals):
            if self.intervals and start <= self.intervals[-1][1] + 1:
                self.intervals[-1] = self.intervals[-1][0], max(end, self.intervals[-1][1])
            else:
                self.intervals.append((start, end))
        self._starts = [start for start, _ in self.intervals]

    def __contains__(self, ts: int) -> bool:
        at = bisect_right(self._starts, ts)
        return at > 0 and ts <= self.intervals[at - 1][1]

    def end_before(self, ts: int) -> int | None:
        """Return the end of the last interval that starts before a time outside of all; None if there is none."""
        at = bisect_right(self._starts, ts)
        return self.intervals[at - 1][1] if at else None

    def rest_of(self, whole: Interval) -> list[Interval]:
        """Return the parts of an interval that are outside of all."""
        start, end = whole
        inside = [(max(a, start), min(b, end)) for a, b in self.intervals if a <= end and b >= start]
        edges = [(start - 1, start - 1), *inside, (end + 1, end + 1)]
        return [(a[1] + 1, b[0] - 1) for a, b in pairwise(edges) if a[1] + 1 <= b[0] - 1]


@dataclass(slots=True)
class Heard:
    """A channel with sendings, and the listeners whose receptions on it count."""

    recorded: Times
    """Times when a recorder that sent on it was recording."""
    listeners: dict[int, RecorderRow]
    """By id."""


@dataclass(slots=True)
class Late:
    """Receptions outside of the recorded times."""

    counts: Counter[int] = field(default_factory=Counter)
    """The number of those that count as messages, by id of the channel."""
    paired: set[int] = field(default_factory=set)
    """The ids of those that belong to a sending."""


async def late_receptions(
    database: Database, of: Experiment, channels: dict[int, Heard], recorders: list[RecorderRow]
) -> Late:
    """Return the receptions of these channels, by id, outside of their recorded times.

    Reads only events in the times when a listener was recording and a sender was not. Memory use is one id per
    reception that belongs to a sending.
    """
    found = Late()
    ends: dict[int, set[int]] = {}
    for times in _unrecorded(channels):
        async for rows in _pages(database, of, (event.c.kind == _RECEIVED,), times):
            for row in rows:
                heard = channels.get(row.channel_id)
                if heard is None or row.id >> SEQ_BITS not in heard.listeners or row.ts in heard.recorded:
                    continue
                found.counts[row.channel_id] += 1
                end = heard.recorded.end_before(row.ts)
                if end is not None and row.ts - end <= WITHIN_NS:
                    ends.setdefault(end, set()).add(row.channel_id)
    windows = Times(await _to_match(database, of, ends))
    matched = {number for numbers in ends.values() for number in numbers}
    since = {row.id: row.started_at for row in recorders if row.first_ts is not None and row.started_at <= row.first_ts}
    failed = await _retracted(database, of, recorders) if ends else {}
    for times in windows.intervals:
        matching = Matching(since, failed)
        async for number, channel_id in _paired(database, of, {n: channels[n] for n in matched}, matching, times):
            found.paired.add(number)
            found.counts[channel_id] -= 1
    return found


def _unrecorded(channels: dict[int, Heard]) -> list[Interval]:
    """Return the times of receptions that are outside of the recorded times of any of the channels."""
    parts: set[Interval] = set()
    for heard in channels.values():
        for row in heard.listeners.values():
            if row.first_ts is not None and row.last_ts is not None:
                parts.update(heard.recorded.rest_of((row.first_ts, row.last_ts)))
    return Times(parts).intervals


async def _to_match(database: Database, of: Experiment, ends: dict[int, set[int]]) -> list[Interval]:
    """Return the times to match for the ends of recorded times, each with the ids of its channels.

    Each begins at a sending that has no sending of its channel in the minute before: no earlier event changes what is
    matched then. The log is read backwards, once, in windows that double.
    """
    found: list[Interval] = []
    waiting = sorted(ends)
    since: dict[int, int] = {}  # by channel, the earliest sending so far
    until: dict[int, int] = {}

    def begin(ts: int) -> None:
        while waiting and waiting[-1] >= ts:
            end = waiting.pop()
            for channel_id in ends[end]:
                since[channel_id] = end
                until.setdefault(channel_id, end)

    def finish(channel_id: int) -> None:
        found.append((since.pop(channel_id), min(until.pop(channel_id) + WITHIN_NS, _LAST_NS)))

    query = (
        select(event.c.id, event.c.ts, event.c.channel_id)
        .where(event.c.experiment_id == of.id, event.c.kind == _SENT, event.c.flags.op("&")(REDACTED) == 0)
        .order_by(event.c.ts.desc(), event.c.id.desc())
        .limit(PAGE)
    )
    place, width = (_LAST_NS, _LAST_NS), 0
    while waiting or since:
        if not since:
            place, width = (min(waiting[-1], _LAST_NS), _LAST_NS), WITHIN_NS
        width *= 2
        low = max(place[0] - width, _FIRST_NS)
        here = event.c.ts >= low, event.c.ts <= place[0], replay_place < place_at(*place)
        async with database.reading() as connection:
            rows = (await connection.execute(query.where(*here))).all()
        for row in rows:
            begin(row.ts)
            if row.channel_id not in since:
                continue
            if since[row.channel_id] - row.ts > WITHIN_NS:
                finish(row.channel_id)
            else:
                since[row.channel_id] = row.ts
        place = (rows[-1].ts, rows[-1].id) if len(rows) == PAGE else (low, -1)
        begin(place[0])
        complete = place == (_FIRST_NS, -1)
        for channel_id in [at for at, ts in since.items() if complete or ts - place[0] > WITHIN_NS]:
            finish(channel_id)
    return found


async def _paired(
    database: Database, of: Experiment, channels: dict[int, Heard], matching: Matching, times: Interval
) -> AsyncIterator[tuple[int, int]]:
    """Yield id and channel of the receptions outside of the recorded times that belong to a sending."""
    payloads = (event.c.kind, event.c.payload, event.c.attributes, event.c.messager_id)
    wanted = event.c.kind.in_((_SENT, _RECEIVED, _GAP, _MARK)), event.c.flags.op("&")(REDACTED) == 0
    async for rows in _pages(database, of, wanted, times, payloads):
        for row in rows:
            listener = row.id >> SEQ_BITS
            if row.kind == _GAP:
                matching.gap(listener, row.ts)
                continue
            if row.kind == _MARK:
                if begins_listening(meta_of(row.attributes)):
                    matching.subscribed((listener, row.messager_id), row.ts)
                continue
            heard = channels.get(row.channel_id)
            if heard is None:
                continue
            key = key_of(row.channel_id, row.payload)
            if row.kind == _SENT:
                matching.sent(row.id, row.ts, key)
            elif not meta_of(row.attributes).get("retained"):  # no copy of an earlier message
                sending = matching.received((listener, row.messager_id), row.ts, key)
                if sending is not None and listener in heard.listeners and row.ts not in heard.recorded:
                    yield row.id, row.channel_id


async def _retracted(database: Database, of: Experiment, recorders: list[RecorderRow]) -> dict[int, int]:
    if not any(row.kinds["failed"] for row in recorders):
        return {}
    async with database.reading() as connection:
        rows = await connection.execute(RETRACTING.where(event.c.experiment_id == of.id))
        return retracted(rows.all(), {row.uuid: row.id for row in recorders})


async def _pages(
    database: Database,
    of: Experiment,
    conditions: tuple[ColumnElement[bool], ...],
    times: Interval,
    more: tuple[ColumnElement[Any], ...] = (),
) -> AsyncIterator[list[Any]]:
    """Yield rows of events in replay order."""
    query = (
        select(event.c.id, event.c.ts, event.c.channel_id, *more)
        .where(event.c.experiment_id == of.id, *conditions, event.c.ts <= times[1])
        .order_by(event.c.ts, event.c.id)
        .limit(PAGE)
    )
    place = times[0], -1
    while True:
        async with database.reading() as connection:
            rows = list((await connection.execute(query.where(replay_place > place_at(*place)))).all())
        yield rows
        if len(rows) < PAGE:
            return
        place = rows[-1].ts, rows[-1].id
