"""What recorders commit, for a page that shows it at once: server-sent events from the log's tail.

| event | data | |
|---|---|---|
| `waiting` | `exp` | the experiment does not exist yet |
| `found` | `exp_id` | it exists now. The stream ends: the page asks for its head, and follows it from there |
| `recorders` | as in the head | their states changed, or are told for the first time |
| `more` | see `_More` | a batch. Its id is a tail position, from which the browser continues after a lost connection |
| `behind` | `events` | more is new than is told at once. The stream ends: the page begins again, as for `found` |
| `unavailable` | `error` | the store does not answer; the stream continues when it does |
| `closed` | | the experiment is closed, and everything was told. The stream ends |

Every event of the log is told once. A batch is in replay order, and begins behind the one before, unless an event was
committed late: events wait for `SETTLE_NS`, until those of other recorders are there.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ...errors import ExperimentNotFound, StoreNotFound, StoreUnavailable
from ...log.event import Event
from ...log.event_query import recorders_now
from ...log.mark_labels import MarkLabels
from ...log.messages import Sources
from ...log.reading import pages
from ...log.selection import Selection
from ...log.span import Span
from ...log.tail import tail
from ..columns import ON_THE_PAGE, encode
from ..head import gap_for_page, is_chapter, mark_name, mark_of, recorders_of
from .arrivals import Arrival, Arrivals
from .event_stream import StreamEvent
from .parameters import position_text
from .served_store import Served, ServedStore

EVERY_S = 0.2
"""Seconds between two batches, at least."""
POLL_S = 0.2
"""Seconds between two looks at the store."""
SETTLE_NS = 150_000_000
"""Age of the events of a batch, at least: recorders commit every 20 ms, and are read one after the other."""
HELD_S = 2.0
"""Seconds that an event waits for its time at most: the clock of its recorder may be ahead."""
ROWS = 5_000
"""Messages in a chunk."""
MOST, MOST_BYTES = 20_000, 64 << 20
"""Events, and bytes of payloads, above which no more are read before some are told."""
CAUGHT_UP = 100_000
"""New events that a page is told about, at most, when it connects: to begin again is faster for more."""
STATES_S = 2.0
"""Seconds between two looks at the states of the recorders: one that was killed writes nothing."""
RULE_S = 5.0
"""Seconds for which a choice of messages holds, unless somebody new sends or listens."""
MISSING_S = 0.5
"""Seconds between two looks for an experiment that does not exist yet."""
AWAY_S = 1.0
"""Seconds between two attempts to reach a store that does not answer."""


async def follow(store: ServedStore, wanted: str, position: dict[int, int]) -> AsyncGenerator[StreamEvent, None]:
    """Yield what is new behind a tail position until the experiment is closed."""
    missing = False
    while True:
        try:
            run = await store.run(wanted)
            if missing:
                yield StreamEvent("found", {"exp_id": run.of.exp_id})
                return
            if (events := await _new(run, position)) > CAUGHT_UP:
                yield StreamEvent("behind", {"events": events})
                return
            async for event in _followed(run, position, events):
                yield event
            yield StreamEvent("closed", {})
            return
        except (ExperimentNotFound, StoreNotFound):
            if not missing:
                yield StreamEvent("waiting", {"exp": wanted})
            missing = True
            await asyncio.sleep(MISSING_S)
        except StoreUnavailable as error:
            yield StreamEvent("unavailable", {"error": str(error)})
            await asyncio.sleep(AWAY_S)


async def _new(run: Served, position: dict[int, int]) -> int:
    """Return the number of events behind a tail position."""
    now = await recorders_now(run.log.database, run.of)
    return sum(max(0, last - position.get(now.ordinals[number], 0)) for number, last in now.last_seqs.items())


async def _followed(run: Served, position: dict[int, int], new: int) -> AsyncGenerator[StreamEvent, None]:
    """Yield batches. `position` is brought behind each."""
    more = _More(run)
    await more.begin(position)
    states: list[tuple[int, str]] | None = None
    look = 0.0
    async with aclosing(_batches(run, position, new)) as batches:
        async for batch in batches:
            if time.monotonic() >= look:
                look = time.monotonic() + STATES_S
                recorders = await recorders_of(run.log, run.of)
                now = [(one["recorder"], one["state"]) for one in recorders]
                if now != states:
                    states = now
                    yield StreamEvent("recorders", recorders)
            if not batch:
                continue
            told = await more.told(batch, position)
            for entry in batch:
                position[entry.recorder] = max(entry.seq, position.get(entry.recorder, 0))
            yield StreamEvent("more", told, position_text(position))


async def _batches(run: Served, position: dict[int, int], new: int) -> AsyncGenerator[list[Event], None]:
    """Yield the events behind a tail position in batches, each in replay order; the first has at least `new`.

    A batch is empty if nothing is old enough; one comes every `STATES_S` seconds at least.
    """
    waiting = _Waiting(new)
    reader = tail(run.log.database, run.of, dict(position), POLL_S)
    reading: asyncio.Task[list[Event] | None] | None = None
    due, ended = time.monotonic(), False
    try:
        while not ended or waiting.entries:
            if reading is None and not ended and not waiting.full:
                reading = asyncio.create_task(_next(reader))
            timeout = max(0.0, due - time.monotonic()) if waiting.entries else STATES_S
            if reading is None:
                await asyncio.sleep(timeout)
            elif (await asyncio.wait((reading,), timeout=timeout))[0]:
                page, reading = reading.result(), None
                ended = page is None
                waiting.add(page or [])
            if (now := time.monotonic()) >= due:
                due = now + EVERY_S
                yield waiting.take(everything=ended)
    finally:
        if reading is not None:
            reading.cancel()
            await asyncio.wait((reading,))
        await reader.aclose()


async def _next(pages: AsyncGenerator[list[Event], None]) -> list[Event] | None:
    return await anext(pages, None)


class _Waiting:
    """Events that were read, until they are told."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        """Number of events of the first batch."""
        self._by_recorder: dict[int, deque[tuple[float, Event]]] = {}
        """With the time at which they were read, in the order of seq."""
        self.entries = 0
        self._size = 0

    @property
    def full(self) -> bool:
        """True if no more may be read before some are taken."""
        return self.entries >= max(MOST, self._expected) or self._size >= MOST_BYTES

    def add(self, page: list[Event]) -> None:
        """Add events, those of a recorder in the order of seq."""
        now = time.monotonic()
        for entry in page:
            self._by_recorder.setdefault(entry.recorder, deque()).append((now, entry))
            self._size += len(entry.payload)
        self.entries += len(page)

    def take(self, *, everything: bool) -> list[Event]:
        """Return the events whose time has come, in replay order. A recorder has none left with a smaller seq."""
        everything = everything or self.full
        if self.entries < self._expected and not everything:
            return []
        self._expected = 0
        settled, oldest = time.time_ns() - SETTLE_NS, time.monotonic() - HELD_S
        found: list[Event] = []
        for entries in self._by_recorder.values():
            while entries and (everything or entries[0][1].ts <= settled or entries[0][0] <= oldest):
                found.append(entries.popleft()[1])
        self.entries -= len(found)
        self._size -= sum(len(entry.payload) for entry in found)
        return sorted(found, key=lambda entry: (entry.ts, entry.recorder, entry.seq))


class _More:
    """Makes the data of batches for one page.

    `chunks`: the messages, in base64, without receptions; `messages`: their number. `marks`, `gaps`: as in the head.
    `received`: the receptions that came, each as `[cursor of the sending, recorder, position of the Messager, ns after
    the sending, arrival or 0]`. `names`: the Messagers of these. `first_ts`, `last_ts`: those of the events.
    """

    def __init__(self, run: Served) -> None:
        self._run = run
        self._arrivals = Arrivals(run.log, run.of)
        self._labels: MarkLabels | None = None
        self._text = Selection().text_of
        self._sources: Sources | None = None
        self._chosen_at = 0.0
        self._places: set[tuple[int, str | None, str]] = set()

    async def begin(self, position: dict[int, int]) -> None:
        """Prepare for what follows a tail position."""
        await self._arrivals.begin(position)

    async def told(self, batch: list[Event], position: dict[int, int]) -> dict[str, Any]:
        """Return the data of a batch that follows a tail position."""
        rule = await self._rule(batch)
        messages = [entry for entry in batch if entry.kind in ON_THE_PAGE and rule.takes(entry)]
        arrivals = await self._arrivals.add(batch)
        return {
            "messages": len(messages),
            "first_ts": str(batch[0].ts),
            "last_ts": str(batch[-1].ts),
            "chunks": [
                base64.b64encode(encode(part, [()] * len(part), self._run.names, self._text)).decode()
                for at in range(0, len(messages), ROWS)
                if (part := messages[at : at + ROWS])
            ],
            "marks": [await self._mark(entry, position) for entry in batch if is_chapter(entry)],
            "gaps": [gap_for_page(entry) for entry in batch if entry.kind == "gap"],
            "received": [self._reception(arrival) for arrival in arrivals],
            "names": self._run.names.listed(
                set(), set(), {self._run.names.messager(arrival.reception.messager) for arrival in arrivals}
            ),
        }

    async def _rule(self, batch: list[Event]) -> Sources:
        """Return the choice of messages. It may change with new senders and listeners, and with their heartbeats."""
        places = {(entry.recorder, entry.channel, entry.kind) for entry in batch}
        if self._sources is None or time.monotonic() - self._chosen_at > RULE_S or not places <= self._places:
            self._sources, self._chosen_at = await self._run.rule.sources(self._run.log, self._run.of), time.monotonic()
            self._places |= places
        return self._sources

    def _reception(self, arrival: Arrival) -> list[Any]:
        sending, entry = arrival
        messager = self._run.names.messager(entry.messager)
        return [str(sending), entry.recorder, messager, entry.ts - sending.ts, entry.arrival or 0]

    async def _mark(self, entry: Event, position: dict[int, int]) -> dict[str, Any]:
        if self._labels is None:
            self._labels = MarkLabels()
            before = pages(self._run.log.database, self._run.of, Selection({"mark"}), Span(last_seqs=position))
            async with aclosing(before):
                async for page in before:
                    for earlier in page:
                        self._labels.next(mark_name(earlier))
        return mark_of(entry, self._labels.next(mark_name(entry)))
