"""With MESSAGER_STORE set and a store that is unreachable from the start, events wait in the spool."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager, PublishError
from messager_store import EventLog, Recorder
from messager_store.db.database import Database
from messager_store.db.databases import for_store
from messager_store.errors import ExperimentBusy, StoreError, StoreUnavailable
from messager_store.maintenance.removal import remove
from messager_store.queries.status import status
from messager_store.recording import auto_recorder, committer
from messager_store.recording.closing import close
from messager_store.recording.draining import DrainResult, folders_of
from messager_store.recording.registration import Registration, register
from messager_store.recording.spool import Spool
from messager_store.recording.spool_format import frame
from messager_store.recording.spools import spools
from tests.store.recording.test_auto_recorder import recording, said, say
from tests.store.recording.test_auto_recorder_ends import ran
from tests.support import messager as command_line
from tests.support import self_recording, until
from tests.support.outages import everything_drained

__all__ = ["recording"]


class Away:
    """Store that is unreachable until `comes` is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(Database, "read_revision", self._look)

    async def _look(self) -> None:
        raise StoreUnavailable("the store", "it is away")

    def comes(self) -> None:
        self._monkeypatch.undo()


@pytest.fixture
def away() -> Iterator[Away]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Away(monkeypatch)


async def drained(store: str) -> list[DrainResult]:
    async with EventLog.open(store) as log:
        return [done for folder in await folders_of(log) for done in await everything_drained(log, folder)]


async def test_a_store_out_of_reach_is_tried_again_and_what_happened_meanwhile_is_recorded(
    store: str, away: Away, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.describe("first run", seed=7)
        await say(messager, 3)
        hook = self_recording(messager)
        await until(lambda: hook._recorder.spooled == 3)  # nobody closes it: a kill would not take them away
        away.comes()
        await until(lambda: not len(hook._recorder))  # flush raises if an attempt failed just before
        await say(messager, 1, 3)
    assert await said(store) == [0, 1, 2, 3] and not hook._recorder.spool_path.exists()
    out_of_reach, recording = capsys.readouterr().err.splitlines()
    assert "it is away; events of e1 are kept in" in out_of_reach and "recording e1 into" in recording
    async with EventLog.open(store) as log:
        [row] = await log.recorders()
        assert (await log.experiment("first run")).meta["seed"] == 7
    assert (row.state, row.broker, row.pid) == ("ended", messager.broker.url, os.getpid())


async def test_a_recorder_leaves_its_own_spool_alone_where_the_file_system_has_no_locks(
    store: str, away: Away, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("messager_store.recording.spool.fcntl.flock", flock)
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 3)
        hook = self_recording(messager)
        await until(lambda: hook._recorder.spooled == 3)
        away.comes()
        await until(lambda: not len(hook._recorder))
        await say(messager, 1, 3)
    assert await said(store) == [0, 1, 2, 3]
    assert not any(text in caplog.text for text in ("drained", "fenced", "ended by another process"))


@pytest.mark.parametrize("durability", ["buffered", "strict"])
async def test_what_happened_while_the_store_never_came_is_in_the_spool_and_a_drain_makes_its_experiment(
    durability: str,
    store: str,
    away: Away,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MESSAGER_DURABILITY", durability)
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path / "spools"))
    began = time.time_ns()
    messager = Messager(MemoryBroker(), "e1")
    async with messager:
        await say(messager, 2)
        messager.describe("first run", seed=7)  # when it is on the disk already what the experiment is
        await say(messager, 1, 2)
        hook = self_recording(messager)
    out_of_reach, waits = capsys.readouterr().err.splitlines()
    assert "registration is retried" in out_of_reach and "3 events of e1 wait in" in waits and "messager drain" in waits
    away.comes()
    [done] = await drained(store)
    assert (done.exp_id, done.events, done.ended, done.reason) == ("e1", 3, True, None)
    assert await said(store) == [0, 1, 2] and not (tmp_path / "spools").exists()
    async with EventLog.open(store) as log:
        of = await log.experiment("first run")
        [row] = await log.recorders(of)
    assert (of.exp_id, of.meta["seed"], "command" in of.meta) == ("e1", 7, True)
    assert (row.uuid, row.role, row.state, row.pid) == (hook._recorder.uuid, "messager", "ended", os.getpid())
    assert (row.durability, row.broker, row.anchor_wall) == (durability, messager.broker.url, messager.clock.wall_ns)
    assert "python" in row.meta["versions"] and row.started_at >= began
    assert row.ended_at is not None and row.started_at <= row.heartbeat_at <= row.ended_at


BAD_NAMES = {"long": "n" * 1001, "half a character": "bad\udc80"}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=list(BAD_NAMES))
async def test_a_name_that_no_experiment_can_have_costs_the_name_and_not_the_recording(
    store: str,
    away: Away,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path / "spools"))
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.describe(name, seed=7)
        await say(messager, 2)
        if name == BAD_NAMES["long"]:  # the store comes while it records; else a drain finds the name
            away.comes()
            hook = self_recording(messager)
            await until(lambda: not hook._recorder.spooled and not len(hook._recorder))
            await say(messager, 1, 2)
    away.comes()
    assert all(done.reason is None for done in await drained(store))
    assert (await said(store))[:2] == [0, 1] and not (tmp_path / "spools").exists()
    async with EventLog.open(store) as log:
        of = await log.experiment("e1")
        assert (of.name, of.meta["seed"]) == (None, 7)
        with pytest.raises(StoreError, match="cannot be a name"):  # but who gives one on purpose is told
            await Recorder(log, "e1", name=name).start()
    assert "cannot be a name" in caplog.text and "e1 is registered without" in caplog.text


async def test_strict_is_kept_in_the_spool_while_the_store_has_never_been_there(
    store: str, away: Away, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MESSAGER_DURABILITY", "strict")
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path))
    on_disk: list[list[int]] = []

    class Looks(MemoryBroker):
        def publish(self, messages: Any) -> Any:
            on_disk.append([info.events for info in spools(tmp_path)])
            if len(on_disk) == 2:
                raise PublishError("not today", "not_sent")
            return super().publish(messages)

    async with Messager(Looks(), "e1") as messager:
        await say(messager, 1)
        with pytest.raises(PublishError):
            await say(messager, 1, 1)
    assert on_disk == [[1], [2]]
    away.comes()
    await drained(store)
    async with EventLog.open(store) as log:
        events = [event async for event in log.read("e1")]
    assert [(event.kind, event.seq, event.cause) for event in sorted(events, key=lambda event: event.seq)] == [
        ("sent", 1, None),
        ("sent", 2, None),
        ("failed", 3, (1, 2)),
    ]


NEVER = """
import asyncio, os, signal, sys
from messager import MemoryBroker, Messager
from messager_store.db.database import Database
from messager_store.recording.registration import Registration, register
from messager_store.errors import ExperimentBusy, StoreError, StoreUnavailable
async def look(self):
    raise StoreUnavailable("the store", "it is away")
Database.read_revision = look
async def main():
    messager = Messager(MemoryBroker(), "e1")
    await messager.init()
    for at in range(3):
        await messager.send_message("c", {"n": at})
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


async def test_a_kill_while_the_store_never_came_costs_a_strict_recorder_nothing(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_DURABILITY", "strict")
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path / "spools"))
    ran(store, NEVER, check=False)
    async with EventLog.open(store) as log:
        told = await status(log)
        assert [(len(told.spools), problem.remedy) for problem in told.problems] == [(1, "messager drain")]
    [done] = await drained(store)
    assert (done.events, done.ended, done.reason) == (3, False, None)
    assert await said(store) == [0, 1, 2]
    async with EventLog.open(store) as log:
        [row] = await log.recorders()
    assert row.state == "unclean" and row.pid != os.getpid()


async def test_what_waits_for_a_store_that_never_came_goes_into_no_other_and_into_no_closed_experiment(
    store: str, away: Away, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path))
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 2)
    away.comes()
    [other] = await drained(str(tmp_path / "other.db"))
    assert other.left == 2 and other.reason is not None
    assert f"it belongs to the store {for_store(store).location}" in other.reason
    async with EventLog.open(store) as log:
        async with Recorder(log, "e1", spool=tmp_path / "elsewhere"):
            pass
        await close(log, await log.experiment("e1"), force=True)
        [done] = [done for folder in await folders_of(log) for done in await everything_drained(log, folder)]
    assert (done.exp_id, done.events) == ("e1-2", 2) and await said(store, "e1-2") == [0, 1]


async def test_an_experiment_is_not_closed_while_events_wait_that_would_go_into_another_then(
    store: str, away: Away, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path))
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 2)
    away.comes()
    async with EventLog.open(store) as log:
        other = await log.create_experiment("e2")
        of = await log.create_experiment("e1")
        assert of is not None and other is not None
        [left] = tmp_path.glob("*.spool")
        held = Spool.open(left)
        with pytest.raises(ExperimentBusy, match=f"an unregistered one, with its spool {left}"):
            await close(log, of)
        held.close()
        with pytest.raises(StoreError, match=r"events for e1 are in .*spool.*`messager drain`.*--force"):
            await close(log, of)
        assert (await log.experiment("e1")).status == "open"
        await close(log, other)
        await everything_drained(log, tmp_path)
        await close(log, of, force=True)
        assert (await log.experiment("e1")).status == "closed"
    assert await said(store) == [0, 1]


async def test_a_removed_experiment_does_not_come_back_from_the_spool_of_a_recorder_that_died_as_it_joined(
    store: str, away: Away, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path))
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 2)
    away.comes()
    [left] = tmp_path.glob("*.spool")
    with open(left, "ab") as file:
        file.write(frame(1, b"x" * 1000)[:500])  # cut short by the kill
    async with EventLog.open(store) as log:
        with contextlib.closing(Spool.open(left)) as spool:
            assert spool.registration is not None
            of = (await register(log, Registration(**spool.registration))).experiment
        await remove(log, of)
        [done] = await everything_drained(log, tmp_path)
        assert done.left == 2 and done.reason is not None and "the experiment was removed" in done.reason
        assert await log.experiments() == []
    with contextlib.closing(Spool.open(left)) as spool:
        assert (len(spool), spool.damaged_at) == (2, None)


@pytest.mark.parametrize(
    ("foreign", "told"),
    [
        ({"row": {"clock_source": "tsc"}}, "its recorder has columns unknown to this version: clock_source"),
        ({"facts": ["of another kind"]}, "its experiment cannot be created"),
    ],
)
async def test_a_spool_of_a_version_that_says_more_is_told_and_stops_no_recorder(
    store: str,
    away: Away,
    foreign: dict[str, Any],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path))
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 2)
    away.comes()
    [left] = tmp_path.glob("*.spool")
    with contextlib.closing(Spool.open(left)) as spool:
        entries, facts, said_of_it = spool.read(1, 9, 1 << 20), spool.facts, spool.registration
    left.unlink()
    assert said_of_it is not None
    if "row" in foreign:
        foreign = {"row": {**said_of_it["row"], **foreign["row"]}}
    with contextlib.closing(Spool(left, facts)) as spool:
        spool.registration = {**said_of_it, **foreign}
        spool.write(1, entries, 1)
    async with EventLog.open(store) as log:
        assert [told in (done.reason or "") for done in await everything_drained(log, tmp_path)] == [True]
        assert await log.experiments() == []
        async with Recorder(log, "e1"):
            pass
    assert left.exists() and told in caplog.text


async def test_a_mistyped_folder_is_made_for_the_spool_and_what_is_told_brings_the_events_into_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "not" / "there" / "log.db")
    monkeypatch.setenv("MESSAGER_STORE", store)
    monkeypatch.setattr(committer, "SPOOL_AGAIN_SECONDS", 600)  # only when it ends, as the store would come else
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 2)
    out_of_reach, waits = capsys.readouterr().err.splitlines()
    assert "there is no folder" in out_of_reach
    assert "wait in" in waits and waits.endswith("run `messager drain`")
    done = command_line("--store", store, "drain", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert await said(store) == [0, 1]


async def test_what_waits_for_a_mistyped_store_goes_into_another_one_if_that_is_told_to_adopt_it(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_STORE", "postgresql://nobody@127.0.0.1:1/mistyped")
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path / "spool"))
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 2)
    drain = ["--store", store, "drain", "--spool", str(tmp_path / "spool")]
    async with EventLog.open(store):
        pass
    stays = command_line(*drain, cwd=tmp_path)
    assert (stays.returncode, "or into this one with --adopt" in stays.stdout) == (1, True), stays
    adopted = command_line(*drain, "--adopt", cwd=tmp_path)
    assert (adopted.returncode, "2 events of e1 into the store" in adopted.stdout) == (0, True), adopted
    assert await said(store) == [0, 1] and not (tmp_path / "spool").exists()


async def test_a_recorder_of_the_same_experiment_takes_in_what_waits_for_a_store_that_never_came(
    store: str, away: Away
) -> None:
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 2)
    away.comes()
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 1, 2)
    assert await said(store) == [0, 1, 2]


async def test_a_messager_of_which_nothing_is_known_leaves_no_spool_where_the_store_never_came(
    store: str, away: Away, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path / "spools"))
    async with Messager(MemoryBroker(), "e1"):
        pass
    assert not (tmp_path / "spools").exists()


async def test_where_neither_the_store_nor_the_spool_came_it_is_told_how_much_is_lost(
    store: str, away: Away, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MESSAGER_SPOOL", str(tmp_path / "file" / "spool"))
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 3)
    [lost] = [line for line in capsys.readouterr().err.splitlines() if "lost" in line or "dropped" in line]
    assert lost.startswith("messager: e1: ") and "3 events are lost" in lost


async def test_a_store_that_never_answers_does_not_keep_a_messager_from_closing(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def look(self: Database) -> None:
        asked.set()
        await asyncio.Event().wait()

    asked = asyncio.Event()
    monkeypatch.setattr(Database, "read_revision", look)
    monkeypatch.setattr(auto_recorder, "START_SECONDS", 0.01)
    messager = Messager(MemoryBroker(), "e1")
    async with asyncio.timeout(60):
        await messager.init()
        await say(messager, 3)
        await asked.wait()
        await messager.close()
    [waits] = capsys.readouterr().err.splitlines()
    assert "3 events of e1 wait in" in waits
