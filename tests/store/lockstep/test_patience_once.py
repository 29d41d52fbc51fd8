"""Patience is paid once for each fault, however many messages it concerns, and no agent can block the replay."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from messager import MemoryBroker, Messager, channels
from messager_store.lockstep import virtual_time
from messager_store.lockstep.report import CastReport
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from tests.support.scenes import MEMORY, Scene, fetched, played

ROUNDS = 20
PATIENCE = 10.0


def rounds() -> Scene:
    """Agent 1 asks, agent 2 asks, and agent 3 answers when it has heard both; several times."""
    made = Scene()
    made.subscribe(3, "c")
    for number in range(ROUNDS):
        made.say(1, "c", ["one", number])
        made.say(2, "c", ["two", number])
        made.fetch(3)
        made.say(3, "out", number)
    return made


async def answers(messager: Messager) -> None:
    """Play agent 3, which answers as soon as it has heard something of a round."""
    await messager.subscribe_and_start_listening(["c"])
    for number in range(ROUNDS):
        await fetched(messager)
        await messager.send_message("out", number, 3)


async def silent(messager: Messager) -> None:
    """Say nothing."""
    await asyncio.Event().wait()


async def asks(messager: Messager) -> None:
    """Play agent 1."""
    for number in range(ROUNDS):
        await messager.send_message("c", ["one", number], 1)


def test_an_agent_that_never_fetches_is_waited_for_once() -> None:
    async def deaf(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        for number in range(ROUNDS):
            await messager.send_message("out", number, 3)

    result = played(rounds(), {3: deaf}, patience=PATIENCE)
    assert result.counts() == {"expected": ROUNDS, "matched": ROUNDS, "early": ROUNDS} and result.report.timed_out
    assert result.seconds < 2 * PATIENCE


def test_an_agent_that_fetches_again_is_in_lockstep_again() -> None:
    heard: list[object] = []

    async def late(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        for number in range(ROUNDS):
            if number >= ROUNDS // 2:
                heard.append(await fetched(messager))
            await messager.send_message("out", number, 3)

    result = played(rounds(), {3: late}, patience=PATIENCE)
    assert result.counts() == {"expected": ROUNDS, "matched": ROUNDS, "early": ROUNDS // 2}
    assert heard[1:] == [[["one", number], ["two", number]] for number in range(ROUNDS // 2 + 1, ROUNDS)]
    assert result.seconds < 2 * PATIENCE


async def attached(
    agent: Callable[[Messager], Awaitable[None]], patience: float = PATIENCE
) -> tuple[CastReport, float]:
    """Play agent 3 with a Messager that nobody subscribes for it; return the report, and the time of the event loop."""
    loop = asyncio.get_running_loop()
    broker, began = MemoryBroker(), loop.time()
    lockstep = Lockstep(rounds().recording(), MEMORY, channels.encode, ToTheEnd(), live=[3], patience=patience)
    async with Messager(broker, "e") as messager:
        lockstep.attach(messager, [3])
        playing = asyncio.create_task(agent(messager))
        async for batch in lockstep.releases():
            await broker.publish([(channels.encode(event.channel or ""), event.payload) for event in batch])
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    return lockstep.report, loop.time() - began


def test_an_agent_that_fetches_no_more_is_waited_for_once_again() -> None:
    async def once(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        for number in range(ROUNDS):
            if number == ROUNDS // 2:
                await messager.fetch_messages()
            await messager.send_message("out", number, 3)

    result = played(rounds(), {3: once}, patience=PATIENCE)
    assert result.counts() == {"expected": ROUNDS, "matched": ROUNDS, "early": ROUNDS - 1}
    assert 2 * PATIENCE <= result.seconds < 3 * PATIENCE


def test_agents_of_one_process_without_the_recorded_messages_wait_once_for_a_silent_one() -> None:
    """As with MESSAGER_REPLAY: the recorded messages are published by another process, here the test."""

    async def play() -> tuple[CastReport, float]:
        broker, loop = MemoryBroker(), asyncio.get_running_loop()
        lockstep = Lockstep(rounds().recording(), MEMORY, channels.encode, ToTheEnd(), patience=PATIENCE)
        async with Messager(broker, "e") as second, Messager(broker, "e") as third:
            lockstep.attach(second, [2])
            lockstep.attach(third, [3])
            await second.subscribe_and_start_listening(["other"])
            await third.subscribe_and_start_listening(["c"])
            playing = asyncio.create_task(answers(third))
            for number in range(ROUNDS):
                await broker.publish([(b"c", json.dumps(["one", number]).encode())])
            await playing
            lockstep.finish()
        return lockstep.report, loop.time()

    report, seconds = virtual_time.run(play())
    [second, third] = [next(part for part in report.parts if part.agents == [who]) for who in (2, 3)]
    assert (second.missing, third.matched, third.missing, third.late) == (ROUNDS, ROUNDS, 0, 0)
    assert seconds < 3 * PATIENCE


def test_a_messager_that_never_subscribes_is_waited_for_once() -> None:
    async def unsubscribed(messager: Messager) -> None:
        for number in range(ROUNDS):
            await messager.fetch_messages()
            await messager.send_message("out", number, 3)

    report, seconds = virtual_time.run(attached(unsubscribed))
    assert (report.total("matched"), report.total("unsubscribed"), report.total("lost")) == (ROUNDS, 2 * ROUNDS, 0)
    assert seconds < 3 * PATIENCE


def test_a_messager_that_subscribes_after_it_was_given_up_is_in_lockstep_from_then_on() -> None:
    heard: list[object] = []

    async def late(messager: Messager) -> None:
        for number in range(ROUNDS):
            if number == 1:
                await messager.subscribe_and_start_listening(["c"])
            heard.append([json.loads(message["data"]) for message in await messager.fetch_messages()])
            await messager.send_message("out", number, 3)

    report, _ = virtual_time.run(attached(late))
    assert heard == [[], *([["one", number], ["two", number]] for number in range(1, ROUNDS))]
    assert (report.total("matched"), report.total("unsubscribed"), report.total("lost")) == (ROUNDS, 2, 0)


def test_those_that_hear_a_silent_agent_do_not_wait_for_each_of_its_messages() -> None:
    result = played(rounds(), {2: silent, 3: answers}, patience=PATIENCE)
    assert result.counts() == {"expected": 2 * ROUNDS, "matched": ROUNDS, "missing": ROUNDS, "lost": ROUNDS}
    assert result.heard(3) == [["one", number] for number in range(ROUNDS)]
    assert result.seconds < 3 * PATIENCE


def test_those_that_hear_an_agent_that_has_ended_do_not_wait_at_all() -> None:
    async def leaves(messager: Messager) -> None:
        await messager.send_message("c", ["two", 0], 2)

    result = played(rounds(), {1: asks, 2: leaves, 3: answers}, patience=PATIENCE)
    assert result.report.total("missing") == result.report.total("lost") == ROUNDS - 1
    assert result.seconds < PATIENCE


def test_an_agent_that_speaks_again_is_heard_again() -> None:
    async def pauses(messager: Messager) -> None:
        for number in range(ROUNDS):
            await asyncio.sleep({5: 1.2, 6: 0.8}.get(number, 0) * PATIENCE)
            await messager.send_message("c", ["one", number], 1)

    async def slow(messager: Messager) -> None:
        for number in range(ROUNDS):
            await asyncio.sleep(1.5 * PATIENCE if number == 3 else 0)
            await messager.send_message("c", ["two", number], 2)

    result = played(rounds(), {1: pauses, 2: slow, 3: answers}, patience=PATIENCE)
    assert result.report.total("missing") == 0 and result.report.total("late") == 3  # 3, 4 and 5
    heard = [number for who, number in result.heard(3) if who == "two"]
    assert heard == [*range(3), *range(6, ROUNDS), 3, 4, 5]  # what came too late is handed over at the end


def test_an_agent_that_fetches_all_the_time_and_never_waits_cannot_block_the_replay() -> None:
    """In real time, where a loop of fetches without a pause would never let anything else run."""

    async def spins(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        while True:
            await messager.fetch_messages()

    report, _ = asyncio.run(attached(spins, patience=0.1))
    assert (report.total("expected"), report.total("missing")) == (ROUNDS, ROUNDS)


def test_an_agent_that_fetches_all_the_time_after_its_last_message_cannot_block_the_replay() -> None:
    async def spins(messager: Messager) -> None:
        await answers(messager)
        while True:
            await messager.fetch_messages()

    report, _ = asyncio.run(attached(spins, patience=30))
    assert report.equal and not report.timed_out
