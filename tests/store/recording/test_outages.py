"""Outages of the store: no loss, no duplicates, and a gap for every dropped event."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from messager import MemoryBroker, Messager, MessageRecord
from messager_store import EventLog, NewEvent, Recorder
from messager_store.db.sqlite.append import Appender
from messager_store.errors import RecorderFenced, StoreError, StoreUnavailable
from messager_store.maintenance.verify import verify
from messager_store.recording import buffer, committer
from messager_store.recording.spools import spools
from tests.store.privacy.test_redaction import on_disk
from tests.support import Stores, until
from tests.support.outages import everything_drained, locked, numbers, payloads, take

pytestmark = pytest.mark.usefixtures("quick")


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
            [info] = spools(taker.spool_path.parent)
            assert (info.events, info.held, info.exp_id) == (200, True, "e1")
            with pytest.raises(StoreUnavailable):
                await taker.flush()
        take(taker, 300, 100)
        await until(lambda: not len(taker))
        assert await payloads(log) == numbers(0, 400)
        assert not taker.spool_path.parent.exists()
    assert (await verify(log, await log.experiment("e1"))).problems == []
    assert taker.dropped == 0 and "accepts events again" in caplog.text
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
    assert (await verify(log, of)).problems == []
    assert await everything_drained(log, folder) == []
    folder.mkdir()
    (folder / taker.spool_path.name).write_bytes(copy)  # as if the drain had been killed before it removed the file
    [again] = await everything_drained(log, folder)
    assert (again.events, again.ended, again.reason) == (0, True, None)
    assert await payloads(log) == numbers(0, 30)


async def test_an_interrupted_drain_goes_on_where_it_stopped(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager_store.recording.draining.BATCH_EVENTS", 7)
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
            raise StoreUnavailable(store, "killed")
        await append(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "append", dies)
    with pytest.raises(StoreUnavailable, match="killed"):
        await everything_drained(log, taker.spool_path.parent)
    monkeypatch.setattr(log, "append", append)
    assert await payloads(log) == numbers(0, 21)
    [done] = await everything_drained(log, taker.spool_path.parent)
    assert done.events == 29 and await payloads(log) == numbers(0, 50)
    assert (await verify(log, await log.experiment("e1"))).problems == []


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
    assert (await verify(log, await log.experiment("e1"))).problems == []


async def test_a_store_moved_away_under_an_open_connection_is_not_written_to(
    log: EventLog, store: str, stores: Stores
) -> None:
    async with Recorder(log, "e1") as taker:
        take(taker, 0, 10)
        await taker.flush()
        stores.move_away(store)
        take(taker, 10, 10)
        await until(lambda: taker.spooled == 10)
        assert not Path(store).exists()  # and no empty one was made in its place
        with pytest.raises(StoreUnavailable, match=r"was it moved|there is no database"):
            await taker.flush()
        stores.move_back(store)
        await until(lambda: not len(taker))
    assert await payloads(log) == numbers(0, 20)


async def test_another_store_in_its_place_gets_nothing_and_the_rest_is_kept(
    log: EventLog, store: str, stores: Stores
) -> None:
    taker = Recorder(log, "e1")
    await taker.start()
    take(taker, 0, 10)
    await taker.flush()
    stores.move_away(store)
    stores.put_another(store)
    async with EventLog.open(store) as fresh:
        await fresh.create_experiment("other")
    take(taker, 10, 10)
    with pytest.raises(RecorderFenced):
        await taker.stop()
    assert taker.spooled == 10
    [done] = await everything_drained(log, taker.spool_path.parent)
    assert done.left == 10 and "has no such recorder" in (done.reason or "")
    stores.move_back(store)
    async with EventLog.open(store) as back:
        assert [done.events for done in await everything_drained(back, taker.spool_path.parent)] == [10]
        assert await payloads(back) == numbers(0, 20)


@pytest.mark.sqlite  # the disk of a server cannot be made small without root
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
    monkeypatch.setattr(buffer, "MEMORY_EVENTS", 20)
    held = 0
    hold = committer.Committer.wait_for_capacity

    async def counted(self: committer.Committer, most: int | None = None) -> None:
        nonlocal held
        held += 1
        await hold(self, most)

    monkeypatch.setattr(committer.Committer, "wait_for_capacity", counted)
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
    monkeypatch.setattr(buffer, "MEMORY_EVENTS", 20)
    async with Recorder(log, "e1") as taker:
        async with Messager(MemoryBroker(), "e1") as messager:
            messager.add_log_hook(taker)
            with locked(store):
                for at in range(100):
                    await messager.send_message("c", {"n": at})
    assert (taker.accepted, taker.dropped) == (100, 0)
    assert len(await payloads(log)) == 100


async def cancelled(taker: Recorder) -> None:
    """Cancel all tasks, as an event loop does at its end."""
    await taker.start()
    take(taker, 0, 10)
    await taker.flush()
    take(taker, 10, 10)
    assert taker._committer is not None
    taker._committer._task.cancel()


async def test_what_a_cancelled_committer_had_is_committed_by_who_stops_the_recorder(log: EventLog) -> None:
    taker = Recorder(log, "e1")
    await cancelled(taker)
    await taker.stop()
    assert (taker.spooled, await payloads(log)) == (0, numbers(0, 20))
    [row] = await log.recorders()
    assert (row.state, row.unclean) == ("ended", False)


async def test_what_a_cancelled_committer_had_is_in_the_spool_where_the_store_is_away(
    store: str, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "STOP_SECONDS", 0.1)
    taker = Recorder(log, "e1")
    await cancelled(taker)
    with locked(store):
        await taker.stop()
    assert taker.spooled == 10
    with pytest.raises(StoreError, match="10 events are in the spool"):
        await taker.flush()
    assert [done.events for done in await everything_drained(log, taker.spool_path.parent)] == [10]
    assert await payloads(log) == numbers(0, 20)


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
    monkeypatch.setattr(committer, "HOLD_SECONDS", 60)  # a busy disk takes its time
    monkeypatch.setattr(buffer, "MEMORY_BYTES", 1_000_000)
    async with Recorder(log, "e1") as taker:
        with locked(store):
            for number in range(60):
                taker.after(MessageRecord("sent", number, "c", bytes(20_000)))
                await taker.wait_for_capacity(10_000)
    assert (taker.accepted, taker.dropped) == (60, 0)
    assert len(await payloads(log)) == 60


@pytest.mark.sqlite  # a server has many names: under another one it may be the same
async def test_a_spool_of_another_store_is_left_to_that_store(log: EventLog, store: str, tmp_path: Path) -> None:
    for number in range(5):
        exp, spools = f"e{number}", tmp_path / f"shared{number}"
        taker = Recorder(log, exp, spool=spools)
        await taker.start()
        with locked(store):
            take(taker, 0, 10)
            await taker.stop()
        if not await payloads(log, exp):  # else its last try to commit lasted longer than the lock, on a busy machine
            break
    async with log.database.reading() as connection:
        await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(store, tmp_path / "copy.db")
    for other in ("copy.db", "empty.db"):
        async with EventLog.open(str(tmp_path / other)) as elsewhere:
            [done] = await everything_drained(elsewhere, spools)
            assert (done.events, done.left) == (0, 10) and f"belongs to the store {log.location}" in (done.reason or "")
    of = await log.experiment(exp)
    heartbeat = (await log.recorders(of))[0].heartbeat_at
    assert [done.events for done in await everything_drained(log, spools)] == [10]
    assert (await log.recorders(of))[0].heartbeat_at == heartbeat  # no sign of its life


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
    assert b"secret" not in on_disk(store)


async def test_two_recorders_of_one_log_wait_for_each_other_and_lose_nothing(log: EventLog, store: str) -> None:
    async with Recorder(log, "e1") as first, Recorder(log, "e1") as second:
        with locked(store):
            for at in range(0, 100, 10):
                take(first, at, 10)
                take(second, 1000 + at, 10)
                await asyncio.sleep(0.02)
        await until(lambda: not len(first) and not len(second))
    assert sorted(await payloads(log), key=int) == numbers(0, 100) + numbers(1000, 100)
    assert (await verify(log, await log.experiment("e1"))).problems == []
