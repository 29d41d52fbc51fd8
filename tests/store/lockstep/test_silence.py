"""A silent agent is waited for once, or, with more chances, again after each thing that it hears."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from messager import MemoryBroker, Messager, channels
from messager.brokers import kind_of
from messager_store.lockstep import virtual_time
from messager_store.lockstep.play import LiveAgents
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.report import CastReport, PartReport
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.log.event import Event

QUESTIONS = 6


def recording() -> Recording:
    """Return a recording in which agent 7 asks and agent 3 answers twice, on a channel for each question."""
    events: list[Event] = []

    def add(who: int, channel: str, content: str) -> None:
        at = len(events) + 1
        events.append(Event(at, 1, at, "sent", f"exps:e:{channel}", json.dumps(content).encode(), who, None))

    for number in range(QUESTIONS):
        add(7, "agents:3:question", f"question {number}")
        add(3, f"answers:{number}", f"answer {number}")
        add(3, f"answers:{number}", "and more")
    return Recording.of_events("e", events)


async def heard(answered: set[int], chances: int) -> tuple[CastReport, float]:
    """Return the report of an agent that answers these questions only, and the time that was waited for it."""

    async def answers(messager: Messager) -> None:
        while True:
            for message in await messager.fetch_messages():
                number = int(json.loads(message["data"])[-1])
                if number in answered:
                    await messager.send_message(f"exps:e:answers:{number}", f"answer {number}", 3)
                    await messager.send_message(f"exps:e:answers:{number}", "and more", 3)
            await asyncio.sleep(0.1)

    broker = MemoryBroker()
    lockstep = Lockstep(
        recording(), kind_of(broker.url), channels.encode, ToTheEnd(chances=chances), live=[3], patience=10
    )
    started = asyncio.get_running_loop().time()
    async with LiveAgents(lockstep, broker, "e", {3: answers}):
        async for batch in lockstep.releases():
            await broker.publish([(channels.encode(event.channel or ""), event.payload) for event in batch])
        waited = asyncio.get_running_loop().time() - started
    return lockstep.report, waited


@pytest.mark.parametrize("chances", [1, 3])
def test_an_agent_that_never_speaks_is_waited_for_as_often_as_it_has_chances(chances: int) -> None:
    report, waited = virtual_time.run(heard(set(), chances))
    assert (report.total("missing"), report.total("unexpected")) == (2 * QUESTIONS, 0)
    assert round(waited / 10) == chances


def test_with_chances_an_answer_that_is_left_out_is_all_that_is_missing() -> None:
    report, _ = virtual_time.run(heard({0, 2, 3, 5}, 3))
    assert (report.total("matched"), report.total("missing"), report.total("unexpected")) == (8, 4, 0)


def remote_recording(rounds: int) -> Recording:
    """Return a recording in which agents 7 and 8 ask agent 3 in each round, and it answers what it has heard."""
    events: list[Event] = []

    def add(messager: str, kind: str, channel: str, content: str, arrival: int, sender: int | None) -> None:
        at = len(events) + 1
        payload = json.dumps(content).encode()
        events.append(Event(at, 1, at, kind, channel, payload, sender, None, messager=messager, arrival=arrival))

    for number in range(rounds):
        for asker in (7, 8):
            add(f"m{asker}", "sent", "questions", f"{asker}.{number}", 0, asker)
            add("m3", "received", "questions", f"{asker}.{number}", 2 * number + asker - 6, None)
        add("m3", "sent", "answers", f"answer {number}", 2 * number + 2, 3)
    return Recording.of_events("e", events)


async def waited_alone(rounds: int, speaks: Callable[[int, int], str | None]) -> tuple[PartReport, list[str], float]:
    """Let agent 3 follow the schedule in a process of its own, while `speaks` gives the words of 7 and 8 per round.

    Return its report, what it heard, and the virtual time.
    """
    broker = MemoryBroker()
    lockstep = Lockstep(remote_recording(rounds), kind_of(broker.url), channels.encode, ToTheEnd(), patience=10)
    loop, heard = asyncio.get_running_loop(), list[str]()
    started = loop.time()
    async with Messager(broker, "e") as messager:
        gate = lockstep.attach(messager, 3)
        await messager.subscribe_and_start_listening(["questions"])
        for number in range(rounds):
            for asker in (7, 8):
                if (words := speaks(asker, number)) is not None:
                    await broker.publish([(b"questions", json.dumps(words).encode())])
            await asyncio.sleep(0.1)
            heard += [json.loads(message["data"]) for message in await messager.fetch_messages()]
            await messager.send_message("answers", f"answer {number}", 3)
    return gate.report, heard, loop.time() - started


def test_a_silent_agent_of_another_process_is_waited_for_once() -> None:
    report, heard, waited = virtual_time.run(waited_alone(20, lambda who, at: f"{who}.{at}" if who == 8 else None))
    assert (report.matched, report.missing, report.lost) == (20, 0, 20)
    assert heard == [f"8.{number}" for number in range(20)] and round(waited / 10) == 1


def test_a_silent_agent_of_another_process_does_not_hide_one_that_says_something_else() -> None:
    report, heard, waited = virtual_time.run(waited_alone(20, lambda who, at: f"other {at}" if who == 8 else None))
    assert heard == [f"other {number}" for number in range(20)]
    assert (report.withheld, report.lost) == (0, 20) and waited < 10 * 20


def test_an_agent_of_another_process_is_waited_for_again_once_it_has_spoken() -> None:
    def speaks(who: int, number: int) -> str | None:
        return None if who == 7 and number in (0, 1, 2, 10, 11) else f"{who}.{number}"

    report, _, waited = virtual_time.run(waited_alone(20, speaks))
    assert (report.matched, report.lost) == (20, 5) and round(waited / 10) == 2
