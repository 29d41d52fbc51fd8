"""What recorders commit, for a page that shows it at once: batches from the tail, as server-sent events.

`waiting` {"exp"}       the experiment does not exist yet
`found` {"exp_id"}      it exists now: the page asks for its head and begins
`behind` {"events"}     more is new than a page can be told in order: it asks for the head and the last messages again
`more`                  a batch, as `_more` describes it. Its id is a tail position, from which the browser continues
                        after a lost connection: every event is told once
`unavailable` {"error"} the store does not answer; the stream continues when it does
`closed` {}             the experiment is closed, and everything was told. The page ends the stream

A batch is in replay order. It begins behind the one before, unless an event was committed late: a batch waits
`SETTLE_NS` for the recorders.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any

from ...errors import ExperimentNotFound, StoreNotFound, StoreUnavailable
from ...log.event import Event
from ...log.event_query import recorders_now
from ...log.mark_labels import MarkLabels
from ...log.tail import tail
from ..columns import ON_THE_PAGE, encode
from ..head import gap_for_page, mark_of
from .arrivals import Arrival, Arrivals
from .event_stream import StreamEvent
from .parameters import position_text
from .served_store import Served, ServedStore

EVERY_S = 0.2
"""Seconds between two batches, at least."""
POLL_S = 0.2
"""Seconds between two looks at the store."""
SETTLE_NS = 300_000_000
"""Age of the events of a batch, at least: recorders commit every 20 ms, and are read one after the other."""
HELD_S = 2.0
"""Seconds that an event waits for its time at most: the clock of its recorder may be ahead."""
ROWS = 5_000
"""Messages in a chunk."""
MOST = 20_000
"""Events that are waiting, at most."""
MISSING_S = 0.5
"""Seconds between two looks for an experiment that does not exist yet."""
AWAY_S = 1.0
"""Seconds between two attempts to reach a store that does not answer."""


async def follow(store: ServedStore, wanted: str, position: dict[int, int]) -> AsyncGenerator[StreamEvent, None]:
    """Yield what is new behind a tail position until the experiment is closed."""
    away = False
    while True:
        try:
            run = await store.run(wanted)
            if away:
                yield StreamEvent("found", {"exp_id": run.of.exp_id})
                away = False
            async for event in _followed(run, position):
                yield event
            yield StreamEvent("closed", {})
            return
        except (ExperimentNotFound, StoreNotFound):
            if not away:
                yield StreamEvent("waiting", {"exp": wanted})
            away = True
            await asyncio.sleep(MISSING_S)
        except StoreUnavailable as error:
            yield StreamEvent("unavailable", {"error": str(error)})
            await asyncio.sleep(AWAY_S)


async def _followed(run: Served, position: dict[int, int]) -> AsyncIterator[StreamEvent]:
    """Yield batches; `position` is that behind the last one."""
    now = await recorders_now(run.log.database, run.of)
    new = sum(max(0, last - position.get(now.ordinals[number], 0)) for number, last in now.last_seqs.items())
    if new > MOST:
        yield StreamEvent("behind", {"events": new})
        position.update((now.ordinals[number], last) for number, last in now.last_seqs.items())
        new = 0
    arrivals = Arrivals(run.log, run.of)
    await arrivals.begin(position)
    async for batch in _batches(run, position, new):
        for entry in batch:
            position[entry.recorder] = max(entry.seq, position.get(entry.recorder, 0))
        yield StreamEvent("more", await _more(run, arrivals, batch), position_text(position))


async def _batches(run: Served, position: dict[int, int], new: int) -> AsyncIterator[list[Event]]:
    """Yield the events behind a tail position, in batches of replay order; the first has the `new` ones."""
    waiting = _Waiting(new)
    pages = tail(run.log.database, run.of, dict(position), POLL_S)
    reading: asyncio.Task[list[Event] | None] | None = None
    due = time.monotonic()
    ended = False
    try:
        while not ended or waiting:
            if reading is None and not ended and len(waiting) < MOST:
                reading = asyncio.create_task(_next(pages))
            if reading is not None:
                # a timeout only while something is waiting: idle otherwise
                timeout = max(0, due - time.monotonic()) if waiting else None
                await asyncio.wait((reading,), timeout=timeout)
                if reading.done():
                    page, reading = reading.result(), None
                    if page is None:
                        ended = True
                    else:
                        waiting.add(page)
            else:
                await asyncio.sleep(max(0, due - time.monotonic()))
            if time.monotonic() >= due and (batch := waiting.take(everything=ended)):
                yield batch
                due = time.monotonic() + EVERY_S
    finally:
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await pages.aclose()
