"""Live programs without a Messager of ours: what they say is observed on the wire, and not gated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from messager import MemoryBroker, channels
from messager_store import Match
from messager_store.errors import JudgeFailed, ReplayFailed
from messager_store.lockstep import virtual_time
from messager_store.lockstep.report import CastReport, Player
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from tests.support.scenes import MEMORY, Scene

Program = Callable[[MemoryBroker], Awaitable[None]]


def interview(*, on: str = "a") -> Scene:
    """Agent 1 asks, and agent 2 answers, three times."""
    made = Scene()
    made.subscribe(2, "q")
    for number in range(3):
        made.say(1, "q", f"q{number}")
        made.fetch(2)
        made.say(2, on, f"a{number}")
    return made


def answering(*answers: str | None, on: str = "a", after: float = 0.0, first_after: float = 0.0) -> Program:
    """Return a program that gives these answers; None is no answer."""

    async def program(broker: MemoryBroker) -> None:
        pubsub = broker.pubsub()
        await pubsub.psubscribe("q")
        for number, answer in enumerate(answers):
            while (await pubsub.get_message(timeout=None) or {})["type"] != "pmessage":
                pass
            await asyncio.sleep(after if number else first_after or after)
            if answer is not None:
                await broker.publish([(on.encode(), json.dumps(answer).encode())])
        await asyncio.Event().wait()

    return program


def observed(scene: Scene, program: Program, *, live: Any = 2, **options: Any) -> tuple[CastReport, list[str], float]:
    """Return the report, the channels on which anything was published, and the virtual time that passed."""

    async def run() -> tuple[CastReport, list[str], float]:
        broker = MemoryBroker()
        lockstep = Lockstep(
            scene.recording(), MEMORY, channels.encode, ToTheEnd(), live=live, **{"patience": 10.0, **options}
        )
        pubsub = broker.pubsub()
        await pubsub.psubscribe("*")
        lockstep.unannounced(lockstep.cast.parts)
        async with lockstep.observer(broker) as observer:
            task = asyncio.create_task(program(broker))
            await asyncio.sleep(0.01)
            async for batch in lockstep.releases():
                wire = [(channels.encode(event.channel or ""), event.payload) for event in batch]
                observer.published(wire)
                await broker.publish(wire)
        task.cancel()
        heard = []
        while message := await pubsub.get_message():
            if message["type"] == "pmessage":
                heard.append(json.loads(message["data"]))
        return lockstep.report, heard, asyncio.get_running_loop().time()

    return virtual_time.run(run())


def test_the_next_message_is_published_after_the_answer_was_seen_and_the_report_says_that_it_was_only_observed() -> (
    None
):
    report, heard, _ = observed(interview(), answering("a0", "a1", "a2", after=3))
    assert heard == ["q0", "a0", "q1", "a1", "q2", "a2"]
    assert report.equal and (report.total("expected"), report.total("matched")) == (3, 3)
    [part] = report.parts
    assert part.player is Player.OBSERVED
    assert report.to_dict()["pace"] == report.pace != "lockstep"


def test_an_altered_answer_is_the_only_divergence() -> None:
    report, _, _ = observed(interview(), answering("a0", "other", "a2"))
    assert (report.total("matched"), report.total("different"), report.total("missing")) == (2, 1, 0)
    assert report.first is not None
    assert (report.first.said, report.first.index, report.first.path) == (b'"other"', 1, "$")


def test_a_missing_answer_is_given_up_and_the_replay_goes_on() -> None:
    report, heard, seconds = observed(interview(), answering("a0", None, "a2"))
    assert heard == ["q0", "a0", "q1", "q2", "a2"]
    assert (report.total("matched"), report.total("missing")) == (2, 1)
    assert report.timed_out and seconds < 3 * 10 + 10


def test_a_late_answer_is_not_missing_but_late() -> None:
    report, _, _ = observed(interview(), answering("a0", "a1", "a2", first_after=12))
    assert (report.total("matched"), report.total("missing"), report.total("late")) == (3, 0, 1)
    assert not report.equal and report.timed_out
    assert report.first is not None and (report.first.kind, report.first.said) == ("late", b'"a0"')


def test_one_more_answer_half_a_second_after_the_last_one_is_unexpected() -> None:
    async def once_more(broker: MemoryBroker) -> None:
        for answer, pause in (("a0", 0.0), ("a1", 0.0), ("a2", 0.5), ("a3", 1000)):
            await broker.publish([(b"a", json.dumps(answer).encode())])
            await asyncio.sleep(pause)

    report, _, _ = observed(interview(), once_more)
    assert (report.total("matched"), report.total("unexpected"), report.equal) == (3, 1, False)


def test_what_the_replay_publishes_itself_on_a_channel_of_a_live_program_is_not_taken_for_its_answer() -> None:
    """Agents 1 and 2 speak on one channel, and say the same."""
    made = Scene()
    made.subscribe(2, "q")
    for content in ("x", "y"):
        made.say(1, "q", content)
        made.fetch(2)
        made.say(2, "q", content)

    async def program(broker: MemoryBroker) -> None:
        for content in (b'"x"', b'"y"'):
            await asyncio.sleep(3)
            await broker.publish([(b"q", content)])
        await asyncio.Event().wait()

    report, heard, seconds = observed(made, program)
    assert heard == ["x", "x", "y", "y"]
    assert report.equal and report.total("matched") == 2 and seconds >= 6


def test_the_report_says_when_a_lost_connection_hid_what_was_said() -> None:
    async def behind(broker: MemoryBroker) -> None:
        await broker.publish([(b"a", b'"a0"')])
        await asyncio.sleep(1)
        broker.interrupt()
        broker.resume()
        await asyncio.sleep(1000)

    report, _, _ = observed(interview(), behind)
    assert [note for note in report.notes if "live programs were not observed for" in note]


def test_a_judge_that_raises_ends_the_replay_with_its_error() -> None:
    async def judge(recorded: object, said: object) -> bool:
        raise ValueError("no model to ask")

    with pytest.raises(ReplayFailed, match="the judge of the Match raised ValueError: no model to ask") as raised:
        observed(interview(), answering("a0", "other", "a2"), match=Match(judge=judge))
    assert isinstance(raised.value.__cause__, JudgeFailed)


def test_a_channel_with_characters_of_patterns_is_observed_literally() -> None:
    report, _, _ = observed(interview(on="a[1]*"), answering("a0", "a1", "a2", on="a[1]*"))
    assert report.equal and report.total("matched") == 3


def test_programs_are_observed_if_the_recording_has_no_schedule() -> None:
    made = Scene(schedule=False)
    for number in range(3):
        made.say(1, "q", f"q{number}")
        made.say(2, "a", f"a{number}")
    report, heard, _ = observed(made, answering("a0", "a1", "a2"))
    assert report.equal and heard == ["q0", "a0", "q1", "a1", "q2", "a2"]


def test_a_message_that_differs_stands_for_one_that_is_awaited_not_for_one_that_was_given_up() -> None:
    """Two agents speak on one channel, and the first one is silent."""
    made = Scene()
    made.say(1, "a", "one")
    made.say(2, "a", "two")

    async def program(broker: MemoryBroker) -> None:
        await asyncio.sleep(15)
        await broker.publish([(b"a", b'"other"')])
        await asyncio.Event().wait()

    report, _, _ = observed(made, program, live=[1, 2])
    assert [(part.label, part.missing, part.different) for part in report.parts] == [
        ("agent 1", 1, 0),
        ("agent 2", 0, 1),
    ]
