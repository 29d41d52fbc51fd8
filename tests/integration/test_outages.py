"""While the store is away: nothing is lost, nothing is doubled, nothing goes unnoticed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager, MessageRecord, PublishError
from messager_store import EventLog, NewEvent, Recorder, backlog, committer, recorder
from messager_store import experiments as registry
from messager_store.dialects.sqlite_append import Appender
from messager_store.draining import Drained, drain
from messager_store.errors import ExperimentClosed, RecorderFenced, StoreError, StoreUnavailable
from messager_store.messages import message_pages
from messager_store.reading import Selection, Span
from messager_store.repair import close, repair
from messager_store.spool import spools
from messager_store.tap import Tap
from messager_store.verify import verify
from tests.support import ROOT, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short times, so that an outage need not be long."""
    monkeypatch.setattr("messager_store.dialects.sqlite.BUSY_TIMEOUT_MS", 50)
    monkeypatch.setattr(committer, "SPOOL_SECONDS", 0.05)
    monkeypatch.setattr(committer, "HOLD_SECONDS", 0.2)
    monkeypatch.setattr(recorder, "STOP_SECONDS", 0.3)
    monkeypatch.setattr(committer, "STOP_SECONDS", 0.3)


@contextlib.contextmanager
def locked(store: str) -> Iterator[None]:
    """Somebody else keeps the store locked."""
    other = sqlite3.connect(store, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def take(taker: Recorder, first: int, number: int) -> None:
    for at in range(first, first + number):
        taker.after(MessageRecord("sent", at, f"c{at % 3}", b"%d" % at, from_id=at % 5))


async def payloads(log: EventLog, exp_id: str = "e1") -> list[bytes]:
    return [entry.payload async for entry in log.read(exp_id, kinds=["sent"])]


def numbers(first: int, number: int) -> list[bytes]:
    return [b"%d" % at for at in range(first, first + number)]


async def everything_drained(log: EventLog, folder: Path) -> list[Drained]:
    return [done async for done in drain(log, folder)]


async def test_a_locked_store_is_waited_for_on_disk_and_drained_in_order(
    log: EventLog, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Recorder(log, "e1") as taker:
        take(taker, 0, 100)
        await taker.flush()
        with locked(store):
            take(taker, 100, 100)
            await until(lambda: taker.spooled == 100)
            take(taker, 200, 100)
            await until(lambda: taker.spooled == 200)
            [info] = spools(Path(f"{store}-spool"))
            assert (info.events, info.held, info.exp_id) == (200, True, "e1")
            with pytest.raises(StoreUnavailable):
                await taker.flush()
        take(taker, 300, 100)
        await until(lambda: not len(taker))
        assert await payloads(log) == numbers(0, 400)
        assert not Path(f"{store}-spool").exists()
    assert (await verify(log.database, await log.experiment("e1"))).problems == []
    assert taker.dropped == 0 and "takes events again" in caplog.text
    assert caplog.text.count("keeping events in") == 1  # not once for each try


async def test_what_is_left_at_the_end_of_an_outage_is_drained_later_and_only_once(log: EventLog, store: str) -> None:
    taker = Recorder(log, "e1")
    await taker.start()
    take(taker, 0, 10)
    await taker.flush()
    with locked(store):
        take(taker, 10, 20)
        await taker.stop()  # does not raise: nothing is lost
        assert taker.spooled == 20 and taker.failure is None
    of = await log.experiment("e1")
    folder = taker.spool_path.parent
    copy = taker.spool_path.read_bytes()
    [done] = await everything_drained(log, folder)
    assert (done.events, done.ended, done.reason) == (20, True, None)
    assert await payloads(log) == numbers(0, 30)
    assert (await verify(log.database, of)).problems == []
    assert await everything_drained(log, folder) == []
    folder.mkdir()
    (folder / taker.spool_path.name).write_bytes(copy)  # as if the drain had been killed before it removed the file
    [again] = await everything_drained(log, folder)
    assert (again.events, again.ended, again.reason) == (0, True, None)
    assert await payloads(log) == numbers(0, 30)


async def test_an_interrupted_drain_goes_on_where_it_stopped(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager_store.draining.BATCH_EVENTS", 7)
    taker = Recorder(log, "e1")
    await taker.start()
    with locked(store):
        take(taker, 0, 50)
        await taker.stop()
    appended = 0
    append = log.append

    async def dies(*given: object, **named: object) -> None:
        nonlocal appended
        appended += 1
        if appended == 4:
            raise StoreError("killed")
        await append(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "append", dies)
    with pytest.raises(StoreError, match="killed"):
        await everything_drained(log, taker.spool_path.parent)
    monkeypatch.setattr(log, "append", append)
    assert await payloads(log) == numbers(0, 21)
    [done] = await everything_drained(log, taker.spool_path.parent)
    assert done.events == 29 and await payloads(log) == numbers(0, 50)
    assert (await verify(log.database, await log.experiment("e1"))).problems == []


async def test_a_recorder_that_starts_again_drains_what_the_one_before_left(log: EventLog, store: str) -> None:
    first = Recorder(log, "e1")
    await first.start()
    with locked(store):
        take(first, 0, 20)
        await first.stop()
    async with Recorder(log, "e1") as second:
        assert await payloads(log) == numbers(0, 20)
        take(second, 20, 5)
    assert await payloads(log) == numbers(0, 25)
    assert (await verify(log.database, await log.experiment("e1"))).problems == []


async def test_a_store_moved_away_under_an_open_connection_is_not_written_to(log: EventLog, store: str) -> None:
    async with Recorder(log, "e1") as taker:
        take(taker, 0, 10)
        await taker.flush()
        os.rename(store, f"{store}.moved")
        take(taker, 10, 10)
        await until(lambda: taker.spooled == 10)
        assert not Path(store).exists()  # and no empty one was made in its place
        with pytest.raises(StoreUnavailable, match="was it moved"):
            await taker.flush()
        os.rename(f"{store}.moved", store)
        await until(lambda: not len(taker))
    assert await payloads(log) == numbers(0, 20)


async def test_another_store_in_its_place_gets_nothing_and_the_rest_is_kept(log: EventLog, store: str) -> None:
    taker = Recorder(log, "e1")
    await taker.start()
    take(taker, 0, 10)
    await taker.flush()
    async with log.database.reading() as connection:
        await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    os.rename(store, f"{store}.moved")
    for ending in ("-wal", "-shm"):
        Path(store + ending).unlink(missing_ok=True)
    async with EventLog.open(store) as fresh:
        await registry.create(fresh.database, "other", name=None, tags=[], meta={})
    take(taker, 10, 10)
    with pytest.raises(RecorderFenced):
        await taker.stop()
    assert taker.spooled == 10
    [done] = await everything_drained(log, taker.spool_path.parent)
    assert done.left == 10 and "knows no such recorder" in (done.reason or "")
    os.replace(f"{store}.moved", store)
    async with EventLog.open(store) as back:
        assert [done.events for done in await everything_drained(back, taker.spool_path.parent)] == [10]
        assert await payloads(back) == numbers(0, 20)


async def test_a_disk_that_is_full_is_waited_for(
    log: EventLog, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = False
    current = Appender._current

    def limited(self: Appender) -> sqlite3.Connection:
        connection = current(self)
        pages = connection.execute("PRAGMA page_count").fetchone()[0] if full else 1_000_000
        connection.execute(f"PRAGMA max_page_count={pages}")
        return connection

    monkeypatch.setattr(Appender, "_current", limited)
    async with Recorder(log, "e1", spool=tmp_path / "elsewhere") as taker:
        take(taker, 0, 10)
        await taker.flush()
        full = True
        for at in range(10, 20):
            taker.after(MessageRecord("sent", at, "c", b"%d" % at + bytes(20_000)))
        await until(lambda: taker.spooled == 10)
        assert [info.events for info in spools(tmp_path / "elsewhere")] == [10]
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await taker.flush()
        full = False
        await until(lambda: not len(taker))
    assert [payload.rstrip(b"\0") for payload in await payloads(log)] == numbers(0, 20)


async def test_where_store_and_spool_are_full_senders_are_held_for_a_while_and_then_events_are_counted(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backlog, "MEMORY_EVENTS", 20)
    held = 0
    hold = committer.Committer.hold

    async def counted(self: committer.Committer, most: int | None = None) -> None:
        nonlocal held
        held += 1
        await hold(self, most)

    monkeypatch.setattr(committer.Committer, "hold", counted)
    async with Recorder(log, "e1", spool_bytes=1) as taker:
        async with Messager(MemoryBroker(), "e1") as messager:
            messager.add_log_hook(taker)
            with locked(store):
                for at in range(30):
                    await messager.send_message("c", {"n": at})
            await until(lambda: not len(taker))
            await messager.send_message("c", {"n": 30})
    assert held and (taker.accepted, taker.dropped) == (21, 10)
    assert "takes no more events" in caplog.text and "being dropped" in caplog.text
    found = [entry async for entry in log.read("e1")]
    assert [entry.payload for entry in found if entry.kind == "sent"] == [b'{"n": %d}' % at for at in (*range(20), 30)]
    assert [entry.meta["count"] for entry in found if entry.kind == "gap" and entry.meta] == [10]


async def test_room_in_the_spool_spares_the_senders(log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MEMORY_EVENTS", 20)
    async with Recorder(log, "e1") as taker:
        async with Messager(MemoryBroker(), "e1") as messager:
            messager.add_log_hook(taker)
            with locked(store):
                for at in range(100):
                    await messager.send_message("c", {"n": at})
    assert (taker.accepted, taker.dropped) == (100, 0)
    assert len(await payloads(log)) == 100


async def test_strict_has_every_sending_in_the_log_before_it_is_published(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "SPOOL_SECONDS", 60)  # the store alone, however slow this machine is
    seen: list[int] = []

    class Looks(MemoryBroker):
        async def publish(self, messages):  # type: ignore[no-untyped-def]
            async with log.database.reading() as connection:
                rows = await connection.exec_driver_sql("SELECT count(*) FROM event WHERE kind = 1")
                seen.append(rows.scalar_one() - len(messages))
            return await super().publish(messages)

    async with Recorder(log, "e1", durability="strict") as taker, Messager(Looks(), "e1") as messager:
        messager.add_log_hook(taker)
        await messager.send_message("c", {"n": 0})
        await asyncio.gather(*(messager.send_message("c", {"n": at}) for at in range(1, 200)))
        commits = taker.acknowledged
    assert seen[0] == 0 and seen == sorted(seen) and len(seen) < 20 and commits >= 200
    found = [entry async for entry in log.read("e1")]
    assert [entry.kind for entry in found] == ["sent"] * 200
    assert {entry.receivers for entry in found} == {None}
    [row] = await registry.recorders_of(log.database)
    assert row.durability == "strict"


async def test_strict_uses_the_spool_where_the_store_is_away(log: EventLog, store: str) -> None:
    broker = MemoryBroker()
    async with Recorder(log, "e1", durability="strict") as taker, Messager(broker, "e1") as messager:
        messager.add_log_hook(taker)
        with locked(store):
            for at in range(5):
                await messager.send_message("c", {"n": at})
                [info] = spools(taker.spool_path.parent)
                assert info.events == at + 1
        await until(lambda: not len(taker))
    assert len(await payloads(log)) == 5


async def test_strict_does_not_send_what_it_cannot_keep(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = MemoryBroker()
    published: list[object] = []
    publish = broker.publish

    async def listed(messages):  # type: ignore[no-untyped-def]
        published.extend(messages)
        return await publish(messages)

    monkeypatch.setattr(broker, "publish", listed)
    async with Recorder(log, "e1", durability="strict", spool_bytes=1) as taker, Messager(broker, "e1") as messager:
        messager.add_log_hook(taker)
        with locked(store):
            with pytest.raises(StoreUnavailable, match="not sent"):
                await messager.send_message("c", {"n": 1})
        assert published == []
        await until(lambda: not len(taker))
        await messager.send_message("c", {"n": 2})
    of = await log.experiment("e1")
    found = [entry async for entry in log.read(of)]
    assert [entry.kind for entry in found] == ["sent", "failed", "sent"]  # the intent, taken back
    assert found[1].cause == (1, 1)
    told = [entry async for page in message_pages(log.database, of, Selection(), Span()) for entry in page]
    assert [entry.payload for entry in told] == [b'{"n": 2}']


async def test_strict_takes_a_failed_publish_back(log: EventLog) -> None:
    class Breaks(MemoryBroker):
        async def publish(self, messages):  # type: ignore[no-untyped-def]
            return [PublishError("the answer was lost", "unknown") for _ in messages]

    async with Recorder(log, "e1", durability="strict") as taker, Messager(Breaks(), "e1") as messager:
        messager.add_log_hook(taker)
        with pytest.raises(PublishError):
            await messager.send_message("c", {"n": 1})
        messager.mark("after")
    found = [entry async for entry in log.read("e1")]
    assert [(entry.kind, entry.cause) for entry in found] == [("sent", None), ("failed", (1, 1)), ("mark", None)]
    assert found[1].meta is not None and found[1].meta["outcome"] == "unknown"
    async with log.database.reading() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM message")).scalar_one() == 0


@pytest.mark.parametrize("durability", ["buffered", "strict"])
async def test_what_is_under_way_when_a_recorder_stops_is_recorded_with_its_outcome(
    log: EventLog, durability: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "STOP_SECONDS", 30)
    monkeypatch.setattr(committer, "STOP_SECONDS", 30)
    answered = asyncio.Event()
    publishing = asyncio.Event()

    class Slow(MemoryBroker):
        async def publish(self, messages):  # type: ignore[no-untyped-def]
            publishing.set()
            await answered.wait()
            return [PublishError("the answer was lost", "unknown") for _ in messages]

    taker = Recorder(log, "e1", durability=durability)
    await taker.start()
    async with Messager(Slow(), "e1") as messager:
        messager.add_log_hook(taker)
        sending = asyncio.create_task(messager.send_message("c", {"n": 1}))
        await publishing.wait()
        stopping = asyncio.create_task(taker.stop())
        await asyncio.sleep(0)
        answered.set()
        with pytest.raises(PublishError):
            await sending
        await stopping
    kinds = [entry.kind async for entry in log.read("e1")]
    assert kinds == (["failed"] if durability == "buffered" else ["sent", "failed"])


async def test_a_strict_recorder_that_has_ended_lets_nothing_through(log: EventLog) -> None:
    taker = Recorder(log, "e1", durability="strict")
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(taker)
        with pytest.raises(StoreError, match="not been started"):
            await messager.send_message("c", {})
        await taker.start()
        await messager.send_message("c", {})
        await taker.stop()
        with pytest.raises(StoreError, match="has ended, and it is strict"):
            await messager.send_message("c", {})
    assert len(await payloads(log)) == 1


def test_a_durability_that_there_is_not_is_refused(store: str) -> None:
    async def make() -> None:
        async with EventLog.open(store) as log:
            Recorder(log, "e1", durability="eventual")  # type: ignore[arg-type]

    with pytest.raises(StoreError, match="buffered or strict"):
        asyncio.run(make())


async def test_what_a_cancelled_committer_had_is_in_the_spool(log: EventLog) -> None:
    taker = Recorder(log, "e1")
    await taker.start()
    take(taker, 0, 10)
    await taker.flush()
    take(taker, 10, 10)
    assert taker._committer is not None
    taker._committer._task.cancel()
    await taker.stop()
    assert taker.spooled == 10
    with pytest.raises(StoreError, match="10 events wait"):
        await taker.flush()
    assert [done.events for done in await everything_drained(log, taker.spool_path.parent)] == [10]
    assert await payloads(log) == numbers(0, 20)


async def test_a_commit_that_never_returns_holds_up_neither_strict_senders_nor_the_end(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hangs(EventLog):
        async def append(self, *given: Any, **named: Any) -> None:
            await asyncio.Event().wait()

    taker = Recorder(Hangs(log.database), "e1", durability="strict")
    await taker.start()
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(taker)
        for number in range(5):
            await messager.send_message("c", {"n": number})
    await taker.stop()
    assert taker.spooled == 5
    assert [done.events for done in await everything_drained(log, taker.spool_path.parent)] == [5]


async def test_what_redact_gives_must_be_an_event(log: EventLog) -> None:
    async with Recorder(log, "e1", redact=lambda entry: entry._replace(payload=None)) as taker:  # type: ignore[arg-type]
        take(taker, 0, 5)
    assert (taker.accepted, taker.dropped) == (0, 5)
    [gap] = [entry async for entry in log.read("e1")]
    assert gap.kind == "gap" and gap.meta is not None and gap.meta["count"] == 5


async def test_memory_that_fills_up_goes_to_disk_before_the_store_is_known_to_be_away(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "SPOOL_SECONDS", 60)
    monkeypatch.setattr(backlog, "MEMORY_BYTES", 1_000_000)
    async with Recorder(log, "e1") as taker:
        with locked(store):
            for number in range(60):
                taker.after(MessageRecord("sent", number, "c", bytes(20_000)))
                await taker.room(10_000)
    assert (taker.accepted, taker.dropped) == (60, 0)
    assert len(await payloads(log)) == 60


async def test_a_spool_of_another_store_is_left_to_that_store(log: EventLog, store: str, tmp_path: Path) -> None:
    taker = Recorder(log, "e1", spool=tmp_path / "shared")
    await taker.start()
    with locked(store):
        take(taker, 0, 10)
        await taker.stop()
    async with log.database.reading() as connection:
        await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(store, tmp_path / "copy.db")
    for other in ("copy.db", "empty.db"):
        async with EventLog.open(str(tmp_path / other)) as elsewhere:
            [done] = await everything_drained(elsewhere, tmp_path / "shared")
            assert (done.events, done.left) == (0, 10) and f"belongs to the store {log.where}" in (done.reason or "")
    heartbeat = (await registry.recorders_of(log.database))[0].heartbeat_at
    assert [done.events for done in await everything_drained(log, tmp_path / "shared")] == [10]
    assert (await registry.recorders_of(log.database))[0].heartbeat_at == heartbeat  # no sign of its life


async def test_redact_sees_every_event_before_it_is_kept_anywhere(log: EventLog, store: str) -> None:
    def redact(entry: NewEvent) -> NewEvent | None:
        if entry.payload == b'{"drop": 1}':
            return None
        if entry.payload == b'{"raise": 1}':
            raise RuntimeError("a fault in it")
        return entry._replace(payload=entry.payload.replace(b"secret", b"******"))

    for durability in ("buffered", "strict"):
        async with Recorder(log, durability, durability=durability, redact=redact) as taker:  # type: ignore[arg-type]
            async with Messager(MemoryBroker(), "e1") as messager:
                messager.add_log_hook(taker)
                await messager.send_message("c", {"a": "secret"})
                await messager.send_message("c", {"drop": 1})
                if durability == "strict":
                    with pytest.raises(StoreError, match="redact"):
                        await messager.send_message("c", {"raise": 1})
                else:
                    await messager.send_message("c", {"raise": 1})
                await taker.flush()
                with locked(store):
                    await messager.send_message("c", {"b": "secret"})
                    await until(lambda taker=taker: taker.spooled > 0)  # type: ignore[misc]
                    assert b"secret" not in taker.spool_path.read_bytes()
        assert await payloads(log, durability) == [b'{"a": "******"}', b'{"b": "******"}']
    assert b"secret" not in Path(store).read_bytes() + Path(f"{store}-wal").read_bytes()


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
    assert "ended uncleanly" in str((await verify(log.database, of)).problems)
    [known] = await repair(log, of)
    assert (known.recorder, known.events, known.spool) == (1, 1, None)
    assert known.since <= known.until
    assert (await verify(log.database, of)).problems == []
    assert await repair(log, of) == []
    found = [entry async for entry in log.read("e1")]
    assert [(entry.kind, entry.recorder) for entry in found] == [("sent", 1), ("gap", 2)]
    assert found[1].meta is not None and found[1].meta["recorder"] == 1 and found[1].meta["count"] is None
    assert found[0].ts < found[1].meta["since"] == found[1].ts  # so that a late repair stretches nothing
    rows = await registry.recorders_of(log.database)
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
    assert (await verify(log.database, of)).problems == []
    rows = await registry.recorders_of(log.database)
    assert [(row.role, row.state) for row in rows] == [("messager", "ended"), ("repair", "ended")]


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
        await log.append(thief, taker._backlog.spool.read(1, 10, 10**6))
        take(taker, 10, 10)
        stolen.set()
        await until(lambda: not len(taker))
        assert taker.failure is None
    assert await payloads(log) == numbers(0, 20)


async def test_two_recorders_of_one_log_wait_for_each_other_and_lose_nothing(log: EventLog, store: str) -> None:
    async with Recorder(log, "e1") as first, Recorder(log, "e1") as second:
        with locked(store):
            for at in range(0, 100, 10):
                take(first, at, 10)
                take(second, 1000 + at, 10)
                await asyncio.sleep(0.02)
        await until(lambda: not len(first) and not len(second))
    assert sorted(await payloads(log), key=int) == numbers(0, 100) + numbers(1000, 100)
    assert (await verify(log.database, await log.experiment("e1"))).problems == []


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
    assert (await verify(log.database, of)).problems == []
    await close(log, of)


async def test_a_spool_of_a_closed_experiment_stays_and_says_why(log: EventLog, store: str) -> None:
    taker = Recorder(log, "e1")
    await taker.start()
    with locked(store):
        take(taker, 0, 20)
        await taker.stop()
    of = await log.experiment("e1")
    await close(log, of, force=True)
    head = registry.head_of(await registry.recorders_of(log.database, of.id))
    [done] = await everything_drained(log, taker.spool_path.parent)
    assert done.left == 20 and "closed" in (done.reason or "") and taker.spool_path.exists()
    assert registry.head_of(await registry.recorders_of(log.database, of.id)) == head
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
    last = (await registry.recorders_of(log.database))[1].last_ts
    assert last is not None
    again = await listen(["a"])
    [(since, until_)] = await gaps()
    assert last <= since <= until_ <= again.clock.now()
    await again.stop()
    with contextlib.suppress(StoreError):
        await crashed.stop()


async def test_what_a_recorder_whose_clock_was_ahead_may_have_lost_lies_in_a_gap(log: EventLog, store: str) -> None:
    """The gap was empty: by our clock, the recorder had not even begun when it was repaired."""
    of = await registry.create(log.database, "e1", name=None, tags=[], meta={})
    assert of is not None
    writer = await log.register(of, role="messager")
    ahead = time.time_ns() + 3_600_000_000_000
    await log.append(writer, [NewEvent("sent", ahead, "c", b"x")], complete_until=ahead)
    with sqlite3.connect(store) as other:
        other.execute("UPDATE recorder SET pid = ?", (1 << 22 | 1,))
    other.close()
    [known] = await repair(log, of)
    assert (known.since, known.until) == (ahead, ahead + registry.SILENT_NS)
