"""The rule of messages along a recording that a page follows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from ...db.codes import KINDS, SEQ_BITS
from ...experiments.records import Experiment
from ...log.event import Cursor, Event
from ...log.event_log import EventLog
from ...log.message_rule import WITHIN_NS, MessageRule
from ...log.reading import pages
from ...log.rule_feed import RuleFeed, began
from ...log.selection import Selection
from ...log.span import Span
from ...log.subscriptions import Subscriptions

BEFORE = 5_000
"""Events before the begin that are read first: what is received next may have been sent then."""
EARLY_NS = 1_000_000_000
"""Time for which a reception waits for its sending; a page cannot wait as long as other readers of the log."""


class Arrival(NamedTuple):
    """A reception, and the message that it belongs to."""

    message: Cursor
    reception: Event


class LiveRule:
    """Decides about events as they are recorded."""

    def __init__(self, log: EventLog, of: Experiment) -> None:
        self._log, self._of = log, of
        self._retracted: set[int] = set()
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        """Numbers of the names of channels and Messagers."""
        self._subscriptions = Subscriptions((), self._names)
        self._rule = MessageRule(self._retracted, {}, self._subscriptions.copies_of, EARLY_NS)
        self._ids: dict[int, int] = {}
        """Ids of recorders by ordinal."""
        self._feed = RuleFeed(self._rule, self._subscriptions, self._ids)
        self._undecided: dict[int, Event] = {}
        self._messages: deque[tuple[int, int]] = deque()
        """Time and number of the messages of the last minute."""
        self._places: dict[int, Cursor] = {}
        """Theirs, by number."""
        self._last = -(2**63), time.monotonic_ns()
        """The latest time of an event, and when it came."""
        self._pending: tuple[list[Event], list[Arrival]] = [], []
        """What the page does not have of the events that were read first."""
        self.told: Cursor | None = None
        """The last message that was taken."""

    async def begin(self, position: dict[int, int], told: Cursor | None) -> None:
        """Read what was recorded last before a tail position.

        `told` is the last message that the page has; without one, it has all up to there.
        """
        before: list[Event] = []
        reading: AsyncGenerator[list[Event], None] = pages(
            self._log.database, self._of, Selection(), Span(last_seqs=position, limit=BEFORE), backward=True
        )
        async with aclosing(reading):
            async for page in reading:
                before += page
        await self.add(before[::-1])
        if told is None:
            self.end()
        untold, arrivals = self.take()
        if told is None:
            self.told = self.told or Cursor(-(2**63), 0, 0)
        else:
            self.told = told
            untold = [entry for entry in untold if entry.cursor > told]
            places = {entry.cursor for entry in untold}
            self._pending = untold, [arrival for arrival in arrivals if arrival.message in places]

    async def add(self, batch: Sequence[Event]) -> None:
        """Add events, in replay order."""
        if any(entry.recorder not in self._ids for entry in batch):
            await self._begin_recorders()
        for entry in batch:
            if entry.kind in ("failed", "blocked") and entry.cause is not None and entry.cause[0] in self._ids:
                self._retracted.add(self._number(Cursor(0, *entry.cause)))
        for entry in batch:
            self._add(entry)
            if entry.ts > self._last[0]:
                self._last = entry.ts, time.monotonic_ns()

    def end(self) -> None:
        """Decide about everything: no event follows."""
        self._rule.end_undecided()

    def take(self) -> tuple[list[Event], list[Arrival]]:
        """Return the new messages in replay order, and the receptions that belong to a message, decided until now."""
        self._rule.reach(self._last[0] + time.monotonic_ns() - self._last[1])
        decided = self._rule.take()
        (messages, arrivals), self._pending = self._pending, ([], [])
        for number in decided.messages:
            entry = self._undecided.pop(number)
            self._places[number] = entry.cursor
            self._messages.append((entry.ts, number))
            messages.append(entry)
            if entry.kind == "received" and entry.arrival is not None:  # it represents its message
                arrivals.append(Arrival(entry.cursor, entry))
        for number, message, is_copy in decided.deliveries:
            entry = self._undecided.pop(number)
            if message is not None and message in self._places and not is_copy:
                arrivals.append(Arrival(self._places[message], entry))
        while self._messages and self._messages[0][0] < self._last[0] - 2 * WITHIN_NS:
            del self._places[self._messages.popleft()[1]]
        if messages:  # one that was committed late may be before the others
            last = messages[-1].cursor
            self.told = last if self.told is None else max(self.told, last)
        return messages, arrivals

    def _add(self, entry: Event) -> None:
        number = self._number(entry.cursor)
        if entry.kind == "received" or (entry.kind == "sent" and number not in self._retracted):
            self._undecided[number] = entry
        channel, messager = (None if name is None else self._name(name) for name in (entry.channel, entry.messager))
        kind = KINDS.index(entry.kind) + 1
        self._feed.add(number, entry.ts, kind, channel, messager, entry.payload, entry.redacted, entry.meta or {})

    async def _begin_recorders(self) -> None:
        """Note since when new recorders have been listening, and to what."""
        new = [row for row in await self._log.recorders(self._of) if row.ordinal not in self._ids]
        for row in new:
            self._ids[row.ordinal] = row.id
            self._subscriptions.begin(row)
        for number, ts in began(new).items():
            self._rule.gap(number, ts)

    def _number(self, place: Cursor) -> int:
        return self._ids[place.recorder] << SEQ_BITS | place.seq

    def _name(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self._numbers) + 1)
        self._names[number] = name
        return number
