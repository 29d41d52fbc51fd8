"""A replay never hangs: after `patience` seconds without progress, what was awaited is given up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from messager import Messager
from messager_store.errors import StoreError
from messager_store.lockstep import virtual_time
from messager_store.lockstep.patience import Patience
from messager_store.lockstep.policy import LockstepStopped
from messager_store.lockstep.run import LiveAgentFailed
from messager_store.lockstep.to_the_end import ToTheEnd
from tests.support.scenes import Scene, faithful, fetched, played


def interview(questions: int = 5) -> Scene:
    """Agent 1 asks q0, q1 ...; agent 2 answers a0, a1 ..., each before the next question."""
    made = Scene()
    made.subscribe(1, "a")
    made.subscribe(2, "q")
    for number in range(questions):
        made.say(1, "q", f"q{number}")
        made.fetch(2)
        made.say(2, "a", f"a{number}")
        made.fetch(1)
    return made


async def silent(messager: Messager) -> None:
    await messager.subscribe_and_start_listening(["q"])
    await asyncio.Event().wait()


def test_a_message_that_is_not_said_is_missing_and_the_rest_is_published() -> None:
    result = played(interview(), {2: silent})
    assert result.released == ["q0", "q1", "q2", "q3", "q4"]
    assert result.counts() == {"expected": 5, "missing": 5}
    assert result.report.timed_out and result.report.pace == "timed out"
    assert result.report.first is not None
    assert (result.report.first.kind, result.report.first.index) == ("missing", 0)


def test_patience_is_paid_three_times_for_a_sender_that_stays_silent_not_a_thousand_times() -> None:
    result = played(interview(1000), {2: silent}, patience=10)
    assert result.counts() == {"expected": 1000, "missing": 1000}
    assert result.seconds < 4 * 10


def test_a_silent_sender_that_speaks_again_is_awaited_again() -> None:
    async def pausing(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["q"])
        number = 0
        while True:
            for _ in await fetched(messager):
                if number != 1:
                    await messager.send_message("a", f"a{number}", 2)
                if number == 3:
                    await asyncio.sleep(7)
                number += 1

    result = played(interview(), {2: pausing}, patience=10)
    assert result.counts() == {"expected": 5, "matched": 4, "missing": 1}


def test_with_stop_the_replay_ends_with_what_was_awaited() -> None:
    with pytest.raises(LockstepStopped, match=r"^agent 2 did not say message 1 within 10 s\. Raise the patience"):
        played(interview(), {2: silent}, policy=ToTheEnd(on_timeout="stop"))


def test_what_an_agent_that_has_returned_does_not_say_is_missing_at_once() -> None:
    async def returns(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["q"])

    result = played(interview(), {2: returns})
    assert result.counts() == {"expected": 5, "missing": 5}
    assert result.seconds < 10 and not result.report.timed_out


def test_a_live_agent_that_raises_ends_the_wait_with_its_exception() -> None:
    async def raises(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["q"])
        await fetched(messager)
        raise LookupError("lost")

    with pytest.raises(LiveAgentFailed, match=r"^a live agent failed: LookupError: lost$") as failed:
        played(interview(), {2: raises})
    assert isinstance(failed.value.__cause__, LookupError)


def test_a_message_that_does_not_arrive_is_lost_and_the_agent_hears_the_rest() -> None:
    heard: list[Any] = []

    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["c"])
        heard.extend(await fetched(messager))
        await messager.send_message("out", "x", 3)

    made = Scene()
    made.subscribe(3, "c")
    made.say(1, "c", "a")
    made.say(2, "c", "b")
    made.fetch(3)
    made.say(3, "out", "x")
    result = played(made, {1: silent, 2: faithful(made, 2), 3: listens})
    assert heard == ["b"]
    assert result.counts() == {"expected": 3, "matched": 2, "missing": 1, "lost": 1}


def test_an_agent_that_leaves_a_message_out_says_the_following_ones() -> None:
    made = Scene()
    for content in ("a", "b", "c"):
        made.say(3, f"to {content}", content)

    async def forgetful(messager: Messager) -> None:
        await messager.send_message("to a", "a", 3)
        await messager.send_message("to c", "c", 3)

    result = played(made, {3: forgetful})
    assert result.said(3) == ["a", "c"]
    assert result.counts() == {"expected": 3, "matched": 2, "missing": 1}


@pytest.mark.parametrize("patience", [0, -1])
def test_patience_must_be_more_than_zero(patience: float) -> None:
    with pytest.raises(StoreError, match=r"is not a patience: give seconds, more than zero"):
        played(interview(), {2: silent}, patience=patience)


def test_progress_begins_the_time_again() -> None:
    expired: list[float] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        patience = Patience(10, lambda: expired.append(loop.time()))
        patience.start()
        for _ in range(5):
            await asyncio.sleep(8)
            patience.progress()
        await asyncio.sleep(11)
        patience.stop()

    virtual_time.run(run())
    assert expired == [50.0]
