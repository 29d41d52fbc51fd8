"""Nothing is published before those are subscribed who received it in the recording."""

from __future__ import annotations

import asyncio

import pytest

from messager import MemoryBroker, Messager, channels
from messager_store.errors import StoreError
from messager_store.lockstep import virtual_time
from messager_store.lockstep.cast import make_cast
from messager_store.lockstep.presence import Presence
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.schedule import key
from messager_store.lockstep.to_the_end import ToTheEnd
from tests.support.scenes import MEMORY, Scene, fetched, played


def scene() -> Scene:
    """Agents 1 and 2 speak to 3, which answers when it has heard both."""
    made = Scene()
    made.subscribe(3, "c")
    made.say(1, "c", "first")
    made.say(2, "c", "second")
    made.fetch(3)
    made.say(3, "d", "both")
    return made


async def late(messager: Messager) -> None:
    await asyncio.sleep(3)
    await messager.subscribe_and_start_listening(["c"])
    heard: list[str] = []
    while len(heard) < 2:
        heard += await fetched(messager)
    await messager.send_message("d", "both", 3)


async def slow(messager: Messager) -> None:
    await asyncio.sleep(5)
    await messager.send_message("c", "first", 1)


async def quick(messager: Messager) -> None:
    await messager.send_message("c", "second", 2)


def test_messages_for_a_messager_that_starts_late_wait_for_it() -> None:
    result = played(scene(), {1: slow, 2: quick, 3: late})
    assert result.report.equal and result.report.pace == "lockstep"
    assert result.seconds < 10, "nothing was given up"


def test_recorded_messages_wait_for_a_later_subscription_of_a_live_messager_too() -> None:
    async def in_two_steps(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["elsewhere"])
        await late(messager)

    result = played(scene(), {3: in_two_steps})
    assert result.report.equal and result.report.pace == "lockstep"
    assert result.seconds < 10, "nothing was given up"


def test_a_live_messager_that_never_subscribes_is_waited_for_once() -> None:
    made = Scene()
    made.subscribe(3, "c")
    for number in range(50):
        made.say(1, "c", number)
    made.fetch(3)
    made.say(3, "d", "all")

    async def absent(messager: Messager) -> None:
        await asyncio.sleep(1000)

    result = played(made, {3: absent})
    assert result.released == list(range(50))
    assert result.counts() == {"expected": 1, "missing": 1}
    assert result.seconds < 3 * 10


def test_all_that_a_message_waits_for_are_given_up_together() -> None:
    made = Scene()
    for who in (3, 4, 5, 6):
        made.subscribe(who, "c")
    made.say(1, "c", "hello")
    for who in (3, 4, 5, 6):
        made.fetch(who)
        made.say(who, "d", who)

    async def absent(messager: Messager) -> None:
        await asyncio.sleep(1000)

    at: list[float] = []

    async def hello(messager: Messager) -> None:
        await messager.send_message("c", "hello", 1)
        at.append(asyncio.get_running_loop().time())

    result = played(made, {1: hello, **dict.fromkeys((3, 4, 5, 6), absent)})
    assert result.said(1) == ["hello"]
    assert at == [10.0]


def test_nobody_is_waited_for_after_the_end() -> None:
    """A message whose recipient never came is published when the replay ends, and so are later ones."""
    made = Scene()
    made.subscribe(3, "c")
    made.subscribe(4, "d")
    made.say(1, "c", "first")
    made.say(1, "d", "second")

    async def main() -> None:
        lockstep = Lockstep(made.recording(), MEMORY, channels.encode, ToTheEnd(), patience=1000)
        async with Messager(MemoryBroker(), "e") as messager:
            lockstep.attach(messager, 1)
            sendings = asyncio.create_task(messager.send_message("c", "first", 1))
            await asyncio.sleep(1)
            assert not sendings.done()
            lockstep.finish()
            await sendings
            await messager.send_message("d", "second", 1)

    virtual_time.run(main())


async def test_a_messager_is_not_attached_to_a_replay_that_observes_its_part() -> None:
    lockstep = Lockstep(scene().recording(), MEMORY, channels.encode, ToTheEnd(), live=[3])
    broker = MemoryBroker()
    async with lockstep.observer(broker), Messager(broker, "e") as messager:
        with pytest.raises(StoreError, match="the replay has begun: attach Messagers before it runs"):
            lockstep.attach(messager, 3)


def test_a_messager_of_another_process_that_is_subscribed_no_more_is_waited_for_again() -> None:
    made = scene()
    part = make_cast(made.recording(), [3], channels.encode).parts[0]
    presence = Presence([part])
    message = key(made.events[1])
    presence.announced(part.key, lambda channel: True)
    assert presence.wait_for(message) is None
    presence.announced(part.key, lambda channel: False)
    waiting = presence.wait_for(message)
    assert asyncio.iscoroutine(waiting)
    waiting.close()
