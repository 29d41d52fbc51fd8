"""Receptions of messages that are being recorded, matched with their sendings by the rule of the side table `delivery`.

The side table is filled when an experiment is closed or asked about; a page that follows a recording cannot wait.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from heapq import merge
from typing import NamedTuple

from ...db.codes import SEQ_BITS, SEQ_MASK
from ...experiments.records import Experiment
from ...log.event import Cursor, Event
from ...log.event_log import EventLog
from ...log.matching import WITHIN_NS, Listener, Matching, begins_listening, key_of
from ...log.reading import pages
from ...log.selection import Selection
from ...log.span import Span

BEFORE = 5_000
"""Events before the begin that are read first: what is received next may have been sent then."""


class Arrival(NamedTuple):
    """A reception, and the sending that it belongs to."""

    sending: Cursor
    reception: Event


class Arrivals:
    """The matching of one follower."""

    def __init__(self, log: EventLog, of: Experiment) -> None:
        self._log, self._of = log, of
        self._matching = Matching({})
        self._sent: dict[int, int] = {}
        """Times of sendings by number, in the order in which they were added."""
        self._unmatched: list[Event] = []
        self._recorders: set[int] = set()
        self._numbers: dict[str, int] = {}
        """Numbers for the names of channels and Messagers."""

    async def begin(self, position: dict[int, int]) -> None:
        """Read what was recorded last before a tail position."""
        last = Span(last_seqs=position, limit=BEFORE)
        before: list[Event] = []
        reading: AsyncGenerator[list[Event], None] = pages(
            self._log.database, self._of, Selection(), last, backward=True
        )
        async with aclosing(reading):
            async for page in reading:
                before += page
        await self.add(before[::-1])

    async def add(self, batch: Sequence[Event]) -> list[Arrival]:
        """Return the receptions of a batch, in replay order, that belong to a sending.

        A reception may be committed before its sending, so those without one are matched again with the next batch.
        """
        if any(entry.recorder not in self._recorders for entry in batch):
            await self._begin_recorders()
        found: list[Arrival] = []
        again, self._unmatched = self._unmatched, []
        tried = set(map(id, again))
        for entry in merge(again, batch, key=lambda entry: entry.cursor):
            sending = self._sending_of(entry)
            if sending is not None:
                found.append(Arrival(sending, entry))
            elif entry.kind == "received" and id(entry) not in tried:
                self._unmatched.append(entry)
        return found

    def _sending_of(self, entry: Event) -> Cursor | None:
        if entry.kind == "gap":
            self._matching.gap(entry.recorder, entry.ts)
        elif entry.kind == "mark":
            if begins_listening(entry.meta or {}):
                self._matching.subscribed(self._listener(entry), entry.ts)
        elif entry.redacted:
            return None
        elif entry.kind == "sent":
            number = entry.recorder << SEQ_BITS | entry.seq
            self._forget(entry.ts - WITHIN_NS)
            self._sent[number] = entry.ts
            self._matching.sent(number, entry.ts, self._key(entry))
        elif entry.kind == "received" and not (entry.meta or {}).get("retained"):
            found = self._matching.received(self._listener(entry), entry.ts, self._key(entry))
            if found is not None:
                return Cursor(self._sent[found], found >> SEQ_BITS, found & SEQ_MASK)
        return None

    def _forget(self, until: int) -> None:
        """Drop the times of sendings that are too old to be received, as the matching does."""
        while self._sent and self._sent[first := next(iter(self._sent))] < until:
            del self._sent[first]

    async def _begin_recorders(self) -> None:
        """Note since when new recorders have been listening."""
        for row in await self._log.recorders(self._of):
            if row.ordinal not in self._recorders:
                self._recorders.add(row.ordinal)
                if row.first_ts is not None and row.started_at <= row.first_ts:
                    self._matching.gap(row.ordinal, row.started_at)

    def _listener(self, entry: Event) -> Listener:
        return entry.recorder, None if entry.messager is None else self._number(entry.messager)

    def _key(self, entry: Event) -> bytes:
        return key_of(None if entry.channel is None else self._number(entry.channel), entry.payload)

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers) + 1)
