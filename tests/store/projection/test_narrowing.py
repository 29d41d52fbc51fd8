"""Events with context around them, in groups."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import pairwise
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager_store import Event, EventLog, Experiment, NewEvent
from messager_store.log.selection import Selection
from messager_store.log.span import Span
from messager_store.projection import narrowing
from messager_store.projection.narrowing import Piece, narrowed, selected_pages
from tests.support.examples import WITH_STORE
from tests.support.logs import filled, sent

S = 1_000_000_000


def spoken(at: int, text: str, channel: str = "c", **more: Any) -> NewEvent:
    return sent(at * S, json.dumps({"content": text}).encode(), channel, **more)


async def groups(log: EventLog, of: Experiment, **filters: Any) -> list[list[int]]:
    return [[entry.ts // S for entry in page] async for page in selected_pages(log, of, Selection(**filters))]


async def test_context_is_that_of_the_channel_and_in_groups(log: EventLog) -> None:
    talk = {"c": "..x..x......x", "d": "..........x.."}
    events = [
        spoken(10 * at + (c == "d"), text, c, from_id=at) for c, said in talk.items() for at, text in enumerate(said)
    ]
    of = await filled(log, sorted(events, key=lambda entry: entry.ts))
    assert await groups(log, of, grep="x", context=1) == [[10, 20, 30, 40, 50, 60], [91, 101, 111], [110, 120]]
    assert await groups(log, of, grep="x", context=2, channels="c") == [
        [0, 10, 20, 30, 40, 50, 60, 70],
        [100, 110, 120],
    ]
    assert await groups(log, of, grep="x", context=1, limit=1) == [[10, 20, 30]]
    assert await groups(log, of, from_ids=[10], channels="c", context=1) == [[90, 100, 110]]
    assert await groups(log, of, grep="x", context=1, until="30s") == [[10, 20]]


@pytest.mark.sqlite
async def test_a_silent_channel_does_not_hold_back_all_groups(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrowing, "MOST_WAITING", 5 * 1024)
    events = [spoken(0, "x", "silent"), *(spoken(at, "x" if at % 5 == 0 else ".") for at in range(1, 30))]
    of = await filled(log, [*events, spoken(40, "late", "silent"), spoken(41, "x", "silent")])
    reading = selected_pages(log, of, Selection(grep="x", context=1))
    found = [[entry.ts // S for entry in page] async for page in reading]
    assert found == [[0], *([at - 1, at, at + 1] for at in range(5, 30, 5)), [40, 41]]


def pages_of(events: list[Event], size: int, read: list[int]) -> Any:
    """Return a function that reads events in pages, and counts those that were read."""

    async def pages(chosen: Selection, span: Span, *, backward: bool = False) -> AsyncGenerator[list[Event], None]:
        for at in range(0, len(events), size):
            read[0] += len(events[at : at + size])
            yield events[at : at + size]

    return pages


@pytest.mark.sqlite
async def test_matches_that_follow_each_other_are_yielded_while_they_are_read(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrowing, "PIECE", 20)
    monkeypatch.setattr(narrowing, "MOST_WAITING", 40 * 1010)
    of = await log.create_experiment("e1")
    for channels in ("c", "cde"):
        events = [Event(at, 1, at, "sent", channels[at % len(channels)], b"x" * 10) for at in range(1, 1001)]
        read, yielded, longest = [0], 0, 0
        reading = pages_of(events, 10, read)
        async with aclosing(
            narrowed(reading, log.database, of, Selection(from_ids=[1], context=1).of_channels(), Span())
        ) as found:
            async for piece in found:
                assert isinstance(piece, Piece)
                assert read[0] - yielded <= 40 + 20 + 10
                assert channels != "c" or piece.continues == (yielded > 0)
                yielded += len(piece)
                longest = max(longest, len(piece))
        assert yielded == 1000 and longest <= 40


@given(seed=st.integers(0, 2**32))
@WITH_STORE
@pytest.mark.sqlite
async def test_context_is_complete_and_once_however_it_is_divided(log: EventLog, seed: int) -> None:
    random = Random(seed)
    of = await log.create_experiment(uuid4().hex)
    number, most = random.randrange(1, 60), random.randrange(1, 4)
    often = random.choice([0.1, 0.5, 0.95])
    events = [
        Event(at, 1, at, "sent", random.choice("cde"), b"", from_id=int(random.random() < often))
        for at in range(1, number + 1)
    ]
    by_channel = {name: [entry for entry in events if entry.channel == name] for name in "cde"}
    wanted = {
        same[near].ts
        for same in by_channel.values()
        for at, entry in enumerate(same)
        if entry.from_id
        for near in range(max(at - most, 0), min(at + most + 1, len(same)))
    }
    with pytest.MonkeyPatch.context() as patch:
        small = random.random() < 0.7
        patch.setattr(narrowing, "PIECE", random.randrange(1, 10) if small else 1000)
        patch.setattr(narrowing, "MOST_WAITING", random.randrange(1, 12) * 1000 if small else 10**9)
        reading = narrowed(pages_of(events, 7, [0]), log.database, of, Selection(from_ids=[1], context=most), Span())
        pieces = [piece async for piece in reading]
    assert sorted(entry.ts for piece in pieces for entry in piece) == sorted(wanted)
    joined: list[list[Event]] = []
    for piece in pieces:
        assert isinstance(piece, Piece) and piece
        if piece.continues:
            joined[-1] += piece
        else:
            joined.append([*piece])
    for group in joined:  # events of one channel that follow each other there
        same = by_channel[group[0].channel or ""]
        at = same.index(group[0])
        assert same[at : at + len(group)] == group
    if not small:
        first = [next(entry.ts for entry in group if entry.from_id) for group in joined]
        assert first == sorted(first)
        for group, after in pairwise(sorted(joined, key=lambda group: (group[0].channel, group[0].ts))):
            same = by_channel[group[-1].channel or ""]
            assert same.index(group[-1]) + 1 == len(same) or same[same.index(group[-1]) + 1] != after[0]
