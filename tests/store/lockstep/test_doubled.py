"""What two recorders recorded of one Messager at the same time is played once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from messager import MemoryBroker, Messager
from messager_store import EventLog, LiveReplay, Recorder
from messager_store.db.codes import REDACTED
from messager_store.lockstep.recording import Recording
from messager_store.log.event import Event
from messager_store.recording.recorder import Durability
from tests.messager.test_messager import fetched
from tests.support.scenes import Scene


async def asker(messager: Messager) -> None:
    await messager.subscribe_and_start_listening(["answers"])
    for number in range(3):
        await messager.send_message("questions", {"n": number}, 1)
        await fetched(messager, 1)


async def answerer(messager: Messager) -> None:
    await messager.subscribe_and_start_listening(["questions"])
    for _ in range(3):
        await fetched(messager, 1)
        await messager.send_message("answers", {}, 2)


@pytest.mark.parametrize(
    ("first", "second"),
    [("buffered", "buffered"), ("strict", "buffered")],
)
async def test_a_run_with_two_recorders_of_each_messager_is_reproduced(
    log: EventLog, first: Durability, second: Durability
) -> None:
    broker = MemoryBroker()
    recorders = [Recorder(log, "exp-1", durability=durability) for durability in (first, second)]
    async with recorders[0], recorders[1], Messager(broker, "exp-1") as one, Messager(broker, "exp-1") as two:
        for messager in (one, two):
            for recorder in recorders:
                messager.add_log_hook(recorder)
        await asyncio.gather(asker(one), answerer(two))
    for agents in ({1: asker}, {2: answerer}, {1: asker, 2: answerer}):
        report = await LiveReplay(log, "exp-1", MemoryBroker(), patience=5).play(agents)
        assert report.equal and report.pace == "lockstep"
        assert [part.expected for part in report.parts] == [3] * len(agents)
        assert report.published == 3 * (2 - len(agents))


def scene() -> list[Event]:
    """Events in which agent 1 says the same twice without having heard anything between."""
    made = Scene()
    made.subscribe(3, "c")
    made.say(1, "c", "tick")
    made.say(1, "c", "tick")
    return made.events


def by_second(events: list[Event], **changes: object) -> list[Event]:
    return [replace(entry, recorder=2, **changes) for entry in events]  # type: ignore[arg-type]


def test_each_event_is_kept_once_also_if_one_recorder_began_later() -> None:
    events = scene()
    recording = Recording.of_events("e", [*events, *by_second(events[2:])])
    assert recording.events == events
    assert [entry.kind for entry in recording.messages] == ["sent", "sent"]


def test_recorders_that_follow_each_other_are_both_played() -> None:
    first, rest = scene()[:3], scene()[3:]
    recording = Recording.of_events("e", [*first, *by_second(rest)])
    assert len(recording.events) == 5 and len(recording.messages) == 2


def test_a_message_that_is_redacted_at_one_recorder_is_not_published_from_the_other() -> None:
    events = scene()
    redacted = [replace(entry, flags=REDACTED) if entry.kind == "sent" else entry for entry in events]
    assert Recording.of_events("e", [*redacted, *by_second(events)]).messages == []
