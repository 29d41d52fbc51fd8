"""Events from any thread: none is lost, and the recorder numbers them without holes."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from messager import MessageRecord
from messager_store import EventLog, NewEvent, Recorder
from messager_store.lockstep.recorder_thread import RealThread
from messager_store.maintenance.verify import verify
from messager_store.recording import committer
from tests.support import until
from tests.support.outages import locked

THREADS, EVENTS = 4, 5000


@pytest.fixture(autouse=True)
def _races() -> Iterator[None]:
    """Let threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


async def in_threads(recorder: Recorder, events: int = EVENTS) -> None:
    """Record this number of events in each thread. Raises what a thread raised."""

    def record(thread: int) -> None:
        for number in range(events):
            recorder.after(MessageRecord("sent", recorder.clock.now(), "c", b"%d" % number, from_id=thread))

    await asyncio.gather(*(asyncio.to_thread(record, thread) for thread in range(THREADS)))


async def recorded(log: EventLog) -> int:
    """Return the number of events, which are numbered without holes, and in order of each thread."""
    events = [entry async for entry in log.read("e1", kinds=["sent"])]
    assert sorted(entry.seq for entry in events) == list(range(1, len(events) + 1))
    for thread in range(THREADS):
        own = sorted((entry for entry in events if entry.from_id == thread), key=lambda entry: entry.seq)
        assert [int(entry.payload) for entry in own] == list(range(len(own)))
    assert (await verify(log, await log.experiment("e1"))).problems == []
    return len(events)


@pytest.mark.databases
async def test_the_events_of_four_threads_are_all_in_the_log(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder:
        await in_threads(recorder)
        await recorder.flush()
        assert await recorded(log) == recorder.accepted == THREADS * EVENTS


async def test_an_event_of_a_thread_wakes_the_event_loop_of_the_recorder(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "HEARTBEAT_SECONDS", 600.0)  # nothing else wakes it
    sleeping: list[float] = []

    async def opened() -> EventLog:
        return await EventLog.open(store)

    async with RealThread() as thread:
        selector: Any = thread.loop._selector  # type: ignore[attr-defined]
        select = selector.select
        monkeypatch.setattr(selector, "select", lambda timeout: sleeping.append(timeout) or select(timeout))
        log = await thread.run(opened())
        recorder = Recorder(log, "e1")
        await thread.run(recorder.start())
        await until(lambda: (sleeping[-1] or 0) > 100)
        recorder.mark("one")
        await until(lambda: recorder.acknowledged == 1)
        await thread.run(recorder.stop())
        await thread.run(log.close())


@pytest.mark.usefixtures("quick")
async def test_the_events_of_threads_are_spooled_while_the_store_is_unreachable(log: EventLog, store: str) -> None:
    async with Recorder(log, "e1") as recorder:
        with locked(store):
            await in_threads(recorder)
            await until(lambda: recorder.spooled == THREADS * EVENTS)
        await until(lambda: recorder.acknowledged == THREADS * EVENTS)  # its end has a time limit
    assert await recorded(log) == THREADS * EVENTS


async def test_an_event_that_is_read_while_the_recorder_ends_is_counted_as_dropped(log: EventLog) -> None:
    reading, ended = threading.Event(), threading.Event()

    def redact(event: NewEvent) -> NewEvent:
        reading.set()
        ended.wait()
        return event

    async with Recorder(log, "e1", redact=redact) as recorder:
        recording = asyncio.create_task(in_threads(recorder, 1))
        await asyncio.to_thread(reading.wait)
    ended.set()
    await recording
    assert (recorder.dropped, await recorded(log)) == (THREADS, 0)
