"""Interrupted appends to PostgreSQL: no partial batch, no remains, no effect on other connections."""

from __future__ import annotations

import asyncio
import gc
import logging
from itertools import pairwise
from typing import Any

import pytest

from messager_store import EventLog, NewEvent, finishing
from messager_store.errors import StoreUnavailable
from messager_store.log import batch, event_rows
from messager_store.maintenance.verify import verify
from messager_store.testing import execute
from tests.store.db.postgres.test_postgres import backends
from tests.support import sql
from tests.support.logs import experiment, listed, sent

pytestmark = pytest.mark.postgres


def events(count: int) -> list[NewEvent]:
    return [sent(number, b"x" * 200) for number in range(count)]


async def test_a_backend_that_is_killed_within_the_events_has_nobody_else_write_to_it(
    log: EventLog, store: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="tap")
    await log.append(writer, [sent(0)])
    made, pack = [], event_rows.pack

    def killed(*given: Any) -> Any:
        made.append(at := given[3])
        if at == 1024:
            sql(store, backends(store))
        return pack(*given)

    monkeypatch.setattr(event_rows, "pack", killed)
    with caplog.at_level(logging.WARNING, "asyncio"), pytest.raises(StoreUnavailable):
        await log.append(writer, events(20_000))
    assert not caplog.records and made[-1] < 10_000
    monkeypatch.undo()
    await log.recover(writer)
    await log.append(writer, [sent(1)])
    assert [entry.ts for entry in await listed(log.read("e1"))] == [0, 1]


async def test_an_append_gives_others_their_turn_again_and_again(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await log.register(await experiment(log), role="tap")
    await log.append(writer, events(1))  # its names are known from here on
    made, seen, pack = 0, [0], event_rows.pack

    def counted(*given: Any) -> Any:
        nonlocal made
        packed = pack(*given)
        made += len(packed[0])
        return packed

    async def watch() -> None:
        while True:
            await asyncio.sleep(0)
            seen.append(made)

    monkeypatch.setattr(event_rows, "pack", counted)
    watching = asyncio.create_task(watch())
    await log.append(writer, events(5000))
    watching.cancel()
    assert seen[-1] == 5000
    assert max(after - before for before, after in pairwise(seen)) <= 2 * batch.ROWS


@pytest.mark.nightly
async def test_a_log_that_is_closed_while_names_are_written_leaves_no_connection(store: str) -> None:
    log = await EventLog.open(store)
    of = await experiment(log)
    writers = [await log.register(of, role="tap") for _ in range(8)]

    async def go_on(number: int) -> None:
        for at in range(10_000):
            await log.append(writers[number], [sent(at, channel=f"{number}.{at}")])

    gc.disable()
    try:
        tasks = [asyncio.create_task(go_on(number)) for number in range(8)]
        while sql(store, "SELECT count(*) FROM name")[0][0] < 50:
            await asyncio.sleep(0)
        await log.close()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, StoreUnavailable) for error in ended)
        there = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        async with asyncio.timeout(60):
            while sql(store, there) != [(0,)]:
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


@pytest.mark.nightly
async def test_what_a_url_says_of_encodings_does_not_change_what_is_written(log: EventLog, store: str) -> None:
    async with EventLog.open(f"{store}?client_encoding=latin1") as other:
        of = await experiment(other)
        writer = await other.register(of, role="tap")
        await other.append(writer, [sent(1, from_id="\u00e9", msg_id="\u00fc", meta={"\u00df": "\u20ac"})])
    [found] = await listed(log.read("e1"))
    assert (found.from_id, found.msg_id, found.meta) == ("\u00e9", "\u00fc", {"\u00df": "\u20ac"})
    assert (await verify(log, of)).problems == []


async def test_rows_that_the_tables_swallow_are_not_acknowledged(log: EventLog, store: str) -> None:
    writer = await log.register(await experiment(log), role="tap")
    execute(store, "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    execute(store, "CREATE TRIGGER t BEFORE INSERT ON event FOR EACH ROW WHEN (NEW.ts = 2) EXECUTE FUNCTION swallow()")
    with pytest.raises(StoreUnavailable):
        await log.append(writer, [sent(1), sent(2)])
    assert (await listed(log.read("e1")), await log.recover(writer)) == ([], 0)


async def test_what_was_said_is_not_in_the_reason_for_a_refusal(log: EventLog, store: str) -> None:
    writer = await log.register(await experiment(log), role="tap")
    execute(store, "ALTER TABLE event ADD CONSTRAINT never CHECK (ts <> 2)")
    with pytest.raises(StoreUnavailable, match="never") as refused:
        await log.append(writer, [sent(2, msg_id="between us")])
    assert "between us" not in str(refused.value)


async def test_what_is_written_is_over_before_its_caller_goes_on_however_often_that_is_cancelled() -> None:
    let = asyncio.Event()

    async def write() -> None:
        await let.wait()
        raise ValueError("refused")

    writing = asyncio.ensure_future(write())
    waiting = asyncio.create_task(finishing.finish_then_cancel(writing))
    for _ in range(3):
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.cancel()
    assert not waiting.done()
    let.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert writing.done()
