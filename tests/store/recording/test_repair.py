"""Repair after a crash: gaps, takeover of recorders, and refused writers."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker
from messager_store import EventLog, NewEvent, Recorder
from messager_store.errors import ExperimentClosed, RecorderFenced, StoreError, StoreUnavailable
from messager_store.experiments import lifecycle, records
from messager_store.log.chain import head_of
from messager_store.maintenance.verify import verify
from messager_store.recording.closing import close
from messager_store.recording.repair import repair
from messager_store.recording.tap import Tap
from tests.support import ROOT, sql, until
from tests.support.logs import sent
from tests.support.outages import everything_drained, locked, numbers, payloads, take

pytestmark = pytest.mark.usefixtures("quick")


async def test_repair_says_what_a_crash_may_have_cost(log: EventLog, store: str, tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text(
        textwrap.dedent("""
        import asyncio, os, signal, sys
        from messager import MessageRecord
        from messager_store import EventLog, Recorder

        async def main():
            async with EventLog.open(sys.argv[1]) as log, Recorder(log, "e1") as recorder:
                recorder.after(MessageRecord("sent", recorder.clock.now(), "c", b"kept"))
                await recorder.flush()
                recorder.after(MessageRecord("sent", recorder.clock.now(), "c", b"lost"))
                os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
        """)
    )
    subprocess.run([sys.executable, str(program), store], cwd=ROOT, timeout=60, check=False)
    of = await log.experiment("e1")
    assert "ended uncleanly" in str((await verify(log, of)).problems)
    [known] = await repair(log, of)
    assert (known.recorder, known.events, known.spool) == (1, 1, None)
    assert known.since <= known.until
    assert (await verify(log, of)).problems == []
    assert await repair(log, of) == []
    found = [entry async for entry in log.read("e1")]
    assert [(entry.kind, entry.recorder) for entry in found] == [("sent", 1), ("gap", 2)]
    assert found[1].meta is not None and found[1].meta["recorder"] == 1 and found[1].meta["count"] is None
    assert found[0].ts < found[1].meta["since"] == found[1].ts  # so that a late repair stretches nothing
    rows = await log.recorders()
    assert [(row.state, row.role) for row in rows] == [("repaired", "messager"), ("ended", "repair")]


async def test_a_recorder_that_was_taken_for_dead_goes_on_where_it_was(log: EventLog) -> None:
    async with Recorder(log, "e1") as taker:
        take(taker, 0, 10)
        await taker.flush()
        async with log.database.writing() as connection:  # silent for long: a laptop that slept
            await connection.exec_driver_sql("UPDATE recorder SET heartbeat_at = 0")
        of = await log.experiment("e1")
        assert len(await repair(log, of)) == 1
        take(taker, 10, 10)
        await taker.flush()
        assert taker.failure is None
    assert await payloads(log) == numbers(0, 20)
    assert (await verify(log, of)).problems == []
    rows = await log.recorders()
    assert [(row.role, row.state) for row in rows] == [("messager", "ended"), ("repair", "ended")]


async def test_a_batch_that_was_committed_without_an_answer_before_a_repair_is_in_the_log_once(log: EventLog) -> None:
    committed, answers = asyncio.Event(), False

    class Unanswered(EventLog):
        async def append(self, writer: Any, *given: Any, **named: Any) -> None:
            known = writer.last_seq, writer.head_hash
            await super().append(writer, *given, **named)
            if not answers:
                writer.last_seq, writer.head_hash = known
                committed.set()
                raise StoreUnavailable("the store", "its answer was lost")

        async def recover(self, writer: Any) -> int:
            if not answers:
                raise StoreUnavailable("the store", "it is away")
            return await super().recover(writer)

    async with Recorder(Unanswered(log.database), "e1") as taker:
        take(taker, 0, 10)
        await committed.wait()
        async with log.database.writing() as connection:
            await connection.exec_driver_sql("UPDATE recorder SET heartbeat_at = 0")
        assert len(await repair(log, await log.experiment("e1"))) == 1
        answers = True
        take(taker, 10, 10)
        await until(lambda: not len(taker))
    assert await payloads(log) == numbers(0, 20)
    assert (await verify(log, await log.experiment("e1"))).problems == []


async def test_a_recorder_in_whose_name_somebody_else_wrote_keeps_out_of_the_log(log: EventLog) -> None:
    taker = Recorder(log, "e1")
    await taker.start()
    take(taker, 0, 10)
    await taker.flush()
    await log.append(await log.take_over(taker.uuid), [NewEvent("sent", 999, "c", b"10")])
    take(taker, 10, 10)
    with pytest.raises(RecorderFenced):
        await taker.stop()
    assert taker.spooled == 10
    assert await payloads(log) == numbers(0, 11)


async def test_a_recorder_whose_spool_somebody_drained_goes_on_behind_it(log: EventLog) -> None:
    stolen = asyncio.Event()

    class Waits(EventLog):
        async def append(self, *given: Any, **named: Any) -> None:
            await stolen.wait()
            await super().append(*given, **named)

    async with Recorder(Waits(log.database), "e1") as taker:
        take(taker, 0, 10)
        await until(lambda: taker.spooled == 10)
        thief = await log.take_over(taker.uuid)  # somebody for whom locks cannot be seen
        await log.append(thief, taker._buffer.spool.read(1, 10, 10**6))
        take(taker, 10, 10)
        stolen.set()
        await until(lambda: not len(taker))
        assert taker.failure is None
    assert await payloads(log) == numbers(0, 20)


async def test_repair_waits_for_a_spool_to_be_drained_unless_forced(log: EventLog, store: str) -> None:
    taker = Recorder(log, "e1")
    await taker.start()
    with locked(store):
        take(taker, 0, 20)
        await taker.stop()
    async with log.database.writing() as connection:  # as if its process were gone
        await connection.exec_driver_sql("UPDATE recorder SET heartbeat_at = 0")
    of = await log.experiment("e1")
    [known] = await repair(log, of)
    assert known.spool == str(taker.spool_path)
    with pytest.raises(StoreError, match="messager drain"):
        await close(log, of)
    [forced] = await repair(log, of, force=True)
    assert forced.spool is None
    [done] = await everything_drained(log, taker.spool_path.parent)  # it still fits
    assert (done.events, done.reason) == (20, None)
    assert await payloads(log) == numbers(0, 20)
    assert (await verify(log, of)).problems == []
    await close(log, of)


async def test_closing_ends_also_a_recorder_that_died_after_the_repair(log: EventLog) -> None:
    of = await log.create_experiment("e1")
    await log.append(await log.register(of, role="tap"), [sent(1)])
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE recorder SET heartbeat_at = 0")
    await lifecycle.mark_closed(log.database, of)
    assert [row.state for row in await log.recorders()] == ["repaired"]
    assert (await verify(log, await log.experiment("e1"))).problems == []


async def test_a_spool_of_a_closed_experiment_stays_and_says_why(log: EventLog, store: str) -> None:
    taker = Recorder(log, "e1")
    await taker.start()
    with locked(store):
        take(taker, 0, 20)
        await taker.stop()
    of = await log.experiment("e1")
    await close(log, of, force=True)
    head = head_of(await log.recorders(of))
    [done] = await everything_drained(log, taker.spool_path.parent)
    assert done.left == 20 and "closed" in (done.reason or "") and taker.spool_path.exists()
    assert head_of(await log.recorders(of)) == head
    with pytest.raises(ExperimentClosed):
        await log.take_over(taker.uuid)


async def test_a_tap_that_starts_again_says_what_it_missed(log: EventLog) -> None:
    broker = MemoryBroker()

    async def listen(patterns: list[str]) -> Recorder:
        active = asyncio.Event()
        taker = Recorder(log, "e1", role="tap", patterns=patterns)
        await taker.start()
        task = asyncio.create_task(Tap(broker, taker, patterns, active=active.set).run(max_events=1))
        await active.wait()
        await broker.publish([(b"a", b"x")])
        await task
        await taker.flush()
        return taker

    async def gaps() -> list[tuple[int, int]]:
        found = [entry async for entry in log.read("e1", kinds=["gap"])]
        return [(entry.meta["since"], entry.meta["until"]) for entry in found if entry.meta]

    await (await listen(["a"])).stop()
    crashed = await listen(["a", "b"])
    assert await gaps() == []  # the one before had ended cleanly
    async with log.database.writing() as connection:  # as if its process were gone
        await connection.exec_driver_sql("UPDATE recorder SET heartbeat_at = 0 WHERE ordinal = 2")
    last = (await log.recorders())[1].last_ts
    assert last is not None
    again = await listen(["a"])
    [(since, until_)] = await gaps()
    assert last <= since <= until_ <= again.clock.now()
    await again.stop()
    with contextlib.suppress(StoreError):
        await crashed.stop()


async def test_what_a_recorder_whose_clock_was_ahead_may_have_lost_lies_in_a_gap(log: EventLog, store: str) -> None:
    """The gap was once empty: by the local clock, the recorder started after its repair."""
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    ahead = time.time_ns() + 3_600_000_000_000
    await log.append(writer, [NewEvent("sent", ahead, "c", b"x")], complete_until=ahead)
    sql(store, f"UPDATE recorder SET pid = {1 << 22 | 1}")
    [known] = await repair(log, of)
    assert (known.since, known.until) == (ahead, ahead + records.SILENT_NS)
