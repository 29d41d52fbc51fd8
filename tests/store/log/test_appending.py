"""Appending: a batch is written completely, once and by one writer, or not at all."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from typing import Any
from unittest import mock

import pytest

from messager_store import EventLog
from messager_store.db.database import Database
from messager_store.db.sqlite.dialect import SQLite
from messager_store.db.statements import EVENT_COLUMNS, Commit
from messager_store.errors import BadEvent, RecorderFenced, StoreError, StoreUnavailable
from messager_store.log import batch, event_rows
from messager_store.maintenance.verify import verify
from tests.support import nightly_after
from tests.support.logs import experiment, filled, listed, sent
from tests.support.outages import locked


@pytest.mark.databases
async def test_payloads_of_many_megabytes_arrive_whole_beside_small_ones(log: EventLog) -> None:
    sizes = [10, 5_000_000, 0, 1024 * 1024, 1024 * 1024 - 1, 20, 3_000_001]
    events = [sent(number, random.Random(number).randbytes(size)) for number, size in enumerate(sizes)]
    of = await filled(log, events)
    assert [entry.payload for entry in await listed(log.read("e1"))] == [event.payload for event in events]
    assert (await verify(log, of)).problems == []


async def test_a_batch_becomes_rows_in_parts_of_so_many_rows_and_bytes_and_each_event_once(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "ROWS", 3)
    monkeypatch.setattr(batch, "BYTES", 100)
    writer = await log.register(await experiment(log), role="tap")
    events = [sent(number, b"x" * size) for number, size in enumerate([1, 2, 3, 50, 99, 0, 200, 4])]
    *rows, commit = batch.parts(writer, events, await writer.resolve(events))
    sizes = [[len(row[EVENT_COLUMNS.index("payload")]) for row in part] for part in rows]
    assert sizes == [[1, 2, 3], [50, 99], [0, 200], [4]]
    assert isinstance(commit, Commit) and commit.advance["new_payload_bytes"] == 359


@pytest.mark.databases
async def test_two_writers_cannot_append_to_one_recorder(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="tap")
    await log.append(writer, [sent(1)])
    zombie = await log.register(of, role="tap")
    zombie.id, zombie.uuid = writer.id, writer.uuid  # thinks that it is the first, and has seen nothing
    with pytest.raises(RecorderFenced):
        await log.append(zombie, [sent(2)])
    writer.epoch = 2  # fenced: somebody raised the epoch
    with pytest.raises(RecorderFenced):
        await log.append(writer, [sent(2)])
    assert [entry.ts for entry in await listed(log.read("e1"))] == [1]


async def test_no_heartbeat_changes_the_row_of_a_recorder_that_has_ended(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="tap")
    for _ in range(2):  # the answer to the first was lost
        await log.touch(writer, ended_at=5)
    with pytest.raises(RecorderFenced):
        await log.touch(writer, broker="redis://h")
    assert (await verify(log, of)).problems == []


async def test_a_recorder_that_is_taken_over_has_neither_end_nor_seal(log: EventLog) -> None:
    writer = await log.register(await experiment(log), role="tap")
    await log.touch(writer, ended_at=5)
    ended, writer = await log.recorders(), await log.take_over(writer.uuid)
    [row] = await log.recorders()
    assert (row.ended_at, row.seal, row.head) == (None, None, ended[0].head_hash)
    await log.append(writer, [sent(1)])


@pytest.mark.databases
async def test_an_append_whose_answer_was_lost_is_found_and_not_repeated(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="tap")
    before = (writer.last_seq, writer.head_hash)
    await log.append(writer, [sent(1), sent(2)])
    after = (writer.last_seq, writer.head_hash)
    writer.last_seq, writer.head_hash = before  # the commit happened, the answer never came
    assert await log.recover(writer) == 2
    assert (writer.last_seq, writer.head_hash) == after
    await log.append(writer, [sent(3)])
    assert len(await listed(log.read("e1"))) == 3
    assert (await verify(log, of)).problems == []


async def test_a_number_of_more_than_64_bits_is_refused_on_every_store(log: EventLog) -> None:
    writer = await log.register(await experiment(log), role="tap")
    with pytest.raises(BadEvent, match=r"duration_ns: \d+ is not between 0 and") as caught:
        await log.append(writer, [sent(1, duration_ns=2**63 - 1), sent(2, duration_ns=2**63)])
    assert caught.value.index == 1
    await log.append(writer, [sent(1, receivers=2**31 - 1)])
    assert [entry.receivers for entry in await listed(log.read("e1"))] == [2**31 - 1]


@pytest.mark.parametrize("seq", nightly_after(1, [0, -1, 2**40]))
async def test_a_cause_that_no_event_can_have_is_refused(log: EventLog, seq: int) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="tap")
    with pytest.raises(BadEvent, match="which no event has") as caught:
        await log.append(writer, [sent(1), sent(2, cause=(0, seq))])
    assert caught.value.index == 1
    await log.append(writer, [sent(1), sent(2, cause=(0, 1)), sent(3, cause=(1, 2**40 - 1))])
    assert (await verify(log, of)).problems == []


async def test_a_payload_that_no_database_holds_is_refused_by_itself(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_rows, "MAX_PAYLOAD", 1000)
    writer = await log.register(await experiment(log), role="tap")
    with pytest.raises(BadEvent, match="1,001 bytes") as caught:
        await log.append(writer, [sent(1, b"x" * 1000), sent(2, b"x" * 1001), sent(3)])
    assert caught.value.index == 1


@pytest.mark.databases
async def test_a_batch_that_cannot_be_written_leaves_nothing_behind(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="tap")
    with pytest.raises(StoreError, match="64 bits"):
        await log.append(writer, [sent(1), sent(2**63)])
    await log.recover(writer)
    assert await listed(log.read("e1")) == []
    await log.append(writer, [sent(1)])
    assert (await verify(log, of)).problems == []


@pytest.mark.sqlite  # about its parameters
async def test_a_batch_of_any_size_is_written_where_sqlite_takes_few_parameters(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are inserted hundreds at a time, and fewer if SQLite accepts fewer parameters, as older versions do."""
    connect = SQLite._open_for_appends

    def limited(self: SQLite) -> sqlite3.Connection:
        connection = connect(self)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
        return connection

    monkeypatch.setattr(SQLite, "_open_for_appends", limited)
    await test_a_batch_of_any_size_is_written_row_for_row(log)


async def test_a_batch_of_any_size_is_written_row_for_row(log: EventLog) -> None:
    of = await experiment(log, "e1")
    writer = await log.register(of, role="tap")
    written = 0
    for size in (1, 7, 8, 9, 63, 64, 65, 71, 72, 511, 512, 513, 1100):
        await log.append(writer, [sent(written + at, b"%d" % (written + at)) for at in range(size)])
        written += size
    assert [entry.payload for entry in await listed(log.read("e1"))] == [b"%d" % at for at in range(written)]
    assert (await verify(log, of)).problems == []


async def test_a_batch_that_is_refused_in_the_middle_leaves_nothing_and_the_next_one_is_written(log: EventLog) -> None:
    of = await experiment(log, "e1")
    writer = await log.register(of, role="tap")
    with pytest.raises(BadEvent) as refused:
        await log.append(writer, [*(sent(at) for at in range(700)), sent(2**70), sent(1)])
    assert refused.value.index == 700
    assert await listed(log.read("e1")) == []
    many = [
        *(sent(at) for at in range(700)),
        sent(700, channel="first met here"),
        *(sent(at) for at in range(701, 900)),
    ]
    await log.append(writer, many)
    assert [(entry.seq, entry.ts) for entry in await listed(log.read("e1"))] == [(at + 1, at) for at in range(900)]
    assert (await verify(log, of)).problems == []


@pytest.mark.databases
async def test_a_cancelled_append_is_over_before_anything_else_is_done(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append once continued in its thread: it was committed after `recover` had found nothing."""
    of = await experiment(log, "e1")
    writer = await log.register(of, role="tap")
    await log.append(writer, [sent(0)])  # so that no name has to be made known before the next
    preparing = asyncio.Event()
    loop, pack = asyncio.get_running_loop(), event_rows.pack

    def told(*given: Any) -> Any:
        loop.call_soon_threadsafe(preparing.set)
        return pack(*given)

    monkeypatch.setattr(event_rows, "pack", told)
    with locked(store):
        appending = asyncio.create_task(log.append(writer, [sent(1)]))
        await preparing.wait()
        appending.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await appending
    assert await log.recover(writer) == 1
    await log.append(writer, [sent(2)])
    assert [entry.ts for entry in await listed(log.read("e1"))] == [0, 1, 2]


@pytest.mark.sqlite  # elsewhere nobody waits for a turn
async def test_who_waits_for_a_turn_while_the_log_is_closed_is_told_so(log: EventLog) -> None:
    writer = await log.register(await experiment(log, "e1"), role="tap")
    async with log.database.dialect.turn():
        closing = asyncio.create_task(log.close())
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(log.append(writer, [sent(1)])), asyncio.create_task(log.touch(writer))]
        await asyncio.sleep(0)
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, StoreUnavailable) and "closed" in str(result)
    await closing


async def test_new_origins_of_a_batch_are_stored_together(log: EventLog) -> None:
    """An import of events with an origin each would otherwise need a transaction for each."""
    writer = await log.register(await log.create_experiment("e1"), role="tap")
    for count in (1, 500):
        events = [sent(n, origin=(f"{count}u{n}", 1)) for n in range(count)]
        with mock.patch.object(Database, "writing", autospec=True, side_effect=Database.writing) as writing:
            await log.append(writer, events)
        assert writing.call_count <= 2  # names, and recorders of the parent experiment
        assert [entry.origin async for entry in log.read("e1")][-count:] == [event.origin for event in events]


async def test_an_origin_that_is_no_event_is_refused_by_its_place(log: EventLog) -> None:
    writer = await log.register(await log.create_experiment("e1"), role="tap")
    for origin in [5, ("u",), (5, 1), (["u"], 1), ("\ud800", 1)]:
        with pytest.raises(BadEvent) as caught:
            await log.append(writer, [sent(1, origin=("u", 1)), sent(2, origin=("v", 1)), sent(3, origin=origin)])
        assert caught.value.index == 2
