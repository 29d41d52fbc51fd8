"""With MESSAGER_STORE set, a recorder whose experiment is closed continues in the next one without loss."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager, PublishError
from messager_store import EventLog
from messager_store.errors import StoreUnavailable
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify
from messager_store.recording.closing import close
from messager_store.recording.recorder import Recorder
from tests.store.recording.test_auto_recorder import recording, said, say
from tests.support import self_recording, until
from tests.support.outages import everything_drained

__all__ = ["recording"]


def recorder_of(messager: Messager) -> Recorder:
    return self_recording(messager)._recorder


async def closed(store: str, exp_id: str = "e1") -> None:
    async with EventLog.open(store) as log:
        await close(log, await log.experiment(exp_id), force=True)


async def seqs(store: str, exp_id: str) -> list[tuple[int, str, Any]]:
    """Return the seqs of an experiment without problems."""
    async with EventLog.open(store) as log:
        of = await log.experiment(exp_id)
        assert (await verify(log, of)).problems == []
        assert [row.state for row in await log.recorders(of)] == ["ended"]
        return sorted([(event.seq, event.kind, event.cause) async for event in log.read(exp_id)])


async def test_what_comes_after_an_experiment_was_closed_goes_into_the_next_one(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    messager = Messager(MemoryBroker(), "e1")
    messager.describe("first run", seed=7)
    async with messager:
        await say(messager, 3)
        await recorder_of(messager).flush()
        first = recorder_of(messager).uuid
        await closed(store)
        await say(messager, 3, 3)
        await recorder_of(messager).flush()
        await say(messager, 1, 6)
    assert (await said(store), await said(store, "e1-2")) == ([0, 1, 2], [3, 4, 5, 6])
    assert await seqs(store, "e1-2") == [(seq, "sent", None) for seq in range(1, 5)]
    async with EventLog.open(store) as log:
        of = await log.experiment("e1-2")
        [row] = await log.recorders(of)
    assert (of.name, of.meta["seed"], row.broker) == ("first run", 7, messager.broker.url) and row.uuid != first
    assert [line.split(" into ")[0] for line in capsys.readouterr().err.splitlines()] == [
        "messager: recording e1",
        "messager: recording e1-2",
    ]


async def test_all_that_were_in_a_closed_experiment_meet_in_the_next_one_and_idle_ones_make_none(store: str) -> None:
    broker = MemoryBroker()
    async with Messager(broker, "e1") as one, Messager(broker, "e1") as two, Messager(broker, "e1") as idle:
        for messager in (one, two, idle):
            await say(messager, 1)
            await recorder_of(messager).flush()
        await closed(store)
        for messager in (one, two, idle):
            recorder_of(messager).connected(
                broker.url, messager.clock, None
            )  # it finds out as soon as it says something
            await until(lambda messager=messager: not recorder_of(messager)._committer.registered)  # type: ignore[misc]
        async with EventLog.open(store) as log:
            assert len(await log.recorders()) == 3
        await say(one, 1, 1)
        await say(two, 1, 2)
    assert sorted(await said(store, "e1-2")) == [1, 2]
    async with EventLog.open(store) as log:
        assert len(await log.recorders()) == 5


async def test_what_waited_in_the_spool_when_the_experiment_was_closed_goes_into_the_next_one(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def append(*given: Any, **named: Any) -> None:
        raise StoreUnavailable("the store", "it is away")

    async with Messager(MemoryBroker(), "e1") as messager:
        recorder = recorder_of(messager)
        await say(messager, 2)
        await recorder.flush()
        monkeypatch.setattr(recorder.log, "append", append)
        await say(messager, 5, 2)
        await until(lambda: recorder.spooled == 5)
        spool = recorder.spool_path
        await say(messager, 2, 7)
        await closed(store)
        monkeypatch.undo()
        await recorder.flush()
        assert not spool.exists()
    assert (await said(store), await said(store, "e1-2")) == ([0, 1], [2, 3, 4, 5, 6, 7, 8])
    assert await seqs(store, "e1-2") == [(seq, "sent", None) for seq in range(1, 8)]


async def test_what_the_next_experiment_could_not_take_before_the_end_is_brought_into_it_by_a_drain(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def register(self: Recorder) -> None:
        raise StoreUnavailable("the store", "it is away")

    async with Messager(MemoryBroker(), "e1") as messager:
        recorder = recorder_of(messager)
        await say(messager, 2)
        await recorder.flush()
        await closed(store)
        monkeypatch.setattr(Recorder, "register", register)
        await say(messager, 3, 2)
    assert "3 events of e1 wait in" in capsys.readouterr().err
    async with EventLog.open(store) as log:
        [done] = await everything_drained(log, Path(log.database.dialect.spool_folders[0]))
    assert (done.exp_id, done.events, done.ended) == ("e1-2", 3, True)
    assert await said(store, "e1-2") == [2, 3, 4]
    assert [seq for seq, *_ in await seqs(store, "e1-2")] == [1, 2, 3]


async def test_strict_is_kept_across_the_closing_and_what_is_taken_back_is_found(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_DURABILITY", "strict")

    class Refusing(MemoryBroker):
        async def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | PublishError | None]:
            if asking is not None:
                asked.set()
                await asking.wait()
                return [PublishError("not today", "not_sent") for _ in messages]
            return await super().publish(messages)

    asking: asyncio.Event | None = None
    asked = asyncio.Event()
    async with Messager(Refusing(), "e1") as messager:
        await say(messager, 2)
        asking = asyncio.Event()
        sending = asyncio.create_task(say(messager, 1, 2))
        await asked.wait()  # its intent is in e1
        await closed(store)
        recorder_of(messager).mark("now")
        await recorder_of(messager).flush()
        asking.set()
        with pytest.raises(PublishError):
            await sending
        with pytest.raises(PublishError):
            await say(messager, 1, 3)
    assert await said(store) == [0, 1, 2]
    assert await seqs(store, "e1-2") == [
        (1, "mark", None),
        (2, "failed", None),  # what it takes back is in a closed experiment
        (3, "sent", None),
        (4, "failed", (1, 3)),
    ]


async def test_an_experiment_that_was_removed_in_mid_run_begins_anew(store: str) -> None:
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 2)
        await recorder_of(messager).flush()
        async with EventLog.open(store) as log:
            await remove(log, await log.experiment("e1"))
        await say(messager, 2, 2)
    assert await said(store) == [2, 3]


async def test_what_takes_back_something_that_moved_with_it_finds_it(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_DURABILITY", "strict")

    class Refusing(MemoryBroker):
        async def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | PublishError | None]:
            return [PublishError("not today", "not_sent") for _ in messages]

    async def append(*given: Any, **named: Any) -> None:
        raise StoreUnavailable("the store", "it is away")

    async with Messager(Refusing(), "e1") as messager:
        recorder = recorder_of(messager)
        recorder.mark("before")
        await recorder.flush()
        monkeypatch.setattr(recorder.log, "append", append)
        for spooled in (2, 0):  # one is on the disk, one in memory
            with pytest.raises(PublishError):
                await say(messager, 1)
            if spooled:
                await until(lambda: recorder.spooled == 2)
        await closed(store)
        monkeypatch.undo()
        await recorder.flush()
    assert await seqs(store, "e1-2") == [
        (1, "sent", None),
        (2, "failed", (1, 1)),
        (3, "sent", None),
        (4, "failed", (1, 3)),
    ]


async def test_a_successor_whose_experiment_is_closed_too_has_a_successor(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_DURABILITY", "strict")

    class Refusing(MemoryBroker):
        async def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | PublishError | None]:
            return [PublishError("not today", "not_sent") for _ in messages]

    async def append(*given: Any, **named: Any) -> None:
        raise StoreUnavailable("the store", "it is away")

    async def refused(number: int) -> None:
        with pytest.raises(PublishError):
            await say(messager, 1, number)

    async with Messager(Refusing(), "e1") as messager:
        recorder = recorder_of(messager)
        await refused(0)
        await recorder.flush()
        await closed(store)
        for number in (1, 2):
            await refused(number)
        await recorder.flush()
        monkeypatch.setattr(recorder.log, "append", append)
        await refused(3)
        await until(lambda: recorder.spooled == 2)
        await refused(4)
        await closed(store, "e1-2")
        monkeypatch.undo()
        await refused(5)
        await recorder.flush()
        assert recorder.acknowledged == 12 and not recorder.spool_path.exists()
    pairs = [[(seq, "sent", None), (seq + 1, "failed", (1, seq))] for seq in (1, 3, 5)]
    assert await seqs(store, "e1") == pairs[0]
    assert await seqs(store, "e1-2") == pairs[0] + pairs[1]
    assert await seqs(store, "e1-3") == pairs[0] + pairs[1] + pairs[2]


async def test_a_batch_that_was_committed_without_our_knowing_before_the_closing_is_in_one_experiment_only(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = asyncio.Event()

    async def append(writer: Any, *given: Any, **named: Any) -> None:
        if not committed.is_set():
            known = writer.last_seq, writer.head_hash
            await appends(writer, *given, **named)
            writer.last_seq, writer.head_hash = known
            committed.set()
        raise StoreUnavailable("the store", "its answer was lost")

    async def recover(writer: Any) -> int:
        raise StoreUnavailable("the store", "it is away")

    async with Messager(MemoryBroker(), "e1") as messager:
        recorder = recorder_of(messager)
        appends = recorder.log.append
        monkeypatch.setattr(recorder.log, "append", append)
        monkeypatch.setattr(recorder.log, "recover", recover)
        await say(messager, 2)
        await committed.wait()
        await say(messager, 2, 2)
        await closed(store)
        monkeypatch.undo()
        await recorder.flush()
    there = await said(store)
    assert there in ([0], [0, 1])  # as many as the batch had
    assert there + await said(store, "e1-2") == [0, 1, 2, 3]
