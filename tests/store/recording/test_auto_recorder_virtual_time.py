"""MESSAGER_STORE does not record in virtual time, and says what does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from messager import MemoryBroker, Messager
from messager_store import EventLog, LiveReplay, Recorder
from messager_store.errors import StoreError
from messager_store.lockstep import virtual_time
from messager_store.lockstep.recorder_thread import RecorderThread
from messager_store.recording import auto_recorder
from tests.store.recording.test_auto_recorder import said, say


@pytest.fixture(autouse=True)
def recording(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    monkeypatch.setenv("MESSAGER_STORE", store)
    monkeypatch.setattr(auto_recorder, "_unrecorded", set())


def test_in_virtual_time_nothing_is_recorded_and_one_line_names_the_recorder_that_can(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        clock = virtual_time.virtual_clock()
        broker = MemoryBroker()
        async with Messager(broker, "e1", clock=clock) as one, Messager(broker, "e1", clock=clock) as two:
            await say(one, 1)
            await say(two, 1)

    virtual_time.run(run())
    assert capsys.readouterr().err == (
        "messager: e1 is not recorded: MESSAGER_STORE does not record in virtual time. Add a RecorderThread (of "
        "messager_store.lockstep.recorder_thread) as a log hook\n"
    )
    assert not Path(f"{store}-spool").exists()


def test_in_virtual_time_a_recorder_in_a_thread_records_alone(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        messager = Messager(MemoryBroker(), "e1", clock=virtual_time.virtual_clock())
        async with RecorderThread.open(store, "e1") as recorder:
            messager.add_log_hook(recorder)
            async with messager:
                await say(messager, 2)

    virtual_time.run(run())
    assert asyncio.run(said(store)) == [0, 1]
    assert capsys.readouterr().err == ""


async def repeats(messager: Messager) -> None:
    await messager.send_message("c", {"n": 1}, 1)


async def recorded(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder:
        messager = Messager(MemoryBroker(), "e1")
        messager.add_log_hook(recorder)
        async with messager:
            await repeats(messager)


async def test_a_replay_in_one_process_is_not_recorded_into_what_it_replays(store: str, log: EventLog) -> None:
    await recorded(log)
    of = await log.experiment("e1")
    before = len(await log.recorders(of))
    with pytest.raises(StoreError, match=r"^e1 cannot be replayed into itself: .*`to_exp`.*unset MESSAGER_STORE") as no:
        await LiveReplay(log, "e1", MemoryBroker()).play({1: repeats})
    assert "\n" not in str(no.value) and len(await log.recorders(of)) == before
    await LiveReplay(log, "e1", MemoryBroker(), to_exp="e2").play({1: repeats})
    assert await said(store, "e2") == [1] and await said(store) == [1]


async def test_a_replay_in_virtual_time_is_not_recorded_and_so_not_refused(
    log: EventLog, capsys: pytest.CaptureFixture[str]
) -> None:
    await recorded(log)
    report = await LiveReplay(log, "e1", MemoryBroker()).play({1: repeats}, virtual_time=True)
    assert report.equal
    assert "e1 is not recorded: MESSAGER_STORE does not record in virtual time." in capsys.readouterr().err
