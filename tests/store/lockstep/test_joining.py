"""Live programs of other processes: who is waited for, and what is said of those that came and those that did not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from messager import MemoryBroker
from messager_store import EventLog, LiveReplay, NewEvent
from messager_store.errors import ReplayFailed
from messager_store.lockstep.announcing import Announcing
from messager_store.lockstep.presence import Presence
from messager_store.lockstep.report import Player
from messager_store.replay import ReplayReport
from tests.support.logs import filled
from tests.support.scenes import MEMORY, Scene


async def recorded(log: EventLog) -> None:
    """Agent 7 asks, and 3 and 4 answer."""
    made = Scene()
    for agent in (3, 4, 7):
        made.subscribe(agent, f"exps:e1:agents:{agent}:*")
    for agent in (3, 4):
        made.say(7, f"exps:e1:agents:{agent}:chat", "question")
        made.fetch(agent)
        made.say(agent, "exps:e1:agents:7:chat", "answer")
    await filled(log, [NewEvent(*(getattr(event, name) for name in NewEvent._fields)) for event in made.events])


@contextlib.asynccontextmanager
async def programs(broker: MemoryBroker, **subscribed: str) -> AsyncIterator[None]:
    """Announce live programs of the experiment w, by the part that they play."""

    def failed(error: Exception) -> None:
        raise error

    async with Announcing(broker, "w", Presence([]), MEMORY, failed=failed, note=print) as announcing:
        for part, pattern in subscribed.items():
            await announcing.announce(part.replace("_", "-"), [pattern])
        yield


async def replayed(log: EventLog, broker: MemoryBroker, *live: int) -> ReplayReport:
    replay = LiveReplay(log, "e1", broker, live=live, to_exp="w", patience=0.2)
    return await asyncio.wait_for(replay.run(), 60)


async def test_where_nobody_comes_the_experiment_is_named_in_which_a_program_was_waited_for(log: EventLog) -> None:
    await recorded(log)
    with pytest.raises(ReplayFailed, match=r"no live program of w came within 0\.2 s\. Start it with this exp_id"):
        await replayed(log, MemoryBroker(), 3)


async def test_programs_that_play_others_than_the_live_agents_are_named(log: EventLog) -> None:
    await recorded(log)
    broker = MemoryBroker()
    theirs = {"messager_of_3": "exps:w:agents:3:*", "messager_of_4": "exps:w:agents:4:*", "unknown": "*"}
    async with programs(broker, **theirs):
        with pytest.raises(ReplayFailed) as refused:
            await replayed(log, broker, 7)
    assert "no live program of w came for agent 7 within 0.2 s" in str(refused.value)
    assert "those that came play agent 3; agent 4. Name the agents that they play with --live" in str(refused.value)


async def test_a_program_that_plays_somebody_who_is_not_live_is_noted(log: EventLog) -> None:
    await recorded(log)
    broker = MemoryBroker()
    async with programs(broker, messager_of_3="exps:w:agents:3:*", messager_of_4="exps:w:agents:4:*"):
        report = await replayed(log, broker, 3)
    assert report.total("missing") == 1
    assert report.notes == ["live programs of w play agent 4, whose messages were published from the recording as well"]


async def test_a_program_that_is_not_subscribed_as_its_agent_was_is_noted(log: EventLog) -> None:
    await recorded(log)
    broker = MemoryBroker()
    async with programs(broker, messager_of_3="exps:other:agents:3:*", messager_of_4="exps:w:agents:4:*"):
        report = await replayed(log, broker, 3, 4)
    assert report.notes == ["agent 3 has not subscribed to exps:w:agents:3:chat, where the recorded one received"]


async def test_what_others_say_in_the_place_of_an_agent_that_has_no_live_program_is_unexpected(log: EventLog) -> None:
    """The wire cannot tell who has said it: only the announcement of a program can."""
    await recorded(log)
    broker = MemoryBroker()
    questions = broker.pubsub()
    await questions.psubscribe("exps:w:agents:*")

    async def play() -> None:
        for _ in range(4):
            message = await questions.get_message(timeout=100)
            if message is not None and message["data"] == b'"question"':
                await broker.publish([(b"exps:w:agents:7:chat", b'"answer"')])

    async with programs(broker, messager_of_3="exps:w:agents:3:*"):
        playing = asyncio.create_task(play())
        report = await replayed(log, broker, 3, 4)
    playing.cancel()
    assert not report.equal
    three, four = report.parts
    assert (three.played, three.matched, three.missing) == (True, 1, 0)
    assert (four.player, four.matched, four.missing, four.unexpected) == (Player.ABSENT, 0, 1, 1)
    assert report.notes == ["no live program plays agent 4: 1 message in its place came from others"]


async def test_a_listener_that_has_no_live_program_is_not_equal(log: EventLog) -> None:
    made = Scene()
    for agent in (3, 4):
        made.subscribe(agent, f"exps:e1:agents:{agent}:*")
    made.say(7, "exps:e1:agents:4:chat", "news")
    await filled(log, [NewEvent(*(getattr(event, name) for name in NewEvent._fields)) for event in made.events])
    broker = MemoryBroker()
    async with programs(broker, messager_of_3="exps:w:agents:3:*"):
        report = await replayed(log, broker, 3, 4)
    assert [(part.equal, part.player is Player.ABSENT) for part in report.parts] == [
        (True, False),
        (False, True),
    ]
