"""The gate of a live Messager: what it hands over, and when its agent may speak."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from messager import MemoryBroker, Messager, channels
from messager_store.errors import JudgeFailed
from messager_store.lockstep import virtual_time
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.matching.match import Match
from tests.support.scenes import MEMORY, Scene, fetched, played


class Refuse:
    """Interceptor that refuses everything."""

    async def forward(self, from_id: Any, to_id: Any, message: str) -> bool:
        return False


def says(who: int, *contents: Any, channel: str = "c", after: float = 0.0) -> Any:
    """Return an agent that says this, each after so many seconds."""

    async def agent(messager: Messager) -> None:
        for content in contents:
            await asyncio.sleep(after)
            await messager.send_message(channel, content, who)

    return agent


def conversation() -> Scene:
    """Agent 3 hears a and b before it says x, then c and d before it says y."""
    made = Scene()
    made.subscribe(3, "c")
    for first, second, said in (("a", "b", "x"), ("c", "d", "y")):
        made.say(1, "c", first)
        made.say(2, "c", second)
        made.fetch(3)
        made.say(3, "out", said)
    return made


# What is handed over


def test_a_fetch_returns_exactly_what_was_heard_before_the_next_saying_however_early_the_rest_arrives() -> None:
    fetches: list[Any] = []

    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        await asyncio.sleep(5)
        for said in "xy":
            fetches.append(await fetched(messager))
            fetches.append([message["data"] for message in await messager.fetch_messages()])
            await asyncio.sleep(5)
            await messager.send_message("out", said, 3)

    result = played(conversation(), {1: says(1, "a", "c"), 2: says(2, "b", "d"), 3: listens})
    assert fetches == [["a", "b"], [], ["c", "d"], []]
    assert result.report.equal and result.report.pace == "lockstep"


def test_a_fetch_returns_messages_in_the_recorded_order_whatever_the_order_of_their_arrival() -> None:
    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        for said in "xy":
            await fetched(messager)
            await messager.send_message("out", said, 3)

    result = played(conversation(), {1: says(1, "a", "c", after=2), 2: says(2, "b", "d"), 3: listens})
    assert result.heard(3) == ["a", "b", "c", "d"]
    assert result.report.equal


def test_a_fetch_waits_until_all_that_was_heard_has_arrived() -> None:
    at: list[float] = []

    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        assert await messager.fetch_messages() != []
        at.append(asyncio.get_running_loop().time())
        await messager.send_message("out", "x", 3)

    played(conversation(), {1: says(1, "a", "c"), 2: says(2, "b", "d", after=7), 3: listens})
    assert at == [7.0]


def test_what_was_fetched_in_parts_between_two_sayings_is_handed_over_at_once() -> None:
    made = Scene()
    made.subscribe(3, "c")
    for content in "abc":
        made.say(1, "c", content)
        made.fetch(3)
    made.say(3, "out", "x")
    fetches: list[Any] = []

    async def listens(messager: Messager) -> None:
        fetches.append(await fetched(messager))
        await messager.send_message("out", "x", 3)

    assert played(made, {3: listens}).report.equal
    assert fetches == [["a", "b", "c"]]


def test_what_the_recorded_messager_never_received_is_withheld_and_counted_and_delivered_at_the_end() -> None:
    made = Scene()
    made.subscribe(3, "c")
    made.say(1, "c", "a")
    made.fetch(3)
    made.say(3, "out", "x")
    heard: list[Any] = []

    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        await asyncio.sleep(5)
        heard.append(await fetched(messager))
        await messager.send_message("out", "x", 3)
        heard.append(await fetched(messager))

    result = played(made, {1: says(1, "a", "never", "received"), 3: listens})
    assert heard == [["a"], ["never", "received"]]
    assert result.counts() == {"expected": 2, "matched": 2, "unexpected": 2, "withheld": 2}


def test_after_the_last_saying_the_rest_is_handed_over_at_once_and_then_everything_when_it_arrives() -> None:
    made = conversation()
    for content in ("e", "f"):
        made.say(1, "c", content)
    heard: list[Any] = []

    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        for said in "xy":
            await fetched(messager)
            await messager.send_message("out", said, 3)
        while True:
            if messages := [json.loads(message["data"]) for message in await messager.fetch_messages()]:
                heard.append(messages)
            await asyncio.sleep(0.0001)

    one = says(1, "a", "c", "e", "f", "more", "and more", after=0.001)
    result = played(made, {1: one, 2: says(2, "b", "d"), 3: listens})
    assert heard == [["e", "f"], ["more"], ["and more"]]
    assert result.counts() == {"expected": 8, "matched": 8, "unexpected": 2}


@pytest.mark.parametrize("closed", [False, True])
def test_an_agent_that_speaks_until_it_is_told_to_stop_says_nothing_more(closed: bool) -> None:
    made = Scene()
    made.subscribe(3, "c")
    for number in range(3):
        made.say(3, "out", number)
    made.say(1, "c", "stop")
    if closed:
        made.fetch(3)
        made.close(3)

    async def ticks(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        number = 0
        while not await messager.fetch_messages():
            await messager.send_message("out", number, 3)
            number += 1

    result = played(made, {1: says(1, "stop", after=7), 3: ticks})
    assert result.said(3) == [0, 1, 2]
    assert result.report.equal and result.report.pace == "lockstep"


@pytest.mark.parametrize(("again", "heard"), [(False, ["a"]), (True, ["a", "b"])])
def test_an_agent_that_ends_after_some_time_does_not_hear_what_it_had_not_fetched_when_it_was_closed(
    again: bool, heard: list[str]
) -> None:
    made = Scene()
    made.subscribe(3, "c")
    made.say(3, "out", "x")
    made.say(1, "c", "a")
    made.fetch(3)
    made.say(1, "c", "b")
    made.close(3)
    if again:  # it was opened again: what it fetched at its end is not recorded
        made.subscribe(3, "c")
    found: list[Any] = []

    async def ticks(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        await messager.send_message("out", "x", 3)
        for _ in range(20):
            found.extend(json.loads(message["data"]) for message in await messager.fetch_messages())
            await asyncio.sleep(0.01)

    result = played(made, {1: says(1, "a", "b"), 3: ticks})
    assert found == heard
    assert result.report.equal and result.seconds < 10 and result.report.total("withheld") == 2 - len(heard)


def test_a_messager_that_never_spoke_hears_everything_when_it_arrives() -> None:
    made = Scene()
    made.subscribe(3, "c")
    made.say(1, "c", "a")
    made.say(1, "c", "b")
    heard: list[Any] = []

    async def run() -> None:
        broker = MemoryBroker()
        lockstep = Lockstep(made.recording(), MEMORY, channels.encode, ToTheEnd())
        async with Messager(broker, "e") as messager:
            part = next(part for part in lockstep.cast.parts if not part.acts)
            messager.set_gate(lockstep.take(messager.endpoint, [part]))
            await messager.subscribe_and_start_listening(["c"])
            for content in "ab":
                await broker.publish([(b"c", content.encode())])
                while not (messages := await messager.fetch_messages()):
                    await asyncio.sleep(0.1)
                heard.append([message["data"] for message in messages])

    virtual_time.run(run())
    assert heard == [[b"a"], [b"b"]]


def test_the_listener_of_a_subclass_of_messager_does_not_pass_the_gate() -> None:
    """AgentSociety's contract lets a subclass replace `_listen_for_messages`; it puts messages into the queue."""

    class Own(Messager):
        async def _listen_for_messages(self, pubsub: Any, channels: Any) -> None:
            await pubsub.psubscribe(*channels)
            while True:
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
                if message and message["type"] == "pmessage":
                    await self.message_queue.put(message)

    heard: list[Any] = []

    async def run() -> None:
        broker = MemoryBroker()
        lockstep = Lockstep(conversation().recording(), MEMORY, channels.encode, ToTheEnd(), live=[3])
        async with Own(broker, "e") as messager:
            lockstep.attach(messager)
            await messager.subscribe_and_start_listening(["c"])
            await broker.publish([(b"c", json.dumps(content).encode()) for content in "dcba"])
            for said in "xy":
                heard.append(await fetched(messager))
                await messager.send_message("out", said, 3)

    virtual_time.run(run())
    assert heard == [["a", "b"], ["c", "d"]]


# When an agent may speak


def test_a_message_is_not_sent_before_its_sender_has_fetched_what_it_had_heard() -> None:
    order: list[str] = []

    async def hasty(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])

        async def speak() -> None:
            await messager.send_message("out", "x", 3)
            order.append("sent")

        speaking = asyncio.create_task(speak())
        await asyncio.sleep(5)
        order.append("fetches")
        await fetched(messager)
        await speaking
        await fetched(messager)
        await messager.send_message("out", "y", 3)

    result = played(conversation(), {3: hasty})
    assert order == ["fetches", "sent"]
    assert result.report.equal and result.report.pace == "lockstep"


def test_concurrent_messages_of_a_messager_leave_in_the_recorded_order() -> None:
    made = Scene()
    made.subscribe(9, "*")
    for channel in "abc":
        made.say(3, channel, f"on {channel}")
    made.fetch(9)
    made.say(9, "out", "done")

    async def together(messager: Messager) -> None:
        async def late(channel: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            await messager.send_message(channel, f"on {channel}", 3)

        await asyncio.gather(late("c", 0), late("b", 1), late("a", 2))

    result = played(made, {3: together})
    assert result.said(3) == ["on a", "on b", "on c"]
    assert result.report.equal


def test_concurrent_messages_on_one_channel_are_a_set() -> None:
    made = Scene()
    for content in "abc":
        made.say(3, "c", content)

    async def reversed_(messager: Messager) -> None:
        await asyncio.gather(*(messager.send_message("c", content, 3) for content in "cba"))

    result = played(made, {3: reversed_})
    assert result.said(3) == ["a", "b", "c"]
    assert result.counts() == {"expected": 3, "matched": 3}


def test_messages_with_something_heard_between_them_are_no_set() -> None:
    made = Scene()
    made.subscribe(3, "c")
    made.say(3, "out", "before")
    made.say(1, "c", "a")
    made.fetch(3)
    made.say(3, "out", "after")

    async def swapped(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        await messager.send_message("out", "after", 3)
        await fetched(messager)
        await messager.send_message("out", "before", 3)

    result = played(made, {3: swapped})
    assert result.counts() == {"expected": 2, "matched": 1, "missing": 1, "unexpected": 1}


def test_the_turn_is_that_of_the_messager_not_of_the_society() -> None:
    """In the recording, agent 1 spoke before agent 2, who had not heard it."""
    made = Scene()
    made.say(1, "c", "first")
    made.say(2, "c", "second")
    result = played(made, {1: says(1, "first", after=5), 2: says(2, "second")})
    first, second = result.records[1][0], result.records[2][0]
    assert first.ts - second.ts == 5_000_000_000
    assert result.report.equal


def test_a_call_that_is_cancelled_while_it_waits_for_its_turn_may_be_made_again() -> None:
    async def hasty(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await messager.send_message("out", "x", 3)
        for said in "xy":
            await fetched(messager)
            await messager.send_message("out", said, 3)

    assert played(conversation(), {3: hasty}).report.equal


def test_a_judge_may_take_longer_than_patience() -> None:
    async def judge(recorded: object, said: object) -> bool:
        await asyncio.sleep(100)
        return True

    made = Scene()
    for number in range(2):
        made.say(3, "c", number)
    result = played(made, {3: says(3, "other", "another", channel="c")}, match=Match(judge=judge))
    assert result.counts() == {"expected": 2, "matched": 2} and not result.report.timed_out


def test_a_judge_that_raises_ends_the_replay_though_the_agent_handles_errors_of_its_call() -> None:
    async def judge(recorded: object, said: object) -> bool:
        raise ValueError("no model to ask")

    async def careful(messager: Messager) -> None:
        with contextlib.suppress(Exception):
            await messager.send_message("c", "other", 3)
        await asyncio.Event().wait()

    made = Scene()
    made.say(3, "c", "said")
    with pytest.raises(JudgeFailed, match="no model to ask"):
        played(made, {3: careful}, match=Match(judge=judge))


# Blocked and failed


def blocked_then_sent() -> Scene:
    made = Scene()
    made.say(3, "c", "refused", kind="blocked", to_id=4)
    made.say(3, "c", "sent", to_id=4)
    made.subscribe(4, "d")
    made.say(1, "d", "unrelated")
    return made


def test_a_message_that_was_blocked_is_compared() -> None:
    async def as_recorded(messager: Messager) -> None:
        messager.set_message_interceptor(Refuse())
        await messager.send_message("c", "refused", 3, 4)
        messager.set_message_interceptor(None)
        await messager.send_message("c", "sent", 3, 4)

    assert played(blocked_then_sent(), {3: as_recorded}).counts() == {"expected": 2, "matched": 2}


def test_a_message_that_was_blocked_is_missing_if_its_call_is_cancelled_before_it_is_decided() -> None:
    class Undecided(Refuse):
        async def forward(self, *_: object) -> bool:
            await asyncio.sleep(1000)
            return False

    async def cancels(messager: Messager) -> None:
        messager.set_message_interceptor(Undecided())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(messager.send_message("c", "refused", 3, 4), 1)
        messager.set_message_interceptor(None)
        await messager.send_message("c", "sent", 3)

    assert played(blocked_then_sent(), {3: cancels}).counts() == {"expected": 2, "matched": 1, "missing": 1}


def test_a_message_that_was_blocked_and_is_sent_now_is_a_difference() -> None:
    async def unrefused(messager: Messager) -> None:
        await messager.send_message("c", "refused", 3, 4)
        await messager.send_message("c", "sent", 3, 4)

    result = played(blocked_then_sent(), {3: unrefused})
    assert result.counts() == {"expected": 2, "matched": 1, "different": 1}


def test_a_message_that_was_blocked_is_not_awaited_and_missing_at_the_end() -> None:
    result = played(blocked_then_sent(), {3: says(3, "sent")})
    assert result.counts() == {"expected": 2, "matched": 1, "missing": 1}
    assert result.released == ["unrelated"] and result.seconds < 10


def test_a_message_that_failed_is_not_expected_but_compared_if_it_is_tried_again() -> None:
    made = Scene()
    made.say(3, "c", "failed", kind="failed", meta={"outcome": "not_sent"})
    made.say(3, "c", "sent")
    assert played(made, {3: says(3, "sent")}).counts() == {"expected": 1, "matched": 1}
    assert played(made, {3: says(3, "failed", "sent")}).counts() == {"expected": 2, "matched": 2}


def test_a_sending_that_was_retracted_is_not_expected() -> None:
    made = Scene()
    intent = made.say(3, "c", "intended")
    made.say(3, "c", "intended", kind="failed", cause=(1, intent.seq), meta={"outcome": "not_sent"})
    made.say(3, "c", "sent")
    assert played(made, {3: says(3, "sent")}).counts() == {"expected": 1, "matched": 1}


# Pairing of arrivals


def test_an_altered_message_takes_the_place_of_the_recorded_one_by_match() -> None:
    made = Scene()
    made.subscribe(3, "c")
    made.say(1, "c", {"id": 1, "text": "a"})
    made.say(2, "c", {"id": 2, "text": "b"})
    made.fetch(3)
    made.say(3, "out", "x")

    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        await fetched(messager)
        await messager.send_message("out", "x", 3)

    agents = {1: says(1, {"id": 11, "text": "a"}, after=2), 2: says(2, {"id": 12, "text": "b"}), 3: listens}
    result = played(made, agents, match=Match(ignore=["id"]))
    assert result.heard(3) == [{"id": 11, "text": "a"}, {"id": 12, "text": "b"}]
    assert result.report.equal and result.report.pace == "lockstep"


def test_altered_messages_that_match_nothing_are_paired_by_order() -> None:
    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        for said in "xy":
            await fetched(messager)
            await messager.send_message("out", said, 3)

    result = played(conversation(), {1: says(1, "other", "c"), 2: says(2, "b", "d"), 3: listens})
    assert result.heard(3) == ["other", "b", "c", "d"]
    assert result.counts() == {"expected": 6, "matched": 5, "different": 1}
    assert not result.report.timed_out


def test_the_same_payload_twice_is_heard_twice() -> None:
    made = Scene()
    made.subscribe(3, "c", "c*")
    made.say(1, "c", "a")
    made.say(1, "c", "a")
    made.fetch(3)
    made.say(3, "out", "x")

    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c", "c*"])
        await fetched(messager)
        await messager.send_message("out", "x", 3)

    result = played(made, {3: listens})
    assert result.heard(3) == ["a"] * 4
    assert result.report.equal
