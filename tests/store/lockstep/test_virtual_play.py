"""`Replay.play` in virtual time: a thread with an event loop of its own, which ends with the call."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from messager import MemoryBroker, Messager
from messager_store import EventLog, LiveReplay, NewEvent
from messager_store.errors import StoreError
from messager_store.lockstep.virtual_time import VirtualLoop
from tests.support.logs import filled
from tests.support.scenes import Scene

QUESTIONS = 4


async def recorded(log: EventLog, *, together: bool = False) -> None:
    """Agent 7 asks agent 3, which answers each question, or hears all of them `together` and answers then."""
    made = Scene()
    made.subscribe(3, "exps:e1:agents:3:*")
    for number in range(QUESTIONS):
        made.say(7, "exps:e1:agents:3:chat", f"question {number}")
        if not together:
            made.fetch(3)
            made.say(3, "exps:e1:agents:7:chat", number)
    made.fetch(3)
    for number in range(QUESTIONS if together else 0):
        made.say(3, "exps:e1:agents:7:chat", number)
    await filled(log, [NewEvent(*(getattr(event, name) for name in NewEvent._fields)) for event in made.events])


async def seller(messager: Messager) -> None:
    await messager.subscribe_and_start_listening([messager.get_subtopic_channel(3, "*")])
    while True:
        for message in await messager.fetch_messages():
            number = int(json.loads(message["data"])[-1])
            await messager.send_message(messager.get_subtopic_channel(7, "chat"), number, 3, 7)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("rate", [2.0, 0.01])
async def test_a_rate_counts_virtual_time_and_costs_no_patience(log: EventLog, rate: float, together: bool) -> None:
    await recorded(log, together=together)
    loops: list[asyncio.AbstractEventLoop] = []

    async def timed(messager: Messager) -> None:
        loops.append(asyncio.get_running_loop())
        await seller(messager)

    replay = LiveReplay(log, "e1", MemoryBroker(), rate=rate, patience=10.0)
    report = await replay.play({3: timed}, virtual_time=True)
    assert report.equal and report.pace == "lockstep"
    assert isinstance(loops[0], VirtualLoop) and loops[0].time() >= (QUESTIONS - 1) / rate


async def test_a_replay_that_publishes_nothing_as_everybody_is_live_has_a_duration(log: EventLog) -> None:
    await recorded(log)

    async def asker(messager: Messager) -> None:
        for number in range(QUESTIONS):
            await messager.send_message(messager.get_subtopic_channel(3, "chat"), f"question {number}", 7, 3)

    report = await LiveReplay(log, "e1", MemoryBroker()).play({3: seller, 7: asker}, virtual_time=True)
    assert report.equal and report.published == 0
    assert report.duration_s > 0


async def test_with_a_rate_messages_that_are_released_together_are_published_one_after_the_other(log: EventLog) -> None:
    await recorded(log, together=True)
    times: list[float] = []

    class Timed(MemoryBroker):
        async def publish(self, messages: Any) -> Any:
            times.extend(asyncio.get_running_loop().time() for _, payload in messages if b"question" in payload)
            return await super().publish(messages)

    replay = LiveReplay(log, "e1", Timed(), rate=0.01, patience=10.0)
    report = await replay.play({3: seller}, virtual_time=True)
    assert report.equal
    assert [round(time - times[0]) for time in times] == [0, 100, 200, 300]


async def test_cancelling_a_play_ends_its_agents_and_its_thread_first(log: EventLog) -> None:
    await recorded(log)
    here, begun, steps = asyncio.get_running_loop(), asyncio.Event(), list[str]()
    threads: list[threading.Thread] = []

    async def ticks(messager: Messager) -> None:
        threads.append(threading.current_thread())
        here.call_soon_threadsafe(begun.set)
        try:
            while True:
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(1)
            steps.append("agent ended")

    replay = LiveReplay(log, "e1", MemoryBroker())
    playing = asyncio.create_task(replay.play({3: ticks}, virtual_time=True))
    await begun.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert steps == ["agent ended"] and threads[0] is not threading.current_thread()
    assert replay.report.state.value == "stopped"
    with pytest.raises(StoreError, match="has ended"):
        replay.control.pause()


async def test_a_play_is_controlled_by_its_agents_and_by_nobody_outside_of_its_thread(log: EventLog) -> None:
    await recorded(log)
    here, begun = asyncio.get_running_loop(), asyncio.Event()
    allowed = threading.Event()
    counts: list[int] = []
    replay = LiveReplay(log, "e1", MemoryBroker())

    async def in_control(messager: Messager) -> None:
        await messager.subscribe_and_start_listening([messager.get_subtopic_channel(3, "*")])
        counts.append(await replay.control.step())
        here.call_soon_threadsafe(begun.set)
        await asyncio.to_thread(allowed.wait, 20)
        selling = asyncio.create_task(seller(messager))
        counts.append(await replay.control.step(2))
        replay.control.resume()
        await selling

    playing = asyncio.create_task(replay.play({3: in_control}, virtual_time=True))
    await begun.wait()
    control = replay.control
    for verb in (control.pause, control.resume, lambda: control.set_speed(2)):
        with pytest.raises(StoreError, match="let a live agent control it"):
            verb()
    for waiting in (control.step(), control.next(agent=7), control.seek(0)):
        with pytest.raises(StoreError, match="let a live agent control it"):
            await waiting
    assert control.status()["paused"]
    allowed.set()
    report = await playing
    assert counts == [1, 2] and report.equal
