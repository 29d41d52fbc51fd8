"""Live programs without a Messager are observed on the wire, where messages name their sender only in the payload."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from messager import MemoryBroker, channels
from messager.brokers import kind_of
from messager_store.lockstep import virtual_time
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.report import PartReport
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.log.event import Event

ROUNDS = 6


def recording() -> Recording:
    """Return a recording in which agent 1 asks, and 2 and 3 answer on one channel."""
    events: list[Event] = []

    def add(who: int, channel: str, payload: Any) -> None:
        at = len(events) + 1
        events.append(Event(at, 1, at, "sent", channel, json.dumps(payload).encode(), who, None))

    for number in range(ROUNDS):
        add(1, "questions", number)
        add(2, "answers", {"from": 2, "content": f"answer {number}"})
        add(3, "answers", {"from": 3, "content": f"answer {number}"})
    return Recording.of_events("e", events)


async def observed(said: list[Any]) -> tuple[dict[Any, PartReport], float]:
    """Publish payloads in answer to each question; return the reports by agent, and the virtual time."""
    broker = MemoryBroker()
    lockstep = Lockstep(
        recording(), kind_of(broker.url), channels.encode, ToTheEnd(chances=1), live=[2, 3], patience=10
    )
    lockstep.unannounced(lockstep.cast.parts)
    asked = broker.pubsub()
    await asked.psubscribe("questions")

    async def answers() -> None:
        while True:
            if await asked.get_message(timeout=100) is not None:
                await broker.publish([(b"answers", json.dumps(payload).encode()) for payload in said])

    task, started = asyncio.create_task(answers()), asyncio.get_running_loop().time()
    async with lockstep.observer(broker) as observer:
        async for batch in lockstep.releases():
            wire = [(channels.encode(entry.channel or ""), entry.payload) for entry in batch]
            observer.published(wire)
            await broker.publish(wire)
    task.cancel()
    await asyncio.wait([task])
    return {part.agents[0]: part for part in lockstep.report.parts}, asyncio.get_running_loop().time() - started


def test_a_message_that_differs_is_that_of_the_sender_that_its_payload_names() -> None:
    reports, waited = virtual_time.run(observed([{"from": 3, "content": "other"}, {"from": 2, "content": "other"}]))
    assert [(report.different, report.missing) for report in reports.values()] == [(ROUNDS, 0)] * 2
    assert waited < 10


@pytest.mark.parametrize("payload", [{"from": 3, "content": "other"}, {"content": "other"}])
def test_one_that_says_something_else_is_not_taken_for_one_that_is_silent(payload: Any) -> None:
    reports, waited = virtual_time.run(observed([payload]))
    named = "from" in payload
    silent, speaks = reports[2], reports[3]
    assert (silent.different + silent.missing, speaks.different + speaks.missing) == (ROUNDS, ROUNDS)
    assert not named or (silent.missing, speaks.different) == (ROUNDS, ROUNDS)
    assert round(waited / 10) <= 2
