"""Counts from the side table `activity`, where it has the answer; the rest from events, so that the sum is exact.

`activity` has the sums of whole minutes. They answer for channels, agents, kinds and times in multiples of a minute.
From the events come:

- the minutes in which the selected part begins and ends, unless it begins or ends with them,
- receptions at times when no sender of their channel was recording, of which only some are messages,
- sendings that a `failed` event retracts: they are subtracted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, func, literal_column, select

from ...db.codes import BUCKET_NS, CHANNEL, KINDS, SEQ_BITS
from ...db.schema import activity, event
from ...experiments.records import Experiment
from ...log import cursor, event_rows
from ...log.activity_summary import is_complete, rows_to_sum, sum_of, summary
from ...log.event import Cursor, Event
from ...log.event_log import EventLog
from ...log.event_query import EventQuery, Recorders, events_of, recorders_now
from ...log.late_receptions import Interval, Times
from ...log.messages import Sources, message_pages, sources
from ...log.names import LOOKUP, NameReader, all_names
from ...log.reading import pages
from ...log.selection import Selection
from ...log.span import Span
from ..index import index_or_warn
from ..texts import Progress
from .activity_columns import Columns, is_known, translated
from .dimensions import FIRST_NS
from .groups import Groups

_SENT, _RECEIVED, _FAILED = (KINDS.index(kind) + 1 for kind in ("sent", "received", "failed"))
LAST_NS = 2**63 - 1

Rule = Callable[[], Coroutine[Any, Any, Sources | None]]
"""Returns the choice of messages; None if `activity` is not complete."""


async def add(
    log: EventLog,
    of: Experiment,
    groups: Groups,
    selection: Selection,
    *,
    events: bool,
    rule: Rule | None = None,
    sizes: bool = True,
    progress: Progress | None = None,
) -> bool:
    """Add the selected messages, or events, to the groups; return False if `activity` does not have the answer.

    The groups are of no use then. Indexes the experiment first. `rule` and `sizes` are those of `count.sums`.
    """
    if selection.by_content or selection.context or selection.last_per or selection.limit is not None:
        return False
    span = await selection.span(log.database, of)
    minutes = _whole_minutes(span)
    if minutes is None or not all(map(is_known, groups.by)):
        return False
    conditions = await _conditions(log, of, selection)  # `add_activity` gets the kinds
    if conditions is None:
        return False
    first, last = await cursor.span(log.database, of)
    if first is None or last is None or first - BUCKET_NS - max(each.bucket_ns for each in groups.by) < FIRST_NS:
        return False  # no events, or the start of a bucket is no time that a store can hold
    now = await recorders_now(log.database, of)
    if not await index_or_warn(log, of, progress=progress):
        return False
    part = (min(minutes[1], last + 1) - max(minutes[0], first)) / (last + 1 - first)
    sums = _Sums(log, of, groups, selection, conditions, minutes, part, sizes, now)
    if events:
        if not await sums.add_activity(*_of_kinds(selection)):
            return False
    elif not await sums.add_messages(rule or partial(_rule, log, of, selection, now)):
        return False
    for edge in _edges(span, minutes):
        await sums.add_pages(edge)
    return True


async def minutes(log: EventLog, of: Experiment, selection: Selection) -> tuple[int, int] | None:
    """Return the starts of the first and the last minute with events that fit the conditions, at any time.

    Of no events, the last is before the first. None if `activity` does not tell.
    """
    conditions = await _conditions(log, of, selection)
    if conditions is None or selection.by_content:
        return None
    now = await recorders_now(log.database, of)
    query = select(func.min(activity.c.bucket), func.max(activity.c.bucket)).where(*conditions)
    async with log.database.reading() as connection:
        if not await is_complete(connection, of, now.last_seqs):
            return None
        query = query.where(await rows_to_sum(connection, of))
        ((first, last),) = await EventQuery(query).rows_within(connection, log.database)
    return (0, -BUCKET_NS) if first is None else (first, last)


async def _conditions(log: EventLog, of: Experiment, selection: Selection) -> list[ColumnElement[bool]] | None:
    """Return the conditions of a selection, without kinds, on `activity`; None if they ask for more than it has."""
    any_kind = copy(selection)
    any_kind.kinds, any_kind.redacted = None, True
    return translated(await any_kind.condition(log.database, of))


async def _rule(log: EventLog, of: Experiment, selection: Selection, now: Recorders) -> Sources | None:
    """Return the choice of messages; None if `activity` is not complete."""
    known = await summary(log.database, of, now.last_seqs)
    return None if known is None else await sources(log, of, selection.kinds, known=known)


def _whole_minutes(span: Span) -> tuple[int, int] | None:
    """Return the start of the first whole minute of a part and the end of the last; None if there is none."""
    low, high = FIRST_NS, LAST_NS
    for place in (span.start, span.after):
        if place is not None:
            at = place.ts - place.ts % BUCKET_NS
            low = max(low, at if place <= Cursor(at, 0, 0) else at + BUCKET_NS)
    if span.end is not None:
        high = span.end.ts - span.end.ts % BUCKET_NS
    return (low, high) if low < high else None


def _edges(span: Span, minutes: tuple[int, int]) -> list[Span]:
    """Return what a part has before and behind its whole minutes."""
    low, high = minutes
    found = []
    if low != FIRST_NS:
        found.append(replace(span, end=Cursor(low, 0, 0)))
    if high != LAST_NS:
        found.append(Span(start=Cursor(high, 0, 0), end=span.end))
    return found


def _of_kinds(selection: Selection) -> list[ColumnElement[bool]]:
    """Return the condition on kinds for a count of events: redacted ones have negative kinds."""
    if selection.kinds is None:
        return [] if selection.redacted else [activity.c.kind > 0]
    kinds = {KINDS.index(name) + 1 for name in selection.kinds}
    return [activity.c.kind.in_(kinds | {-kind for kind in kinds} if selection.redacted else kinds)]


class _Sums:
    """The sums of one call of `add`."""

    def __init__(
        self,
        log: EventLog,
        of: Experiment,
        groups: Groups,
        selection: Selection,
        conditions: Sequence[ColumnElement[bool]],
        minutes: tuple[int, int],
        part: float,
        sizes: bool,
        now: Recorders,
    ) -> None:
        self._log = log
        self._of = of
        self._groups = groups
        self._selection = selection
        self._kinds = {"sent", "received"} if selection.kinds is None else selection.kinds
        """Those of messages."""
        self._conditions = conditions
        """Those of the selection, without kinds."""
        self._low, self._high = minutes
        self._part = part
        """Of the time of the experiment."""
        self._size = sum_of(activity.c.payload_bytes) if sizes else literal_column("0")
        self._now = now
        self._names = NameReader(log.database)
        self._columns = Columns(groups.by, self._names, groups.agents)
        self.rule: Sources | None = None
        """The choice of messages; None to count events."""

    async def add_messages(self, choose: Rule) -> bool:
        """Add the messages of the whole minutes; return False if `activity` is not complete.

        Most are summed while they are chosen: the choice concerns receptions, and sendings that are subtracted.
        """
        kind = activity.c.kind
        kinds = {KINDS.index(name) + 1 for name in self._kinds}  # redacted events have negative ones
        heard = _RECEIVED in kinds and any(row.kinds["received"] for row in await self._log.recorders(self._of))
        here = [(kind != _SENT) | (activity.c.channel_id != 0)] if heard else []  # the choice is by channel then
        adding = asyncio.create_task(self.add_activity(kind.in_(kinds - {_RECEIVED}), *here))
        try:
            rule = self.rule = await choose()
            if rule is None or not await adding:
                return False
        finally:
            adding.cancel()
        if here and "" in (rule.sent or ()) and not await self.add_activity(kind == _SENT, activity.c.channel_id == 0):
            return False
        if "received" in rule.kinds:
            added = self.add_activity(kind == _RECEIVED) if rule.sent is None else self._add_receptions(rule)
            if not await added:
                return False
            for times in self._unrecorded(rule):
                await self.add_pages(_span_of(times), receptions=True)
        if rule.retracted:
            await self._subtract(rule)
        return True

    async def add_activity(self, *more: ColumnElement[bool]) -> bool:
        """Add the sums of the whole minutes; return False if `activity` is not complete."""
        columns = self._columns
        rows = await self._rows(columns.all, *more)
        if rows is None:
            return False
        columns.add(self._groups, rows)
        return True

    async def _add_receptions(self, rule: Sources) -> bool:
        """Add the receptions on channels without sendings, each of one listener."""
        names = await all_names(self._log.database, self._of.id, CHANNEL)
        wanted = {
            number: {self._now.ids[ordinal] for ordinal in rule.listeners[name]}
            for number, name in [(0, ""), *names.items()]
            if name in rule.listeners and name not in rule.recorded
        }
        if not wanted:
            return True
        columns = self._columns
        place = [activity.c.channel_id.label("channel"), activity.c.recorder_id.label("recorder")]
        among = activity.c.channel_id.in_([literal_column(str(number)) for number in wanted])
        rows = await self._rows([*place, *columns.all], activity.c.kind == _RECEIVED, among)
        if rows is None:
            return False
        columns.add(self._groups, [row[2:] for row in map(tuple, rows) if row[1] in wanted[row[0]]])
        return True

    def _unrecorded(self, rule: Sources) -> list[Interval]:
        """Return the times when a channel with receptions and sendings has no recorder of its senders."""
        whole = self._low, self._high if self._high == LAST_NS else self._high - 1
        return Times({part for times in rule.recorded.values() for part in times.rest_of(whole)}).intervals

    async def add_pages(self, span: Span, *, receptions: bool = False) -> None:
        """Add what a part has, from the events; with `receptions`, only those on channels with sendings."""
        reading: AsyncIterator[list[Event]]
        if self.rule is None:
            reading = pages(self._log.database, self._of, self._selection, span)
        else:
            rule = self.rule
            if receptions:
                rule = copy(rule)
                rule.kinds = {"received"}
            reading = message_pages(self._log, self._of, self._selection, span, rule=rule)
        async for page in reading:
            if receptions and self.rule is not None:
                page = [entry for entry in page if (entry.channel or "") in self.rule.recorded]
            self._groups.add_events(page)

    async def _subtract(self, rule: Sources) -> None:
        """Subtract the retracted events that were counted."""
        ids = sorted(
            self._now.ids[ordinal] << SEQ_BITS | seq for ordinal, seq in rule.retracted if ordinal in self._now.ids
        )
        kept = copy(rule)
        kept.retracted = set()
        chosen = self._selection.of_kinds(rule.kinds).without_redacted()
        conditions = await chosen.condition(self._log.database, self._of)
        inside = event.c.ts >= self._low, event.c.ts < self._high
        for at in range(0, len(ids), LOOKUP):
            listed = event.c.id.in_([literal_column(str(number)) for number in ids[at : at + LOOKUP]])
            query = EventQuery(event_rows.columns().where(listed, *inside, *conditions))
            rows = await query.rows(self._log.database)
            async for page in events_of(self._log.database, rows, self._now, self._names):
                self._groups.add_events([e for e in page if kept.takes(e) and not _is_outside(e, rule)], -1)

    async def _rows(self, columns: Sequence[Any], *more: ColumnElement[bool]) -> list[tuple[Any, ...]] | None:
        """Return the sums of the whole minutes by these columns; None if `activity` is not complete."""
        conditions = list(self._conditions)
        if self._low != FIRST_NS:
            conditions.append(activity.c.bucket >= self._low)
        if self._high != LAST_NS:
            conditions.append(activity.c.bucket < self._high)
        query = select(*columns, sum_of(activity.c.messages), self._size).group_by(*columns)
        async with self._log.database.reading() as connection:
            if not await is_complete(connection, self._of, self._now.last_seqs):
                return None
            query = query.where(await rows_to_sum(connection, self._of, self._part), *conditions, *more)
            rows = await EventQuery(query).rows_within(connection, self._log.database)
        places = [at for at, column in enumerate(columns) if column.name in ("from", "to", "channel")]
        await self._names.load({row[at] for row in rows for at in places if row[at]})
        return rows


def _is_outside(entry: Event, rule: Sources) -> bool:
    """Return whether an event is none of those that are counted from `activity`."""
    return entry.kind == "received" and (entry.channel or "") in rule.recorded


def _span_of(times: Interval) -> Span:
    first, last = times
    return Span(Cursor(first, 0, 0), None if last == LAST_NS else Cursor(last + 1, 0, 0))
