"""What is published from the recording, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from messager import Messager
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.schedule import key
from messager_store.log.event import Event
from tests.support.scenes import Scene, faithful, fetched, played


def chain() -> Scene:
    """Agents 1, 2 and 3 pass a word on, and 4 hears all."""
    made = Scene()
    for who in (1, 2, 3):
        made.subscribe(who, f"to:{who}")
    made.subscribe(4, "*")
    for number in range(3):
        made.say(9, "to:1", f"start {number}")
        for who, to in ((1, "to:2"), (2, "to:3"), (3, "end")):
            made.say(8, f"to:{who}", "noise")
            made.fetch(who)
            made.say(who, to, f"{who} {number}")
    made.fetch(4)
    made.say(4, "out", "all")
    return made


@pytest.mark.parametrize("live", [(1,), (2, 3), (1, 3), (4,), (1, 2, 3, 4), (8, 9), (1, 2, 3, 4, 8, 9)])
@pytest.mark.parametrize("offsets", [(0, 0, 0), (7, -30, 0), (-30, 7, 7), (0, -30, 7), (-30, -30, 7)])
def test_clocks_that_differ_change_nothing(live: tuple[int, ...], offsets: tuple[int, ...]) -> None:
    scene = chain()
    recording = scene.skewed(dict(zip((1, 2, 8), offsets, strict=True)))
    result = played(recording, {who: faithful(scene, who) for who in live})
    assert result.report.equal and result.report.pace == "lockstep"
    assert len(result.released) == sum(1 for one in scene.events if one.kind == "sent" and one.from_id not in live)


def test_recorded_messages_are_released_in_step_with_the_live_ones() -> None:
    """Listeners without a gate hear a plausible order."""
    scene = chain()
    heard: list[Any] = []

    async def slow(messager: Messager) -> None:
        await asyncio.sleep(3)
        await faithful(scene, 2)(messager)

    async def listens(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(["*"])
        while True:
            heard.extend(await fetched(messager))

    agents = {2: slow, 4: listens}
    result = played(scene, agents, live=[2, 4])
    said = [one for one in scene.events if one.kind == "sent" and one.from_id != 4]
    assert [one.payload.decode().strip('"') for one in said] == result.heard(4)


@pytest.mark.parametrize("offset", [0, 5, -5, 100, -100])
def test_equal_messages_are_paired_with_their_receptions_though_the_clocks_differed(offset: int) -> None:
    made = Scene()
    made.subscribe(2, "c", "c*")
    made.subscribe(3, "c")
    for _ in range(3):
        made.say(1, "c", "tick")
    recording = made.skewed({1: offset})
    sources = recording.sources
    received = [entry for entry in recording.events if entry.kind == "received"]
    seqs = {(entry.messager, entry.arrival): sources[key(entry)][1] for entry in received}
    assert [seqs["messager-of-3", arrival] for arrival in (1, 2, 3)] == [1, 2, 3]
    assert [seqs["messager-of-2", arrival] for arrival in range(1, 7)] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("earlier", [0, 1])
@pytest.mark.parametrize("offset", [0, -3, -5, 5])
def test_a_reception_never_belongs_to_what_its_messager_sent_after_fetching_it(offset: int, earlier: int) -> None:
    """Two agents send the same text on one channel; with `earlier`, one of them missed the first message."""
    made = Scene()
    made.subscribe(1, "c")
    for _ in range(earlier):
        made.say(1, "c", "hello")
    made.subscribe(2, "c")
    made.say(1, "c", "hello")
    made.fetch(2)
    echo = made.say(2, "c", "hello")
    recording = made.skewed({2: offset})
    own = next(key(entry) for entry in recording.events if entry.kind == "sent" and entry.messager == echo.messager)
    first = next(
        key(entry)
        for entry in recording.events
        if (entry.kind, entry.messager, entry.arrival) == ("received", echo.messager, 1)
    )
    assert recording.sources[first] != own
    assert all(entry.kind == "sent" for entry in recording.messages), "each reception belongs to a sending"


def test_a_reception_two_minutes_from_the_only_sending_of_its_payload_belongs_to_none() -> None:
    def event(ts_s: int, seq: int, kind: str, messager: str) -> Event:
        return Event(ts_s * 10**9, 1, seq, kind, "c", b"1", messager=messager, arrival=seq)

    recording = Recording.of_events("e", [event(0, 1, "sent", "m1"), event(120, 2, "received", "m2")])
    assert recording.sources == {(1, 1): (1, 1), (1, 2): (1, 2)}


def test_a_message_without_a_recorded_sending_is_none_of_the_equal_ones_that_are_sent_later() -> None:
    def event(ts_s: int, seq: int, kind: str, who: int, arrival: int) -> Event:
        sender = who if kind == "sent" else None
        return Event(ts_s * 10**9, 1, seq, kind, "c", b"1", from_id=sender, messager=f"m{who}", arrival=arrival)

    heard, sent, again = event(0, 1, "received", 2, 1), event(30, 2, "sent", 1, 0), event(31, 3, "received", 2, 2)
    recording = Recording.of_events("e", [heard, sent, again])
    assert recording.messages == [heard, sent]
    assert recording.sources[key(again)] == key(sent)
