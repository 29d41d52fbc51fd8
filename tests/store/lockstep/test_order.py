"""Order in which recorded messages are released, also if the clocks of recorders differed."""

from __future__ import annotations

from typing import Any

from messager import Messager, channels
from messager_store.lockstep.cast import make_cast, release_order
from messager_store.log.event import Event
from tests.support.scenes import Scene, fetched, played


def chain() -> tuple[Scene, dict[str, Event]]:
    """Agent 9 says r to agent 2, which says m to agent 1, which says e."""
    made = Scene()
    made.subscribe(1, "to-1")
    made.subscribe(2, "to-2")
    said = {"r": made.say(9, "to-2", "r")}
    made.fetch(2)
    said["m"] = made.say(2, "to-1", "m")
    made.fetch(1)
    said["e"] = made.say(1, "out", "e")
    return made, said


def answers(channel: str, content: str, who: int, subscribed: str) -> Any:
    async def agent(messager: Messager) -> None:
        await messager.subscribe_and_start_listening([subscribed])
        await fetched(messager)
        await messager.send_message(channel, content, who)

    return agent


def test_messages_are_released_in_replay_order_where_the_clocks_agreed() -> None:
    made, _ = chain()
    recording = made.recording()
    assert release_order(recording, make_cast(recording, [1, 2], channels.encode)) is recording.messages


def test_a_message_is_released_before_one_that_was_said_after_it_had_been_heard_though_its_clock_was_ahead() -> None:
    made, said = chain()
    for name in "rm":  # the host of agents 9 and 2 was ahead
        said[name].ts += 1_000_000
    recording = made.recording()
    assert [one.payload for one in recording.messages] == [b'"e"', b'"r"', b'"m"']
    order = release_order(recording, make_cast(recording, [1, 2], channels.encode))
    assert next(one.payload for one in order) == b'"r"'


def test_agents_play_a_recording_of_clocks_that_differed_without_losing_patience() -> None:
    made, said = chain()
    for name in "rm":
        said[name].ts += 1_000_000
    result = played(made, {1: answers("out", "e", 1, "to-1"), 2: answers("to-1", "m", 2, "to-2")})
    assert result.counts() == {"expected": 2, "matched": 2}
    assert result.report.pace == "lockstep" and result.released == ["r"]
