"""What one divergence does to the messages around it: nothing else is blamed for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from messager import Messager
from messager_store.lockstep.run import LiveAgentFailed
from messager_store.matching.match import Match
from tests.support.scenes import Scene, fetched, played


def interview(questions: int = 6) -> Scene:
    """Agent 1 asks q0, q1 ...; agent 2 answers a0, a1 ..., each before the next question."""
    made = Scene()
    made.subscribe(2, "q")
    for number in range(questions):
        made.say(1, "q", f"q{number}")
        made.fetch(2)
        made.say(2, "a", f"a{number}")
    return made


def answering(change: Any = lambda answer: answer) -> Any:
    async def agent(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["q"])
        while True:
            for message in await messager.fetch_messages():
                answer = change("a" + json.loads(message["data"])[1:])
                if answer is not None:
                    await messager.send_message("a", answer, 2)
            await asyncio.sleep(0.01)

    return agent


@pytest.mark.parametrize("left_out", [0, 5])
def test_an_answer_that_is_left_out_is_all_that_is_missing(left_out: int) -> None:
    result = played(interview(), {2: answering(lambda answer: None if answer == f"a{left_out}" else answer)})
    assert result.counts() == {"expected": 6, "matched": 5, "missing": 1}
    assert result.report.first is not None and result.report.first.index == left_out


@pytest.mark.parametrize("altered", [0, 5])
def test_an_answer_that_is_altered_is_the_only_divergence(altered: int) -> None:
    result = played(interview(), {2: answering(lambda answer: "other" if answer == f"a{altered}" else answer)})
    assert result.counts() == {"expected": 6, "matched": 5, "different": 1}


@pytest.mark.parametrize("behind", [-1, 0, 5])
def test_an_answer_that_is_added_is_all_that_is_unexpected(behind: int) -> None:
    async def agent(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["q"])
        if behind == -1:
            await messager.send_message("a", "more", 2)
        while True:
            for message in await messager.fetch_messages():
                answer = "a" + json.loads(message["data"])[1:]
                await messager.send_message("a", answer, 2)
                if answer == f"a{behind}":
                    await messager.send_message("a", "more", 2)
            await asyncio.sleep(0.01)

    result = played(interview(), {2: agent})
    assert result.counts() == {"expected": 6, "matched": 6, "unexpected": 1}
    assert [(one.kind, one.said) for one in result.report.divergences] == [("unexpected", b'"more"')]


def test_a_foreign_message_does_not_take_the_place_of_one_that_the_recording_publishes() -> None:
    async def agent(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["q"])
        await messager.broker.publish([(b"q", b'"stray"')])
        await answering()(messager)

    result = played(interview(2), {2: agent})
    assert result.said(2)[:2] == ["a0", "a1"] and result.heard(2) == ["q0", "q1", "stray"]
    assert result.counts() | {"unexpected": 0} == {"expected": 2, "matched": 2, "withheld": 1, "unexpected": 0}


def test_a_message_that_takes_longer_than_the_patience_is_late_and_counted_once() -> None:
    class Slow:
        async def forward(self, *given: Any) -> bool:
            await asyncio.sleep(25)
            return True

    made = Scene()
    made.say(2, "a", "x", to_id=1)

    async def agent(messager: Messager) -> None:
        messager.set_message_interceptor(Slow())
        await messager.send_message("a", "x", 2, 1)

    result = played(made, {2: agent})
    counts = result.counts()
    assert counts["expected"] == counts.get("matched", 0) + counts.get("missing", 0) + counts.get("different", 0)
    assert result.report.pace == "timed out"


def test_a_message_whose_call_was_cancelled_before_it_was_sent_is_missing() -> None:
    class Slow:
        async def forward(self, from_id: Any, to_id: Any, message: str) -> bool:
            await asyncio.sleep(5 if "y" in message else 0)
            return True

    made = Scene()
    for content in "xyz":
        made.say(2, "a", content, to_id=1)

    async def agent(messager: Messager) -> None:
        messager.set_message_interceptor(Slow())
        for content in "xyz":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1 if content == "y" else None):
                    await messager.send_message("a", content, 2, 1)

    result = played(made, {2: agent})
    assert result.said(2) == ["x", "z"] and result.counts() == {"expected": 3, "matched": 2, "missing": 1}


def test_a_call_that_waited_for_its_interceptor_is_not_taken_for_a_later_one_that_was_sent_before_it() -> None:
    made = Scene()
    made.subscribe(2, "q")
    made.say(1, "q", "q0")
    made.fetch(2)
    made.say(2, "a", "quick", to_id=1)
    made.say(2, "a", "slow", to_id=1).arrival = 0  # called before anything was fetched

    async def agent(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["q"])
        slow = asyncio.create_task(messager.send_message("a", "slow", 2, 1))
        await asyncio.sleep(0)
        while not await messager.fetch_messages():
            await asyncio.sleep(0.01)
        await messager.send_message("a", "quick", 2, 1)
        await slow

    result = played(made, {2: agent})
    assert result.counts() == {"expected": 2, "matched": 2} and result.said(2) == ["quick", "slow"]


def test_an_agent_that_crashes_before_it_has_subscribed_ends_the_wait_at_once() -> None:
    async def agent(messager: Messager) -> None:
        raise RuntimeError("boom")

    with pytest.raises(LiveAgentFailed, match="boom"):
        played(interview(), {2: agent}, patience=1e9)


def test_an_altered_message_of_a_live_agent_reaches_another_one_at_once() -> None:
    async def asks(messager: Messager) -> None:
        for question in ("q0", "other"):
            await messager.send_message("q", question, 1)

    result = played(interview(2), {1: asks, 2: answering(lambda answer: "a1" if answer == "ather" else answer)})
    assert result.heard(2) == ["q0", "other"]
    assert result.counts() == {"expected": 4, "matched": 3, "different": 1}
    assert result.report.pace == "lockstep" and result.seconds < 10


def test_a_judged_message_of_a_live_agent_reaches_another_one_at_once() -> None:
    async def accepts(expected: Any, actual: Any) -> bool:
        return True

    async def asks(messager: Messager) -> None:
        await messager.send_message("q", "other", 1)

    result = played(interview(1), {1: asks, 2: answering(lambda answer: "a0")}, match=Match(judge=accepts))
    assert result.heard(2) == ["other"]
    assert result.report.equal and result.report.pace == "lockstep" and result.seconds < 10


@pytest.mark.parametrize("tries", [True, False])
def test_a_message_that_was_blocked_may_be_left_out_without_stopping_what_follows(tries: bool) -> None:
    class Refuses:
        async def forward(self, from_id: Any, to_id: Any, message: str) -> bool:
            return "secret" not in message

    made = Scene()
    made.subscribe(2, "q")
    for number in range(2):
        made.say(1, "q", f"q{number}")
        made.fetch(2)
        made.say(2, "a", f"secret{number}", kind="blocked", to_id=1)
        made.say(2, "a", f"a{number}", to_id=1)

    async def agent(messager: Messager) -> None:
        messager.set_message_interceptor(Refuses())
        await messager.subscribe_and_start_listening(["q"])
        while True:
            for message in await messager.fetch_messages():
                number = json.loads(message["data"])[1:]
                if tries:
                    await messager.send_message("a", f"secret{number}", 2, 1)
                await messager.send_message("a", f"a{number}", 2, 1)
            await asyncio.sleep(0.01)

    result = played(made, {2: agent})
    assert result.counts() == ({"expected": 4, "matched": 4} if tries else {"expected": 4, "matched": 2, "missing": 2})
    assert result.report.pace == "lockstep", "nobody waited for the one that was left out"


def test_answers_in_another_order_are_late_and_no_longer_equal() -> None:
    """The agent hears everything before it answers, which takes the patience of the replay."""

    async def agent(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["q"])
        heard: list[str] = []
        while len(heard) < 3:
            heard += [json.loads(message["data"]) for message in await messager.fetch_messages()]
            await asyncio.sleep(0.01)
        for question in reversed(heard):
            await messager.send_message("a", "a" + question[1:], 2)

    result = played(interview(3), {2: agent})
    assert result.counts()["late"] == 2 and not result.report.equal
    assert result.report.first is not None and result.report.first.kind == "late"


def two_answers() -> Scene:
    made = Scene()
    made.subscribe(2, "q")
    made.say(1, "q", "q0")
    made.fetch(2)
    made.say(2, "a", "first")
    made.say(2, "a", "second")
    return made


@pytest.mark.parametrize("together", [True, False])
def test_two_answers_change_places_only_if_they_are_sent_together(together: bool) -> None:
    async def agent(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["q"])
        await fetched(messager)
        sendings = [messager.send_message("a", content, 2) for content in ("second", "first")]
        if together:
            await asyncio.gather(*sendings)
        else:
            for sending in sendings:
                await sending

    result = played(two_answers(), {2: agent})
    assert result.counts() == {"expected": 2, "matched": 2, **({} if together else {"late": 1})}
    assert result.report.equal == together


def test_a_message_that_was_not_recorded_comes_before_those_that_it_made_late() -> None:
    """It is taken for the next one of its channel, which has to wait for one of another channel."""
    made = Scene()
    for channel, content in (("a", "one"), ("b", "two"), ("a", "three")):
        made.say(2, channel, content)

    async def agent(messager: Messager) -> None:
        for channel, content in (("a", "one"), ("a", "more"), ("b", "two"), ("a", "three")):
            await messager.send_message(channel, content, 2)

    result = played(made, {2: agent})
    assert result.counts() == {"expected": 3, "matched": 3, "unexpected": 1, "late": 1}
    assert result.report.first is not None
    assert (result.report.first.kind, result.report.first.said) == ("unexpected", b'"more"')


LATER_S = [0.02, 8.0]


@pytest.mark.parametrize("later", LATER_S)
def test_a_message_long_after_the_last_recorded_one_is_unexpected(later: float) -> None:
    async def agent(messager: Messager) -> None:
        await answer_once(messager)
        await asyncio.sleep(later)
        await messager.send_message("a", "more", 2)

    result = played(interview(1), {2: agent})
    assert result.counts() == {"expected": 1, "matched": 1, "unexpected": 1}


def test_after_a_time_out_the_end_waits_for_a_second_more() -> None:
    made = Scene()
    made.say(1, "x", "never")
    made.say(2, "a", "a0")

    async def silent(messager: Messager) -> None:
        await asyncio.sleep(1000)

    async def agent(messager: Messager) -> None:
        await messager.send_message("a", "a0", 2)
        await asyncio.sleep(10.5)  # agent 1 is given up after 10
        await messager.send_message("a", "more", 2)

    assert played(made, {1: silent, 2: agent}).report.total("unexpected") == 1


@pytest.mark.parametrize("later", LATER_S)
def test_an_agent_that_fails_long_after_its_last_message_ends_the_replay(later: float) -> None:
    async def agent(messager: Messager) -> None:
        await answer_once(messager)
        await asyncio.sleep(later)
        raise ValueError("too late")

    with pytest.raises(LiveAgentFailed, match="too late"):
        played(interview(1), {2: agent})


@pytest.mark.parametrize("poll", [0.0, 2.0])
def test_an_agent_hears_what_it_heard_after_its_last_message_before_the_replay_ends(poll: float) -> None:
    made = interview(1)
    made.say(1, "q", "stop")
    made.fetch(2)
    stopped = []

    async def agent(messager: Messager) -> None:
        await answer_once(messager)
        while not stopped:
            await asyncio.sleep(poll)
            stopped.extend(json.loads(message["data"]) for message in await messager.fetch_messages())
        await messager.send_message("a", "goodbye", 2)

    result = played(made, {2: agent})
    assert stopped == ["stop"]
    assert result.counts() == {"expected": 1, "matched": 1, "unexpected": 1}


async def answer_once(messager: Messager) -> None:
    await messager.subscribe_and_start_listening(["q"])
    await fetched(messager)
    await messager.send_message("a", "a0", 2)
