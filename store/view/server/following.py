"""What recorders commit, for a page that shows it at once: server-sent events from the log's tail.

| event | data | |
|---|---|---|
| `waiting` | `exp` | the experiment does not exist yet |
| `found` | `exp_id` | it exists now. The stream ends: the page asks for its head, and follows it from there |
| `recorders` | as in the head | their states changed, or are told for the first time |
| `more` | see `_More` | a batch. Its id says from where the browser continues after a lost connection |
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
from ...log.event import Cursor, Event
from ...log.event_query import recorders_now
from ...log.mark_labels import MarkLabels
from ...log.names import name_text
from ...log.reading import pages
from ...log.selection import Selection
from ...log.span import Span
from ...log.tail import tail
from ..columns import chunk
from ..head import gap_for_page, is_chapter, mark_of, recorders_of
from ..shown import Shown, no_receptions, table_of
from .event_stream import StreamEvent
from .live_rule import Arrival, LiveRule
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
MISSING_S = 0.5
"""Seconds between two looks for an experiment that does not exist yet."""
AWAY_S = 1.0
"""Seconds between two attempts to reach a store that does not answer."""


async def follow(
    store: ServedStore, wanted: str, position: dict[int, int], told: Cursor | None = None
) -> AsyncGenerator[StreamEvent, None]:
    """Yield what is new behind a tail position until the experiment is closed.

    `told` is the last message that the page has; without one, it has all messages up to the position.
    """
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
            async for event in _followed(run, position, told, events):
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


async def _followed(
    run: Served, position: dict[int, int], told: Cursor | None, new: int
) -> AsyncGenerator[StreamEvent, None]:
    """Yield batches. `position` is brought behind each."""
    more = _More(run)
    await more.begin(position, told)
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
            found = await more.found(batch, position)
            for entry in batch:
                position[entry.recorder] = max(entry.seq, position.get(entry.recorder, 0))
            if found is not None:
                yield StreamEvent("more", found, position_text(position, more.told))
    if (last := await more.end(position)) is not None:
        yield StreamEvent("more", last, position_text(position, more.told))


async def _batches(run: Served, position: dict[int, int], new: int) -> AsyncGenerator[list[Event], None]:
    """Yield the events behind a tail position in batches, each in replay order; the first has at least `new`.

    A batch is empty if nothing is old enough; one comes every `EVERY_S` seconds.
    """
    waiting = _Waiting(new)
    reader = tail(run.log.database, run.of, dict(position), POLL_S)
    reading: asyncio.Task[list[Event] | None] | None = None
    due, ended = time.monotonic(), False
    try:
        while not ended or waiting.entries:
            if reading is None and not ended and not waiting.full:
                reading = asyncio.create_task(_next(reader))
            timeout = max(0.0, due - time.monotonic())
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
    `received`: the receptions that came, each as `[cursor of the message, recorder, position of the Messager, ns after
    the message, arrival or 0]`. `names`: the Messagers of these. `first_ts`, `last_ts`: those of the events.
    """

    def __init__(self, run: Served) -> None:
        self._run = run
        self._rule = LiveRule(run.log, run.of)
        self._labels: MarkLabels | None = None
        self._text = Selection().text_of

    async def begin(self, position: dict[int, int], told: Cursor | None) -> None:
        """Prepare for what follows a tail position."""
        await self._rule.begin(position, told)

    @property
    def told(self) -> Cursor | None:
        """The last message that was told."""
        return self._rule.told

    async def end(self, position: dict[int, int]) -> dict[str, Any] | None:
        """Return the data of what was not decided when the experiment was closed; None for nothing."""
        self._rule.end()
        return await self.found([], position)

    async def found(self, batch: list[Event], position: dict[int, int]) -> dict[str, Any] | None:
        """Return the data of a batch that follows a tail position, with what is decided now; None for nothing."""
        await self._rule.add(batch)
        messages, arrivals = self._rule.take()
        messages += [entry for entry in batch if entry.kind in ("blocked", "failed")]
        messages.sort(key=lambda entry: entry.cursor)
        if not (batch or messages or arrivals):
            return None
        times = [entry.ts for entry in batch or messages] or [arrival.reception.ts for arrival in arrivals]
        return {
            "messages": len(messages),
            "first_ts": str(min(times)),
            "last_ts": str(max(times)),
            "chunks": [
                base64.b64encode(self._chunk(part)).decode()
                for at in range(0, len(messages), ROWS)
                if (part := messages[at : at + ROWS])
            ],
            "marks": [await self._mark(entry, position) for entry in batch if is_chapter(entry)],
            "gaps": [gap_for_page(entry) for entry in batch if entry.kind == "gap"],
            "received": [self._reception(arrival) for arrival in arrivals],
            "names": self._run.names.listed(set(), set(), {self._messager(arrival.reception) for arrival in arrivals}),
        }

    def _chunk(self, messages: list[Event]) -> bytes:
        return chunk(Shown(table_of(messages, self._text), no_receptions()), self._run.names).packed()

    def _reception(self, arrival: Arrival) -> list[Any]:
        message, entry = arrival
        return [str(message), entry.recorder, self._messager(entry), entry.ts - message.ts, entry.arrival or 0]

    def _messager(self, reception: Event) -> int:
        return self._run.names.messager(None if reception.messager is None else name_text(reception.messager))

    async def _mark(self, entry: Event, position: dict[int, int]) -> dict[str, Any]:
        if self._labels is None:
            self._labels = MarkLabels()
            before = pages(self._run.log.database, self._run.of, Selection({"mark"}), Span(last_seqs=position))
            async with aclosing(before):
                async for page in before:
                    for earlier in page:
                        self._labels.next(earlier.mark or "")
        return mark_of(entry, self._labels.next(entry.mark or ""))
