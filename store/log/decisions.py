"""The rule of messages along the log of an experiment, for readers with conditions.

The rule must see all sendings and receptions, and a reader with conditions does not. So the log is read twice where
there are receptions, once with the few columns that the rule needs. A log without receptions is read once: all its
sendings are messages, but for retracted ones.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace

from sqlalchemy import case, func, null, select, tuple_

from ..db.codes import CHANNEL, REDACTED, SEQ_BITS, SEQ_MASK
from ..db.schema import event, replay_place
from ..experiments.records import Experiment, RecorderRow
from .event import Cursor, Event
from .event_log import EventLog
from .event_query import EventQuery, parameter
from .event_rows import MAX_FETCHED
from .message_rule import EARLY_NS, MessageRule
from .names import all_names
from .reading import page_size
from .retractions import RETRACTING, retracted
from .rule_feed import GAP, MARK, RECEIVED, SENT, RuleFeed, began, feed_meta, no_collection
from .span import Span
from .subscriptions import Subscriptions

_EVENTS = EventQuery(
    select(
        *(event.c.id, event.c.ts, event.c.kind, event.c.channel_id, event.c.messager_id),
        case((func.length(event.c.payload) <= MAX_FETCHED, event.c.payload), else_=null()),
        event.c.flags.op("&")(REDACTED),
        case((event.c.kind != SENT, event.c.attributes), else_=null()),
    )
    .where(
        event.c.experiment_id == parameter("experiment"),
        event.c.kind.in_((SENT, RECEIVED, GAP, MARK)),
        replay_place > tuple_(parameter("ts"), parameter("id")),
    )
    .order_by(event.c.ts, event.c.id)
    .limit(parameter("size"))
)
MOST_READS = 32
"""Pages about whose events it is decided before some are read, at most."""
_PAYLOAD = EventQuery(select(event.c.payload).where(event.c.id == parameter("id")))


class Decisions:
    """The decisions about the events of an experiment, as it was when this was made. Memory use is a bit an event."""

    def __init__(
        self,
        log: EventLog,
        of: Experiment,
        recorders: list[RecorderRow],
        channels: Mapping[int, str],
        undone: set[int],
        kinds: set[str] | None,
    ) -> None:
        """`undone` are the ids of sendings that were retracted. For the others, see `decisions`."""
        heard = any(row.kinds["received"] for row in recorders)
        self.kinds = ({"sent", "received"} if heard else {"sent"}) if kinds is None else kinds
        """The kinds of events that may be messages."""
        self.reads = heard and "received" in self.kinds
        """True if the log is read for it."""
        ordinals = {row.id: row.ordinal for row in recorders}
        self.retracted = {(ordinals.get(number >> SEQ_BITS, 0), number & SEQ_MASK) for number in undone}
        """(ordinal, seq) of the sendings that were retracted."""
        self._log, self._of = log, of
        self._takes_sent = "sent" in self.kinds
        self._last = defaultdict(int, {row.id: row.id << SEQ_BITS | row.last_seq for row in recorders})
        """Ids of the last events, by the recorder's id."""
        self._ordinals = ordinals
        subscriptions = Subscriptions(recorders, channels)
        self._rule = MessageRule(undone, began(recorders), subscriptions.copies_of)
        self._feed = RuleFeed(self._rule, subscriptions, {row.ordinal: row.id for row in recorders})
        self._place = (-(2**63), -1)
        self._ended = not self.reads
        self._size = 0
        self._reading = asyncio.Lock()
        self._any = False
        """True if a reception was chosen."""
        self._chosen = {row.ordinal: bytearray(row.last_seq // 8 + 1) for row in recorders if row.kinds["received"]}
        """By ordinal, a bit for each reception that is a message."""

    @property
    def ended(self) -> bool:
        """True if it is decided about all events."""
        return self._ended

    @property
    def needed(self) -> set[str]:
        """The kinds of events that are messages as far as it is decided: without `received` if no reception is one."""
        return self.kinds if self._any or not self.reads else self.kinds - {"received"}

    async def reach(self, ts: int | None) -> None:
        """Decide about all events up to a time (ns UTC), or about all."""
        async with self._reading:
            while not self._ended and (ts is None or self._place[0] <= ts + EARLY_NS):
                await self._read()

    async def parts(self, span: Span) -> AsyncGenerator[Span, None]:
        """Yield parts of a span, one behind the other, as soon as it is decided about their events."""
        first = max((at for at in (span.start, span.after) if at is not None), default=None)
        if first is not None:
            await self.reach(first.ts)
        reads = 1
        while True:
            async with self._reading:
                before, number = self._place[0], 0
                while not self._ended and (number < reads or self._place[0] == before):
                    await self._read()
                    number += 1
                end = Cursor(self._place[0] - EARLY_NS, 0, 0)
            if self._ended or (span.end is not None and end >= span.end):
                yield span
                return
            if first is None or end > first:
                yield replace(span, end=end)
                span = replace(span, start=end, after=None)
            reads = min(2 * reads, MOST_READS)

    def takes(self, entry: Event) -> bool:
        """Return whether an event is a message. It must have been reached; its kind is one of `kinds`."""
        if entry.kind == "received":
            chosen = self._chosen[entry.recorder]
            return bool(chosen[entry.seq >> 3] & 1 << (entry.seq & 7))
        return entry.kind != "sent" or (entry.recorder, entry.seq) not in self.retracted

    async def _read(self) -> None:
        database, rule, feed = self._log.database, self._rule, self._feed
        self._size = self._size or await page_size(database, self._of)
        ts, number = self._place
        rows = await _EVENTS.rows(database, experiment=self._of.id, ts=ts, id=number, size=self._size)
        for at, row in enumerate(rows):
            if row[5] is None:
                ((payload,),) = await _PAYLOAD.rows(database, id=row[0])
                rows[at] = *row[:5], payload, *row[6:]
        last, takes_sent = self._last, self._takes_sent
        with no_collection():
            for number, ts, kind, channel, messager, payload, redacted, attributes in rows:
                if number > last[number >> SEQ_BITS]:
                    continue
                if kind != SENT:
                    meta = {} if attributes is None else feed_meta(kind, attributes)
                    feed.add(number, ts, kind, channel, messager, payload, bool(redacted), meta)
                elif takes_sent:
                    rule.sent(number, ts, channel, payload, redacted=bool(redacted))
        if len(rows) < self._size:
            rule.end()
            self._ended = True
        else:
            self._place = rows[-1][1], rows[-1][0]
            rule.reach(self._place[0])
        heard = rule.take().heard
        for number in heard:
            seq = number & SEQ_MASK
            self._chosen[self._ordinals[number >> SEQ_BITS]][seq >> 3] |= 1 << (seq & 7)
        self._any = self._any or bool(heard)


async def decisions(log: EventLog, of: Experiment, kinds: set[str] | None = None) -> Decisions:
    """Return the decisions about the events that an experiment has now.

    With `kinds`, messages are chosen among the events of these: without `sent`, each message that was received is there
    once, as its first reception. Events of other kinds than sent and received are all chosen.
    """
    recorders = await log.recorders(of)
    undone: set[int] = set()
    if any(row.kinds["failed"] or row.kinds["blocked"] for row in recorders):
        async with log.database.reading() as connection:
            rows = (await connection.execute(RETRACTING.where(event.c.experiment_id == of.id))).all()
        undone = set(retracted(rows, {row.uuid: row.id for row in recorders}))
    return Decisions(log, of, recorders, await all_names(log.database, of.id, CHANNEL), undone, kinds)
