"""Control of a replay with live agents: recorded messages are stepped, and the recorded order stays."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from messager import MemoryBroker, Messager
from messager_store import EventLog, LiveReplay
from messager_store.errors import ReplayRefused, StoreError
from tests.store.replay.test_replay import Heard, Secretive
from tests.support import until
from tests.support.logs import filled, sent

QUESTIONS = 6


async def recorded(log: EventLog) -> None:
    """Agent 7 asks agent 3, which answers each question."""
    events = []
    for number in range(QUESTIONS):
        ts = (number + 1) * 1000
        events.append(sent(ts, json.dumps(f"question {number}").encode(), "exps:e1:agents:3:chat", from_id=7))
        events.append(sent(ts + 1, json.dumps(f"answer {number}").encode(), "exps:e1:agents:7:chat", from_id=3))
    await filled(log, events)


def seller(silent: tuple[int, ...] = ()) -> Any:
    async def answer(messager: Messager) -> None:
        await messager.subscribe_and_start_listening([messager.get_subtopic_channel(3, "*")])
        while True:
            for message in await messager.fetch_messages():
                number = int(json.loads(message["data"])[-1])
                if number not in silent:
                    await messager.send_message(messager.get_subtopic_channel(7, "chat"), f"answer {number}", 3, 7)
            await asyncio.sleep(0)

    return answer


@contextlib.asynccontextmanager
async def playing(
    log: EventLog, *, silent: tuple[int, ...] = (), **options: Any
) -> AsyncIterator[tuple[LiveReplay, Heard, asyncio.Task[Any]]]:
    """Play agent 3 live, from a pause on."""
    await recorded(log)
    broker = Heard()
    replay = LiveReplay(log, "e1", broker, **options)
    replay.control.pause()
    task = asyncio.create_task(replay.play({3: seller(silent)}))
    try:
        yield replay, broker, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def texts(broker: Heard) -> list[str]:
    return [json.loads(payload) for payload in broker.payloads()]


async def test_steps_count_recorded_messages_and_those_of_live_agents(log: EventLog) -> None:
    async with playing(log) as (replay, broker, task):
        assert await replay.control.step() == 1
        await until(lambda: replay.control.waiting)
        assert texts(broker) == ["question 0"] and replay.control.paused
        assert await replay.control.step() == 1
        await until(lambda: texts(broker) == ["question 0", "answer 0"])
        assert await replay.control.step(2) == 2
        await until(lambda: texts(broker)[2:] == ["question 1", "answer 1"])
        assert await replay.control.next(agent=7) == 1
        assert await replay.control.next(agent=3) == 1
        await until(lambda: texts(broker)[4:] == ["question 2", "answer 2"])
        assert replay.control.status()["published"] == 3 and replay.control.status()["state"] == "paused"
        replay.control.resume()
        report = await asyncio.wait_for(task, 60)
    expected = [text for number in range(QUESTIONS) for text in (f"question {number}", f"answer {number}")]
    assert texts(broker) == expected
    assert report.equal and report.total("matched") == QUESTIONS


async def test_a_pause_holds_everybody_if_all_are_live(log: EventLog) -> None:
    async def asking(messager: Messager) -> None:
        for number in range(QUESTIONS):
            await messager.send_message(messager.get_subtopic_channel(3, "chat"), f"question {number}", 7, 3)

    await recorded(log)
    broker = Heard()
    replay = LiveReplay(log, "e1", broker)
    replay.control.pause()
    task = asyncio.create_task(replay.play({3: seller(), 7: asking}))
    await until(lambda: replay.control.waiting)
    assert broker.published == []
    assert await replay.control.step(2) == 2
    await until(lambda: texts(broker) == ["question 0", "answer 0"])
    replay.control.resume()
    assert (await asyncio.wait_for(task, 60)).equal


async def test_while_a_replay_is_paused_no_message_is_given_up(log: EventLog) -> None:
    """The pause is 200 times as long as the patience, in virtual time."""
    await recorded(log)
    replay = LiveReplay(log, "e1", MemoryBroker(), patience=5)

    async def pauses(messager: Messager) -> None:
        replay.control.pause()
        await asyncio.sleep(1000)
        replay.control.resume()
        await seller()(messager)

    report = await replay.play({3: pauses}, virtual_time=True)
    assert report.equal and not report.timed_out


async def test_a_step_does_not_wait_for_ever_for_an_agent_that_is_silent(log: EventLog) -> None:
    async with playing(log, silent=(0, 3), patience=0.2) as (replay, _, task):
        assert await asyncio.wait_for(replay.control.step(5), 60) == 5
        assert replay.control.paused
        replay.control.resume()
        report = await asyncio.wait_for(task, 60)
    assert report.published == QUESTIONS and report.total("missing") > 0


async def test_seek_and_speed_are_refused_with_the_reason(log: EventLog) -> None:
    async with playing(log) as (replay, broker, _):
        with pytest.raises(StoreError, match="cannot seek: its live agents follow the recorded order"):
            await replay.control.seek(0)
        for speed in (2, "max"):
            with pytest.raises(StoreError, match="cannot change the speed: its live agents follow"):
                replay.control.set_speed(speed)
        assert await replay.control.step() == 1 and texts(broker)[0] == "question 0"


async def test_a_speed_for_live_agents_is_refused_from_the_beginning(log: EventLog) -> None:
    with pytest.raises(StoreError, match="live agents set the pace"):
        LiveReplay(log, "e1", Heard(), live=[3], speed=2)
    with pytest.raises(StoreError, match="live agents set the pace"):
        await LiveReplay(log, "e1", Heard(), speed=0.5).play({3: seller()})


async def test_without_flow_control_a_rate_is_required_and_no_speed_is_offered(log: EventLog) -> None:
    await recorded(log)
    for live in ([3], None):
        with pytest.raises(ReplayRefused, match=r"with --rate$"):
            await LiveReplay(log, "e1", Secretive(), live=live).play({3: seller()})
    report = await LiveReplay(log, "e1", Secretive(), live=[3], rate=1000.0).play({3: seller()})
    assert report.equal


async def test_the_status_has_the_live_agents_and_the_message_that_is_awaited(log: EventLog) -> None:
    async with playing(log, silent=(1,)) as (replay, _, _):
        assert await replay.control.step(2) == 2
        await until(lambda: live(replay)["parts"][0]["matched"] == 1)
        counts = {"expected": QUESTIONS, "matched": 1, "different": 0, "missing": 0, "unexpected": 0}
        assert live(replay)["parts"] == [{"label": "agent 3", "there": True, **counts}] and live(replay)["of"] == 1
        replay.control.resume()
        await until(lambda: bool(live(replay)["waiting_for"]))
        assert live(replay)["waiting_for"] == [
            {
                "part": "agent 3",
                "for": "message",
                "number": 2,
                "of": QUESTIONS,
                "channel": "exps:e1:agents:7:chat",
                "cursor": "2001:1:4",
            }
        ]


async def test_the_status_has_the_live_agents_that_are_not_there_yet(log: EventLog) -> None:
    await recorded(log)
    replay = LiveReplay(log, "e1", Heard(), live=[3])
    running = asyncio.create_task(replay.run())
    try:
        await until(lambda: replay.lockstep is not None and bool(live(replay)["waiting_for"]))
        assert live(replay)["waiting_for"] == [{"part": "agent 3", "for": "subscription"}]
        assert [part["there"] for part in live(replay)["parts"]] == [False]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def live(replay: LiveReplay) -> dict[str, Any]:
    found = replay.control.status()["live"]
    assert isinstance(found, dict)
    return found
