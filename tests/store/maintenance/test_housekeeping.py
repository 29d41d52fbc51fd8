"""Removal of experiments: announced first, complete, and with the space freed."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from messager_store import EventLog, Experiment, Recorder
from messager_store.errors import (
    ExperimentBusy,
    ExperimentChanged,
    RecorderFenced,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from messager_store.experiments import lifecycle
from messager_store.maintenance.compaction import compact, plan
from messager_store.maintenance.removal import remove, sweep_unfinished
from messager_store.maintenance.verify import verify_all
from messager_store.queries.retention import outdated, usage_of
from messager_store.queries.status import status
from messager_store.recording.closing import close
from messager_store.recording.recorder import IfExists
from messager_store.recording.repair import repair
from messager_store.recording.spool import Spool
from tests import support
from tests.support.logs import filled, sent
from tests.support.outages import locked

DAY = 86_400_000_000_000


async def sql(log: EventLog, statement: str) -> None:
    async with log.database.writing() as connection:
        await connection.exec_driver_sql(statement)


async def over(log: EventLog, exp_id: str, events: int = 3, size: int = 10) -> Experiment:
    """Closed experiment."""
    of = await filled(log, [sent(at, b"x" * size) for at in range(events)], exp_id)
    await close(log, of, force=True)
    return await log.experiment(exp_id)


async def test_a_running_experiment_is_not_removed_unless_forced_and_then_its_recorder_is_fenced(
    log: EventLog,
) -> None:
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="tap")
    await log.append(writer, [sent(1)])
    with pytest.raises(ExperimentBusy, match=r"recorder 1 .*or remove it all the same with --force"):
        await remove(log, of, if_idle=True)
    assert (await log.experiment("e1")).status == "open"
    assert await remove(log, of)
    with pytest.raises(RecorderFenced):
        await log.append(writer, [sent(2)])
    assert [verdict async for verdict in verify_all(log)] == []
    async with log.database.reading() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM event")).scalar_one() == 0


async def test_a_recorder_is_fenced_before_the_first_event_goes(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise events that it appends during the removal would remain without an experiment."""
    monkeypatch.setattr("messager_store.maintenance.removal.CHUNK", 10)
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="tap")
    await log.append(writer, [sent(at) for at in range(25)])
    told: list[tuple[int, int]] = []
    refused = []

    def look(done: int, total: int) -> None:
        told.append((done, total))
        refused.append(support.sql(log.location, "SELECT epoch FROM recorder") != [(writer.epoch,)])

    await remove(log, of, progress=look)
    assert told == [(10, 25), (20, 25), (25, 25)] and refused == [True] * 3


@pytest.mark.parametrize("change", ["tagged", "closed", "recorded"])
async def test_what_was_changed_since_it_was_looked_at_is_spared(log: EventLog, change: str) -> None:
    """The answer to a question applies only to the state at the time of the question."""
    of = await filled(log, [sent(1)])
    await sql(log, "UPDATE recorder SET ended_at = 5")
    if change == "tagged":
        await log.tag(of, ["paper"], [])
    elif change == "closed":
        await close(log, of)
    else:
        await log.touch(await log.register(of, role="tap"), ended_at=9)
    looked_at = replace(of, recorders=1)
    with pytest.raises(ExperimentChanged, match="'e1' was tagged, closed or recorded into meanwhile: look at it"):
        await remove(log, looked_at, if_unchanged=True)
    assert await remove(log, await log.experiment("e1"), if_unchanged=True)
    assert await remove(log, of, if_unchanged=True) is False, "gone is not changed"


async def test_what_was_closed_since_it_was_looked_at_is_removed_all_the_same(log: EventLog) -> None:
    of = await filled(log, [sent(1)])
    await close(log, of, force=True)
    assert of.status == "open" and await remove(log, of)
    assert await log.experiments() == []


async def test_what_a_killed_removal_left_is_out_of_sight_and_swept(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager_store.maintenance.removal.CHUNK", 10)
    of = await over(log, "e1", 30)
    await over(log, "e2")

    class Killed(Exception):
        pass

    def die(done: int, total: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        await remove(log, of, progress=die)
    assert [each.exp_id for each in await log.experiments()] == ["e2"]
    assert await sweep_unfinished(log) == 1
    assert [verdict.exp_id async for verdict in verify_all(log)] == ["e2"]
    assert await remove(log, of) is False


@pytest.mark.parametrize(("status", "becomes"), [("removing", "removed"), ("importing", "imported")])
async def test_an_exp_id_that_is_not_free_yet_is_told_or_passed_over_and_never_waited_for(
    log: EventLog, status: str, becomes: str
) -> None:
    await lifecycle.create(log.database, "e1", name=None, tags=[], meta={}, status=status)
    async with asyncio.timeout(60):
        for choice in (None, "append", "fail"):
            with pytest.raises(StoreUnavailable, match=f"'e1' is being {becomes}. .*`messager compact`"):
                await Recorder(log, "e1", if_exists=cast(IfExists | None, choice)).start()
        for choice, exp_id in (("next", "e1-2"), ("next", "e1-2"), ("new", "e1-3")):
            async with Recorder(log, "e1", if_exists=cast(IfExists, choice)) as recorder:
                assert recorder.exp_id == exp_id


async def test_what_an_experiment_holds_is_known_from_its_counters(log: EventLog) -> None:
    of = await over(log, "e1", 10_000, 200)
    (held,) = await usage_of(log, [of])
    assert (held.events, held.payload_bytes, held.begun_at, held.recording) == (10_000, 2_000_000, 0, False)
    assert held.last_at == of.closed_at
    await compact(log)
    async with log.database.reading() as connection:
        assert 0.7 < held.bytes / await log.database.dialect.bytes_on_disk(connection) < 1.2  # a rule of thumb


async def test_only_what_ended_before_the_moment_is_pruned(log: EventLog) -> None:
    now = time.time_ns()
    for exp_id in ("old", "kept", "new"):
        await over(log, exp_id)
    for exp_id in ("left", "alive"):
        await filled(log, [sent(1)], exp_id)
    kept = await log.experiment("kept")
    await log.tag(kept, ["paper"], [])
    await sql(log, f"UPDATE experiment SET closed_at = {now - 40 * DAY} WHERE exp_id IN ('old', 'kept')")
    await sql(log, f"UPDATE recorder SET heartbeat_at = {now - 50 * DAY} WHERE experiment_id = 4")

    async def found(days: int, **options: object) -> tuple[list[str], int]:
        chosen, left = await outdated(log, now - days * DAY, **options)  # type: ignore[arg-type]
        return [each.experiment.exp_id for each in chosen], left

    assert await found(30) == (["old", "kept"], 1)
    assert await found(30, keep_tags=["paper"]) == (["old"], 1)
    assert await found(30, with_open=True) == (["left", "old", "kept"], 0)
    assert await found(45, with_open=True) == (["left"], 0)
    assert await found(60, with_open=True) == ([], 0)
    assert await found(-1, with_open=True) == (["left", "old", "kept", "new"], 0), "one that is recorded never is"


async def test_compacting_gives_back_what_was_freed_and_clears_away_what_was_left(log: EventLog) -> None:
    await over(log, "big", 5000, 500)
    await over(log, "small")
    left = await over(log, "left", 100)
    await sql(log, f"UPDATE experiment SET status = 'removing' WHERE id = {left.id}")
    await remove(log, await log.experiment("big"))
    planned = await plan(log)
    if planned.slack is not None:
        assert planned.slack > 2_000_000 and planned.bytes > planned.slack
    assert (await status(log)).unfinished == 1, "a plan changes nothing: somebody is asked first"
    assert planned.needs and all(need.bytes > 0 for need in planned.needs)
    assert all(need.free is None or need.free > need.bytes for need in planned.needs)
    after = await compact(log)
    assert after < planned.bytes - 2_000_000
    assert (await status(log)).unfinished == 0
    async with log.database.reading() as connection:
        assert after == await log.database.dialect.bytes_on_disk(connection)
        assert not await log.database.dialect.slack(connection)
    assert [verdict.ok async for verdict in verify_all(log)] == [True]


async def test_compacting_waits_for_nobody_for_ever(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messager_store.db.sqlite.dialect.REWRITE_SECONDS", 0.0)
    monkeypatch.setattr("messager_store.db.sqlite.dialect.BUSY_TIMEOUT_MS", 100)
    async with EventLog.open(store) as log:
        await over(log, "e1", 500, 500)
        with locked(store), pytest.raises(StoreUnavailable, match="another program keeps it locked"):
            await compact(log)
        assert await compact(log) > 0
        await filled(log, [sent(1)], "e2")


async def test_a_store_that_is_recorded_into_is_not_compacted_unless_forced(log: EventLog) -> None:
    await filled(log, [sent(1)])
    with pytest.raises(StoreBusy, match=r"recorder 1 of e1 is still writing.*--force"):
        await plan(log)
    assert (await plan(log, while_recorded=True)).needs


@pytest.mark.sqlite  # a client of a server cannot see its disk
async def test_compacting_needs_room_and_says_how_much(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    await over(log, "e1", 500, 500)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**9, 10**9 - 1000, 1000))
    with pytest.raises(StoreError, match=r"compaction temporarily needs \d\.\d MB in .*, but only 0\.0 MB are free"):
        await plan(log)


async def test_no_sql_of_a_path_reaches_the_store(tmp_path: Path) -> None:
    async with EventLog.open(str(tmp_path / "odd 'name'?.db")) as log:
        await over(log, "e1")
        await plan(log)
        assert await compact(log) > 0


async def problems(log: EventLog, **options: object) -> list[tuple[str, str]]:
    found = await status(log, **options)  # type: ignore[arg-type]
    return [(each.what, each.remedy) for each in found.problems]


async def test_a_store_where_all_is_well_needs_nobody(log: EventLog) -> None:
    await over(log, "done")
    of = await filled(log, [sent(1)], "running")
    found = await status(log)
    assert (found.open, found.closed, found.unfinished, found.problems, found.spools) == (1, 1, 0, [], [])
    assert [(each.exp_id, each.state, each.events) for each in found.recorders] == [("running", "alive", 1)]
    assert found.store_bytes > 0 and bool(found.free_bytes) is ("://" not in log.location)
    assert (await status(log, idle_s=0)).recorders[0].state == "idle"
    await sql(log, f"UPDATE recorder SET ended_at = heartbeat_at WHERE experiment_id = {of.id}")
    assert (await status(log)).recorders == []


async def test_a_dead_recorder_is_told_with_the_command_that_closes_it(log: EventLog) -> None:
    await filled(log, [sent(1)])
    await sql(log, "UPDATE recorder SET pid = 4194305")  # a process that cannot be
    ((what, remedy),) = await problems(log)
    assert "recorder 1 of e1" in what and "ended uncleanly" in what and remedy == "messager repair e1"
    await repair(log, await log.experiment("e1"))
    assert await problems(log) == []


async def test_a_spool_that_nobody_drains_is_told_and_comes_before_repair(log: EventLog, tmp_path: Path) -> None:
    of = await log.create_experiment("e1")
    path = tmp_path / "spools" / f"{'a' * 32}.spool"
    await log.register(of, role="messager", name="a" * 32, spool=str(path))
    spool = Spool(path, {"recorder": "a" * 32, "exp_id": "e1", "store": log.location})
    spool.write(1, [sent(5), sent(6)], 7)
    found = await status(log)
    assert found.problems == [], "its recorder lives and drains it"
    assert [(info.events, info.held, info.oldest_at) for info in found.spools] == [(2, True, 5)]
    spool.close()
    await sql(log, "UPDATE recorder SET pid = 4194305")
    ((what, remedy),) = await problems(log)
    assert "2 events of e1 wait in" in what and remedy == "messager drain"
    stranger = Spool(tmp_path / "spools" / f"{'b' * 32}.spool", {"recorder": "b", "exp_id": "x", "store": "/other.db"})
    stranger.write(1, [sent(5)], 7)
    stranger.close()
    assert len((await status(log, tmp_path / "spools")).spools) == 1, "of another store"


async def spooled(log: EventLog, exp_id: str = "e1") -> Path:
    """Spool of an open experiment whose recorder has ended."""
    of = await log.create_experiment(exp_id)
    name = exp_id.ljust(32, "0")
    path = Path(log.database.dialect.spool_folders[0]) / f"{name}.spool"
    await log.register(of, role="messager", name=name, spool=str(path))
    spool = Spool(path, {"recorder": name, "exp_id": exp_id, "store": log.location})
    spool.write(1, [sent(5), sent(6)], 7)
    spool.close()
    await sql(log, "UPDATE recorder SET pid = 4194305")
    return path


async def test_a_spool_that_the_store_takes_no_more_is_to_be_deleted_and_not_drained(log: EventLog) -> None:
    path = await spooled(log)
    of = await log.experiment("e1")
    await close(log, of, force=True)
    ((what, remedy), *_) = await problems(log)
    assert "2 events of e1 wait in" in what and str(path) in what and "closed" in what
    assert remedy == "to discard the events, delete the file"
    await remove(log, await log.experiment("e1"))
    assert [remedy for _, remedy in await problems(log)] == ["to discard the events, delete the file"]
    path.unlink()
    assert await problems(log) == []


async def test_an_experiment_is_told_with_the_spool_that_waits_for_it(log: EventLog) -> None:
    path = await spooled(log)
    (held,) = await usage_of(log, [await log.experiment("e1")])
    assert held.spool == str(path)
    await close(log, held.experiment, force=True)
    (held,) = await usage_of(log, [await log.experiment("e1")])
    assert held.spool is None, "a closed one takes no more"


@pytest.mark.sqlite  # a client of a server cannot see its disk
async def test_a_disk_that_is_nearly_full_is_told(log: EventLog) -> None:
    ((what, remedy),) = await problems(log, min_free=1 << 60)
    assert "MB free" in what and "messager prune" in remedy


async def test_verify_tells_an_import_that_did_not_finish_from_a_removal_with_what_clears_them_away(
    log: EventLog,
) -> None:
    for exp_id, state in (("a", "importing"), ("b", "removing"), ("c", "removing")):
        await lifecycle.create(log.database, exp_id, name=None, tags=[], meta={}, status=state)
    [stray] = [verdict async for verdict in verify_all(log)]
    remedy = "did not finish (yet); `messager compact` removes what was killed"
    assert (stray.problems, stray.notes) == ([], [f"1 import {remedy}", f"2 removals {remedy}"])
    await compact(log)
    [stray] = [verdict async for verdict in verify_all(log)]
    assert stray.notes == [f"1 import {remedy}"], "its process may still be at its beginning"


async def test_a_killed_import_is_counted(log: EventLog) -> None:
    await lifecycle.create(log.database, "importing x", name=None, tags=[], meta={}, status="importing")
    found = await status(log)
    assert (found.unfinished, found.open, found.problems) == (1, 0, [])
