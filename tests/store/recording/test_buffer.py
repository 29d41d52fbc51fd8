"""The buffer yields every event once and in order, for any sequence of spooling and commits."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from messager import Clock
from messager_store import NewEvent
from messager_store.errors import SpoolFull
from messager_store.recording import buffer
from messager_store.recording.buffer import Buffer
from messager_store.recording.spool import Spool


def made(folder: Path, **more: Any) -> Buffer:
    clock = Clock()
    spool = Spool(folder / "r.spool", {"recorder": "r", "exp_id": "e", "store": "s"}, **more)
    return Buffer(spool, clock, clock.now, lambda: None)


def entry(number: int) -> NewEvent:
    return NewEvent("sent", number, "c", b"%d" % number)


async def test_whoever_is_faster_the_store_gets_each_event_once_and_in_order(tmp_path: Path, nightly: bool) -> None:
    for seed in range(60 if nightly else 15):
        with pytest.MonkeyPatch.context() as monkeypatch:
            await _each_event_once_and_in_order(tmp_path, monkeypatch, random.Random(seed))


async def _each_event_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dice: random.Random) -> None:

    async def turns() -> None:
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(0)

    async def in_thread(self: Buffer, call: Callable[..., Any], *given: Any) -> Any:
        await turns()
        result = call(*given)
        await turns()
        return result

    monkeypatch.setattr(Buffer, "_in_thread", in_thread)
    monkeypatch.setattr(buffer, "BATCH_EVENTS", dice.randint(1, 7))
    waiting = made(tmp_path)
    stored: list[bytes] = []
    over = False

    async def commits() -> None:
        while not over or waiting.waiting:
            batch = await waiting.next_batch()
            await turns()
            if batch is not None:
                stored.extend(event.payload for event in batch.events)
                waiting.acknowledge(waiting.acknowledged + len(batch.events))
            await asyncio.sleep(0)

    async def spools() -> None:
        while not over:
            await turns()
            await waiting.to_disk()
            assert waiting.durable >= waiting.acknowledged

    tasks = [asyncio.create_task(commits()), asyncio.create_task(spools())]
    for number in range(200):
        assert waiting.add(entry(number)) == number + 1
        if dice.random() < 0.4:
            await turns()
    over = True
    await asyncio.gather(*tasks)
    assert stored == [b"%d" % number for number in range(200)]
    assert (waiting.acknowledged, len(waiting), waiting.spool.path.exists()) == (200, 0, False)


class Held(Spool):
    """Spool that writes only when released."""

    def __init__(self, folder: Path, name: str = "r") -> None:
        super().__init__(folder / f"{name}.spool", {"recorder": "r", "exp_id": "e", "store": "s"})
        self.writing, self.let = threading.Event(), threading.Event()

    def write(self, first_seq: int, entries: Sequence[NewEvent], complete_until: int) -> None:
        self.writing.set()
        assert self.let.wait(60)
        super().write(first_seq, entries, complete_until)

    def succeed(self, recorder: str, offset: int, registration: dict[str, Any]) -> None:
        self.writing.set()
        assert self.let.wait(60)
        super().succeed(recorder, offset, registration)


def held(folder: Path) -> tuple[Buffer, Held]:
    """Buffer of three events, and its spool."""
    spool, clock = Held(folder), Clock()
    waiting = Buffer(spool, clock, clock.now, lambda: None)
    for number in range(3):
        waiting.add(entry(number))
    return waiting, spool


def left(waiting: Buffer) -> list[NewEvent]:
    """Return the events in the spool, which must be intact."""
    waiting.close()
    spool = Spool.open(waiting.spool.path)
    try:
        assert spool.damaged_at is None and spool.ended_at == 7
        return spool.read(spool.offset + 1, 100, 10_000)
    finally:
        spool.close()


async def test_what_is_being_written_when_the_writer_is_cancelled_is_in_the_spool_once(tmp_path: Path) -> None:
    waiting, spool = held(tmp_path)
    writing = asyncio.create_task(waiting.to_disk())
    await asyncio.to_thread(spool.writing.wait, 60)
    writing.cancel()
    ending = asyncio.create_task(waiting.end(7))
    await asyncio.sleep(0)
    waiting.add(entry(3))
    spool.let.set()
    await ending
    assert writing.cancelled()
    assert left(waiting) == [entry(number) for number in range(4)]


def test_what_is_being_written_when_the_event_loop_is_left_is_in_the_spool_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin() -> asyncio.Task[None]:
        writing = asyncio.create_task(waiting.to_disk())
        await asyncio.to_thread(spool.writing.wait, 60)
        return writing

    waiting, spool = held(tmp_path)
    with asyncio.Runner() as runner:
        writing = runner.run(begin())
        monkeypatch.setattr(waiting, "tell_drops", spool.let.set)  # the saving has begun
        waiting.add(entry(3))
        waiting.save(7)
    assert writing.cancelled()
    assert left(waiting) == [entry(number) for number in range(4)]


def retracts(intent: int, cause: int | None) -> NewEvent:
    """Failed event that retracts the event at this position."""
    return NewEvent("failed", intent, "c", b"", cause=None if cause is None else (0, cause))


async def test_what_a_successor_takes_over_is_counted_as_its_own_in_the_spool_and_in_memory(tmp_path: Path) -> None:
    waiting = made(tmp_path)
    for position in (1, 2, 3):
        waiting.add(retracts(position, position))
    await waiting.to_disk()
    waiting.acknowledge(2)
    await waiting.succeed("next", {"uuid": "next"})
    for position in (2, 4):  # the first is an event of the recorder before
        waiting.add(retracts(position, position))
    found = []
    for seq in (1, 3):
        batch = await waiting.next_batch()
        assert batch is not None
        found += batch.events
        if seq == 1:
            seen = Spool.seen(waiting.spool.path)
            assert seen is not None
            assert (seen[0].facts["recorder"], seen[0].registration) == ("next", {"uuid": "next"})
            assert (len(seen[0]), seen[0].read(seen[0].offset + 1, 9, 10_000)) == (1, found)
        waiting.acknowledge(seq)
    assert found == [retracts(3, 1), retracts(2, None), retracts(4, 2)]
    assert not waiting.spool.path.exists() and waiting.waiting == 0


def test_what_goes_to_a_successor_when_the_event_loop_is_left_is_in_the_spool_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin() -> asyncio.Task[None]:
        spool.let.set()
        await waiting.to_disk()
        waiting.acknowledge(1)
        spool.let.clear()
        spool.writing.clear()
        moving = asyncio.create_task(waiting.succeed("next", {"uuid": "next"}))
        await asyncio.to_thread(spool.writing.wait, 60)
        return moving

    waiting, spool = held(tmp_path)
    with asyncio.Runner() as runner:
        moving = runner.run(begin())
        monkeypatch.setattr(waiting, "tell_drops", spool.let.set)  # the saving has begun
        waiting.add(entry(3))
        waiting.save(7)
    assert moving.cancelled()
    assert left(waiting) == [entry(number) for number in range(1, 4)]


async def test_what_was_dropped_is_told_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "MEMORY_EVENTS", 3)
    waiting = made(tmp_path)
    assert [waiting.add(entry(number)) for number in range(5)] == [1, 2, 3, None, None]
    batch = await waiting.next_batch()
    assert batch is not None and len(batch.events) == 3
    waiting.acknowledge(3)
    assert waiting.waiting == 1
    assert waiting.add(entry(5)) == 5
    batch = await waiting.next_batch()
    assert batch is not None
    assert [event.kind for event in batch.events] == ["gap", "sent"]
    assert batch.events[0].meta is not None and batch.events[0].meta["count"] == 2


async def test_threads_get_each_position_once_and_what_was_dropped_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "MEMORY_EVENTS", 1000)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    waiting = made(tmp_path)

    def add() -> list[int | None]:
        return [waiting.add(entry(number)) for number in range(1000)]

    positions = [
        position for own in await asyncio.gather(*(asyncio.to_thread(add) for _ in range(4))) for position in own
    ]
    sys.setswitchinterval(before)
    assert sorted(position for position in positions if position is not None) == list(range(1, 1001))
    assert waiting.lost == 3000


async def test_a_spool_that_is_full_leaves_the_rest_in_memory(tmp_path: Path) -> None:
    waiting = made(tmp_path, limit=600)
    for number in range(4):
        waiting.add(entry(number))
    await waiting.to_disk()
    for number in range(4, 40):
        waiting.add(entry(number))
    with pytest.raises(SpoolFull):
        await waiting.to_disk()
    assert (waiting.durable, len(waiting), waiting.last) == (4, 36, 40)
    stored = []
    while (batch := await waiting.next_batch()) is not None:
        stored += batch.events
        waiting.acknowledge(waiting.acknowledged + len(batch.events))
    assert stored == [entry(number) for number in range(40)]
