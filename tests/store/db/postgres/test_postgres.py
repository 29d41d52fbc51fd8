"""Logs on a server: concurrent writers, broken connections, late commits, missing rights."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, Recorder
from messager_store.db.codes import SEQ_BITS
from messager_store.db.postgres import append, dialect
from messager_store.errors import RecorderFenced, StoreUnavailable
from messager_store.experiments import lifecycle
from messager_store.log.writer import new_uuid
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify, verify_all
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.recording import committer
from messager_store.recording.closing import close
from messager_store.testing import Databases, PostgresServer, execute, transaction
from tests.store.db.postgres.test_refusals import refused
from tests.support import Proxy, sql, until
from tests.support.logs import end_all, experiment, filled, listed, sent
from tests.support.outages import numbers, payloads, take

pytestmark = pytest.mark.postgres

RECORDERS = 8


def through(proxy: Proxy, store: str) -> str:
    """Return the URL of a store behind a proxy."""
    before, _, after = store.rpartition(f":{port_of(store)}/")
    return f"{before}:{proxy.port}/{after}"


def port_of(store: str) -> int:
    return int(store.rpartition("/")[0].rpartition(":")[2])


def backends(store: str) -> str:
    """Return the statement that ends every other connection to the store."""
    return (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def test_many_recorders_append_at_once_and_a_tail_sees_every_seq_of_each_in_order(log: EventLog) -> None:
    of = await experiment(log)
    seen: dict[int, list[int]] = defaultdict(list)

    async def follow() -> None:
        async for entry in log.tail(of, poll=0.005):
            seen[entry.recorder].append(entry.seq)

    async def record(number: int) -> None:
        async with Recorder(log, "e1") as taker:
            for at in range(0, 200, 20):
                take(taker, number * 1000 + at, 20)
                await taker.flush()

    following = asyncio.create_task(follow())
    await asyncio.gather(*(record(number) for number in range(RECORDERS)))
    await close(log, of)
    await following
    assert seen == {ordinal: list(range(1, 201)) for ordinal in range(1, RECORDERS + 1)}
    assert [(verdict.problems, verdict.events) async for verdict in verify_all(log)] == [([], 200 * RECORDERS)]


async def test_a_recorder_whose_row_is_locked_holds_up_no_other(log: EventLog, store: str) -> None:
    of = await experiment(log)
    first, second = [await log.register(of, role="tap") for _ in range(2)]
    with transaction(store, f"SELECT 1 FROM recorder WHERE id = {first.id} FOR UPDATE"):
        waiting = asyncio.create_task(log.append(first, [sent(1)]))
        for at in range(10):
            await log.append(second, [sent(at)])
        assert not waiting.done()
    await waiting
    assert len(await listed(log.read(of))) == 11


async def test_backends_that_are_killed_while_events_are_appended_cost_and_double_nothing(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, killed, said = True, 0, 0

    async def kill() -> None:
        nonlocal killed
        while recording:
            killed += len(await asyncio.to_thread(execute, store, backends(store)))

    async with Recorder(log, "e1") as taker:
        killing = asyncio.create_task(kill())
        while said < 600 or killed <= 3:
            take(taker, said, 30)
            said += 30
            await asyncio.sleep(0.01)
        recording = False
        await killing
        await until(lambda: not len(taker))
    assert await payloads(log) == numbers(0, said)
    assert (await verify(log, await log.experiment("e1"))).problems == []


@pytest.mark.parametrize(
    "how", ["killed", *(pytest.param(how, marks=pytest.mark.nightly) for how in ("immediate", "fast"))]
)
async def test_a_server_that_goes_down_and_comes_back_is_waited_for(
    server: PostgresServer, how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "SPOOL_SECONDS", 0.05)
    store = Databases(server.url("postgres")).create()
    async with EventLog.open(store) as log:
        async with Recorder(log, "e1") as taker:
            take(taker, 0, 100)
            await taker.flush()
            await asyncio.to_thread(server.stop, how)
            take(taker, 100, 100)
            await until(lambda: taker.spooled == 100)
            with pytest.raises(StoreUnavailable):
                await taker.flush()
            await asyncio.to_thread(server.start)
            take(taker, 200, 100)
            await until(lambda: not len(taker))
        assert await payloads(log) == numbers(0, 300)
        assert (await verify(log, await log.experiment("e1"))).problems == []


@pytest.mark.parametrize(
    "silent_from",
    [
        b"FROM alembic_version",
        *(pytest.param(text, marks=pytest.mark.nightly) for text in (b"pg_catalog.version", b"pg_catalog.pg_class")),
    ],
)
async def test_a_server_that_falls_silent_once_connected_is_told_of_within_five_seconds(
    store: str, silent_from: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 4 < dialect.OPEN_SECONDS < 5
    monkeypatch.setattr(dialect.Postgres, "open_seconds", 3.0)
    async with Proxy(port_of(store)).running() as proxy:
        proxy.silent_from = silent_from
        await refused(through(proxy, store), "does not answer")
        assert proxy.silent


@pytest.mark.parametrize("cut_at", [b"; COMMIT", b"COPY", pytest.param(b"BEGIN", marks=pytest.mark.nightly)])
async def test_an_append_whose_answer_was_lost_is_found_or_not_and_then_repeated_once(
    store: str, cut_at: bytes
) -> None:
    async with Proxy(port_of(store)).running() as proxy, EventLog.open(through(proxy, store)) as log:
        of = await experiment(log)
        writer = await log.register(of, role="tap")
        await log.append(writer, [sent(1)])
        proxy.requests, proxy.cut_answer_to = b"", cut_at
        with pytest.raises(StoreUnavailable, match="connection broke"):
            await log.append(writer, [sent(2), sent(3)])
        found = await log.recover(writer)
        assert found == (2 if cut_at == b"; COMMIT" else 0)
        await log.append(writer, [sent(4)] if found else [sent(2), sent(3), sent(4)])
        assert [entry.ts for entry in await listed(log.read(of))] == [1, 2, 3, 4]
        assert (await verify(log, of)).problems == []


@pytest.mark.nightly
async def test_a_large_batch_has_the_time_that_it_takes_on_a_slow_connection(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Proxy(port_of(store)).running() as proxy, EventLog.open(through(proxy, store)) as log:
        of = await experiment(log)
        writer = await log.register(of, role="tap")
        await log.append(writer, [sent(1)])
        monkeypatch.setattr(append, "SECONDS", 2.0)
        proxy.answer_delay = 1.5  # of each answer: the time is over before the last one is asked for
        await log.append(writer, [sent(2, b"x" * 3_000_000)])
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await log.append(writer, [sent(3)])
        proxy.answer_delay = 0.0
        assert [entry.ts for entry in await listed(log.read(of))] == [1, 2]


async def test_a_recorder_whose_registration_was_answered_by_nobody_is_found_and_not_made_twice(store: str) -> None:
    async with Proxy(port_of(store)).running() as proxy, EventLog.open(through(proxy, store)) as log:
        of, name = await experiment(log), new_uuid()
        proxy.requests, proxy.cut_answer_to = b"", b"COMMIT;"
        with pytest.raises(StoreUnavailable, match="connection broke"):
            await log.register(of, role="tap", name=name)
        assert sql(store, "SELECT uuid FROM recorder") == [(name,)]
        writer = await log.register(of, role="tap", name=name)
        assert (writer.ordinal, (await log.experiment("e1")).recorders) == (1, 1)
        await log.append(writer, [sent(1)])
        assert (await verify(log, of)).problems == []
        with pytest.raises(RecorderFenced, match="recorded already"):
            await log.register(of, role="tap", name=name)


@pytest.mark.parametrize(
    "if_exists", ["append", *(pytest.param(what, marks=pytest.mark.nightly) for what in ("new", "fail", None))]
)
async def test_a_recorder_that_starts_again_after_a_lost_answer_is_where_it_registered(
    store: str, if_exists: Any
) -> None:
    async with Proxy(port_of(store)).running() as proxy, EventLog.open(through(proxy, store)) as log:
        if if_exists == "new":
            await experiment(log)
        taker = Recorder(log, "e1", if_exists=if_exists)
        joined = lifecycle.join

        async def then_cut(*given: Any, **more: Any) -> Any:
            of = await joined(*given, **more)
            proxy.requests, proxy.cut_answer_to = b"", b"COMMIT;"
            return of

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(lifecycle, "join", then_cut)
            with pytest.raises(StoreUnavailable, match="connection broke"):
                await taker.start()
        exp_id = "e1-2" if if_exists == "new" else "e1"
        assert sql(store, "SELECT uuid FROM recorder") == [(taker.uuid,)]
        async with taker:
            take(taker, 0, 3)
        assert (taker.exp_id, taker.ordinal) == (exp_id, 1)
        assert [of.exp_id for of in await log.experiments()] == sorted({"e1", exp_id})
        assert await payloads(log, exp_id) == numbers(0, 3)
        assert [(verdict.problems, verdict.events) async for verdict in verify_all(log)][-1] == ([], 3)


async def test_a_batch_that_comes_after_it_was_looked_for_is_refused(log: EventLog) -> None:
    """The server may execute a request of a broken connection after we have read the last committed batch."""
    writer = await log.register(await experiment(log), role="tap")
    late = await log.register(await log.experiment("e1"), role="tap")
    late.id, late.uuid, late.epoch = writer.id, writer.uuid, writer.epoch
    assert await log.recover(writer) == 0
    with pytest.raises(RecorderFenced):
        await log.append(late, [sent(1)])
    await log.append(writer, [sent(2)])
    assert [entry.ts for entry in await listed(log.read("e1"))] == [2]


async def test_a_connection_that_is_cut_within_the_events_leaves_nothing_of_them(store: str) -> None:
    async with Proxy(port_of(store)).running() as proxy, EventLog.open(through(proxy, store)) as log:
        of = await experiment(log)
        writer = await log.register(of, role="tap")
        await log.append(writer, [sent(1)])
        proxy.requests, proxy.cut_answer_to = b"", b"the last of them"
        large = [sent(at, bytes(3000)) for at in range(2, 500)]
        with pytest.raises(StoreUnavailable):
            await log.append(writer, [*large[:200], sent(2, b"the last of them"), *large])
        assert await log.recover(writer) == 0
        assert [entry.ts for entry in await listed(log.read(of))] == [1]
        await log.append(writer, large)
        assert (await verify(log, of)).problems == []


@pytest.mark.nightly
async def test_names_are_taken_out_in_time_however_many_a_server_can_remember(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager_store.db.postgres.dialect.LONG_SECONDS", 60.0)
    execute(store, f"ALTER DATABASE {store.rpartition('/')[2]} SET work_mem = '64kB'")
    async with EventLog.open(store) as log:
        of = await filled(log, [sent(1, from_id="secret")])
        many = await log.register(of, role="tap")
        sql(
            store,
            "INSERT INTO name (id, experiment_id, what, value, hash) "
            f"SELECT 1000 + g, {of.id}, 1, convert_to(g::text, 'UTF8'), decode(md5(g::text), 'hex') "
            "FROM generate_series(1, 30000) g",
            "INSERT INTO event (id, experiment_id, ts, kind, channel_id, from_id, to_id, flags, payload) "
            f"SELECT {many.id}::bigint * {1 << SEQ_BITS} + g, {of.id}, g, 1, NULL, 1000 + g, 1000 + g, 0, '' "
            "FROM generate_series(1, 30000) g",
            "ANALYZE",
        )
        await end_all(log)
        done = await redact(log, "e1", RedactionFilter(senders=(("secret",),)), who="me", why="x", ids=True)
        assert done.events == 1
        assert sql(store, "SELECT count(*) FROM name WHERE what = 1") == [(30000,)]


@pytest.mark.nightly
async def test_what_takes_as_long_as_the_log_is_has_all_the_time(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager_store.db.postgres.dialect.WRITING_SECONDS", 1.0)
    async with EventLog.open(store) as log:
        sql(
            store,
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END $$",
            *(
                f"CREATE TRIGGER slow AFTER UPDATE OR DELETE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION slow()"
                for table in ("event", "batch", "experiment")
            ),
        )
        sql(store, "ALTER TABLE experiment DISABLE TRIGGER slow")
        of = await filled(log, [sent(1), sent(2, b"secret")])
        await end_all(log)
        sql(store, "ALTER TABLE experiment ENABLE TRIGGER slow")
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await lifecycle.describe(log.database, of, name="n", tags=[], meta={})
        assert (await redact(log, "e1", RedactionFilter(contains=("secret",)), who="me", why="x")).events == 1
        assert await remove(log, of)


async def test_a_closed_experiment_takes_no_recorder_that_joined_while_it_was_closed(log: EventLog, store: str) -> None:
    of = await experiment(log)
    with transaction(store, f"SELECT 1 FROM experiment WHERE id = {of.id} FOR UPDATE"):
        closing = asyncio.create_task(lifecycle.mark_closed(log.database, of))
        joining = [asyncio.create_task(log.register(of, role="tap")) for _ in range(3)]
        await until(lambda: len(sql(store, "SELECT 1 FROM pg_locks WHERE NOT granted")) >= 3)
    done = await asyncio.gather(closing, *joining, return_exceptions=True)
    joined = [each for each in done[1:] if not isinstance(each, BaseException)]
    now = await log.experiment("e1")
    assert now.recorders == len(joined)
    for writer in joined if now.status == "closed" else []:
        with pytest.raises(RecorderFenced):
            await log.append(writer, [sent(1)])
