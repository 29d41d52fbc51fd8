"""A user's SQL statement reads one experiment, writes nothing, and ends at its time limit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, Experiment, NewEvent
from messager_store.errors import StatementFailed, StatementTimedOut, StoreError
from messager_store.maintenance.verify import verify
from messager_store.queries.index import index
from messager_store.queries.sql import open_sql, pages_of, sql
from messager_store.testing import execute
from tests.support import nightly_after, until
from tests.support import sql as in_database
from tests.support.logs import experiment, listed, sent

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"
LONG = "select a.id from event a, event b, event c, event d, event e"
NAMES = {1: "ann", 2: "bob", 3: 5}


async def society(log: EventLog, exp_id: str = "e1", messages: int = 60) -> Experiment:
    """Create an experiment of three agents: what one recorder sends, the other receives, except the last message."""
    of = await experiment(log, exp_id)
    speaker, listener = [await log.register(of, role="messager") for _ in range(2)]
    events = []
    for at in range(messages):
        people = {"from_id": NAMES[at % 3 + 1], "to_id": NAMES[(at + 1) % 3 + 1]}
        text = json.dumps({"content": f"hello {at}"}).encode()
        events.append(sent(at * 1_000_000, text, f"c{at % 2}", **people))
    await log.append(speaker, events)
    heard = [NewEvent("received", e.ts + 500_000, e.channel, e.payload, e.from_id, e.to_id) for e in events[:-1]]
    details = {"reason": "lost", "since": 10**9, "until": 10**9 + 1}
    heard += [
        NewEvent("mark", 7, None, b"", meta={"name": "tick", "fields": {"n": 1}}),
        NewEvent("gap", 10**9 + 1, None, b"", meta=details),
    ]
    await log.append(listener, heard)
    return of


async def test_the_views_hold_one_experiment(log: EventLog) -> None:
    await society(log, "other", messages=9)
    of = await society(log)
    found = await sql(log, of, "select from_id, to_id, count(*) from messages group by 1, 2")
    events = await listed(log.read(of))
    expected = Counter((e.from_id, e.to_id) for e in events if e.kind == "sent")
    assert {row[:2]: row[2] for row in found.rows} == expected and len(expected) == 3
    assert (await sql(log, of, "select count(*) from events")).rows == [(len(events),)]
    assert (await sql(log, of, "select count(*), min(delay_ms) from deliveries")).rows == [(59, 0.5)]
    assert (await sql(log, of, "select sum(messages) from minutes where kind = 'sent'")).rows == [(60,)]
    [(name, fields, ts)] = (await sql(log, of, "select name, fields, ts from marks")).rows
    assert (name, json.loads(fields), ts) == ("tick", {"n": 1}, 7)
    assert (await sql(log, of, "select reason, since, until from gaps")).rows == [("lost", 10**9, 10**9 + 1)]
    [(text,)] = (await sql(log, of, "select text from messages where received_at is null")).rows
    assert text == "hello 59"


async def test_ids_are_compared_as_text_on_both_databases(log: EventLog) -> None:
    of = await society(log)
    found = await sql(log, of, "select distinct from_id, sender from messages where sender in ('5', 'bob') order by 2")
    assert found.rows == [(5, "5"), ("bob", "bob")]
    minutes = (
        "select from_id, recipient, sum(messages) from minutes where sender = 'ann' and kind = 'sent' group by 1, 2"
    )
    assert (await sql(log, of, minutes)).rows == [("ann", "bob", 20)]


async def test_the_parameter_exp_is_the_experiment(log: EventLog) -> None:
    of = await society(log)
    found = await sql(log, of, "select :exp, ':exp', count(*) from message /* :exp */ where exp_id = :exp -- :exp")
    assert found.rows == [("e1", ":exp", 60)]


@pytest.mark.parametrize("messages", ["counted", "by rule"])
async def test_messages_are_those_of_the_rule_of_replays(log: EventLog, messages: str) -> None:
    """If each reception belongs to a sending, and none failed, the view does not apply the rule to each event."""
    await society(log, "other")
    of = await society(log)
    if messages == "by rule":  # a reception without a sending, on a channel whose senders were not recorded
        tap = await log.register(of, role="tap")
        await log.append(tap, [NewEvent("received", 10**9, "elsewhere", b"alone", 1)])
    found = await sql(log, of, "select id, kind, received_at from messages order by id")
    by_rule = in_database(log.location, "SELECT id, kind, received_at FROM message WHERE exp_id = 'e1' ORDER BY id")
    assert found.rows == [tuple(row) for row in by_rule]
    assert len(found.rows) == 60 + (messages == "by rule")


async def test_a_retracted_sending_is_no_message(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="messager")
    await log.append(writer, [sent(1, b"a"), sent(2, b"b")])
    failed = NewEvent("failed", 3, "c", b"a", cause=(writer.ordinal, 1), meta={"outcome": "not_sent"})
    await log.append(writer, [failed])
    assert (await sql(log, of, "select text from messages")).rows == [("b",)]


HOSTILE = [
    "select 1; delete from event",
    "select 1; select 2",
    "delete from event",
    "/* select */ update event set ts = 0",
    "-- select\ninsert into tag values (1, 'x')",
    "with gone as (select 1) delete from event",
    "with gone as (delete from event returning 1) select * from gone",
    "create table evil (x int)",
    "create temp table evil (x int)",
    "drop view message",
    "begin",
    "commit",
    "rollback",
    "savepoint a",
    "vacuum",
    "explain analyze delete from event",
    "select 1) as answer; drop table event; --",
    "select 1) as a, (select 2",
    "",
    " ;-- nothing\n;",
    "select :other",
    "select \0",
]
ON_SQLITE = [
    "attach 'evil.db' as evil",
    "detach main",
    "pragma journal_mode = delete",
    "pragma query_only = off",
    "select * from pragma_table_info('event')",
    "vacuum into 'evil.db'",
    "select load_extension('evil')",
    "select fts3_tokenizer('simple', x'00')",
    "select writefile('evil.db', 'x')",
    "select readfile('/etc/hostname')",
    "create virtual table evil using fts5(x)",
    "reindex",
    "analyze",
    "replace into tag values (1, 'x')",
    "delete from messages",
    "drop view messages",
    "select ?",
    "select ?1",
]
ON_POSTGRES = [
    "copy (select 1) to program 'touch evil.db'",
    "copy event to stdout",
    "do $$ begin delete from event; end $$",
    "set role postgres",
    "set transaction read write",
    "reset all",
    "call evil()",
    "select * into evil from event",
    "select * from event for update",
    "select nextval('experiment_id_seq')",
    "select setval('experiment_id_seq', 1000)",
    "select set_config('transaction_read_only', 'off', false)",
    "select set_config('transaction_read_only', 'off', false), nextval('experiment_id_seq')",
    "select query_to_xml('delete from event', true, true, '')",
    "select dblink('', 'delete from event')",
    "lock table event",
    "truncate event",
    "notify x",
    "listen x",
    "prepare x as delete from event",
    "declare x cursor with hold for select 1",
    "select $1",
    "select $1, :exp, $2",
    "select 1 as a$$) as x, (select 2 as b$$",
    "select 1 -- x\r) as a, (select 2",
    "select 1 /* /* */ ' */) as a, (select ''",
    "select e'a'\n'\\'') as a, (select ''",
]


async def refused(log: EventLog, of: Experiment, statements: list[str]) -> list[str]:
    """Return the statements that were not refused."""
    left = []
    for statement in statements:
        try:
            await sql(log, of, statement, timeout_s=20)
        except StatementFailed:
            continue
        left.append(statement)
    return left


@pytest.mark.sqlite
async def test_no_statement_changes_a_byte_of_the_file(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EventLog.open(store) as log:
        of = await society(log)
        await index(log, of)
    before, files = Path(store).read_bytes(), sorted(os.listdir(Path(store).parent))
    monkeypatch.chdir(tmp_path)
    async with EventLog.open(store) as log:
        assert await refused(log, of, [*HOSTILE, *ON_SQLITE]) == []
        assert (await verify(log, of)).problems == []
    assert Path(store).read_bytes() == before
    assert sorted(os.listdir(Path(store).parent)) == files
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.nightly
@pytest.mark.postgres
async def test_no_statement_changes_a_row_on_the_server(log: EventLog, store: str) -> None:
    of = await society(log)
    await index(log, of)
    tables = [name for (name,) in execute(store, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]

    def contents() -> list[Any]:
        sequences = execute(store, "SELECT sequencename, last_value FROM pg_sequences ORDER BY 1")
        objects = execute(store, "SELECT relname FROM pg_class ORDER BY 1")
        return [execute(store, f"SELECT t::text FROM {name} t ORDER BY 1") for name in tables] + [sequences, objects]

    before = contents()
    assert await refused(log, of, [*HOSTILE, *ON_POSTGRES]) == []
    assert contents() == before
    assert (await verify(log, of)).problems == []


@pytest.mark.nightly
@pytest.mark.postgres
async def test_what_a_function_did_is_rolled_back_and_its_connection_closed(log: EventLog, store: str) -> None:
    of = await society(log)
    for call in ("lo_create(0)", "lo_import('/etc/hostname')"):
        with contextlib.suppress(StatementFailed):  # PostgreSQL 16 refuses these
            await sql(log, of, f"select {call}")
    for call in ("pg_advisory_lock(5)", "pg_notify('a', 'b')"):
        assert len((await sql(log, of, f"select {call}")).rows) == 1
    assert (await sql(log, of, "select set_config('statement_timeout', '0', false)")).rows == [("0",)]
    assert execute(store, "SELECT count(*) FROM pg_largeobject_metadata") == [(0,)]
    assert execute(store, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]


@pytest.mark.nightly
@pytest.mark.postgres
async def test_a_user_who_may_only_read_can_ask(log: EventLog, store: str, caplog: pytest.LogCaptureFixture) -> None:
    of = await society(log)
    execute(
        store,
        "CREATE ROLE asker LOGIN",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO asker",
        f"REVOKE TEMPORARY ON DATABASE {store.rpartition('/')[2]} FROM public",
    )
    try:
        async with EventLog.open(re.sub(r"//.*@", "//asker@", store), create=False) as theirs:
            assert (await sql(theirs, of, "select count(*) from messages")).rows == [(60,)]
            assert "could not be indexed" in caplog.text
            with pytest.raises(StatementFailed, match="permission denied"):
                await sql(theirs, of, "select pg_read_file('/etc/hostname')")
    finally:
        execute(store, "DROP OWNED BY asker", "DROP ROLE asker")


@pytest.mark.parametrize(
    "statement",
    nightly_after(
        1,
        [
            ENDLESS.format("count(*)"),
            "select count(*) from event a, event b, event c, event d, event e",
            "select count(*) from messages a, messages b, messages c, messages d",
        ],
    ),
)
async def test_a_statement_ends_at_its_time_limit(log: EventLog, store: str, statement: str) -> None:
    of = await society(log)
    with pytest.raises(StatementTimedOut, match=r"time limit of 0.3 s"):
        await sql(log, of, statement, timeout_s=0.3)
    assert not is_read(store)


async def test_an_endless_result_is_read_in_pages(log: EventLog, store: str) -> None:
    of = await society(log)
    found = await sql(log, of, ENDLESS.format("x"), limit=2500, timeout_s=20)
    assert [x for (x,) in found.rows] == list(range(1, 2501)) and found.more
    assert not is_read(store)


async def test_recorders_go_on_while_a_result_is_read(log: EventLog, store: str) -> None:
    of = await society(log)
    async with open_sql(log, of, LONG) as result:
        assert len(await result.fetch(10)) == 10
        writer = await log.register(of, role="messager")
        await log.append(writer, [sent(2 * 10**9)])
        assert is_read(store)
        assert len(await result.fetch(10)) == 10
    assert not is_read(store)
    assert (await sql(log, of, "select count(*) from messages")).rows == [(61,)]


async def test_the_time_limit_holds_while_nobody_reads_the_result(log: EventLog, store: str) -> None:
    """The event loop is blocked here, as by a write into a pipe that nobody reads."""
    of = await society(log)

    async def read() -> None:
        async with open_sql(log, of, LONG, timeout_s=0.5) as result:
            await result.fetch(10)
            await log.append(await log.register(of, role="messager"), [sent(2 * 10**9)])  # something to checkpoint
            blocked_until(lambda: not is_read(store))
            await result.fetch(1)

    with pytest.raises(StatementTimedOut):
        await read()


async def test_a_cancelled_statement_ends(log: EventLog, store: str) -> None:
    of = await society(log)
    await index(log, of)
    asking = asyncio.create_task(sql(log, of, f"select count(*) from ({LONG}) x", timeout_s=600))
    writer = await log.register(of, role="messager")
    at = 0

    async def is_read_now() -> bool:
        nonlocal at
        at += 1
        await log.append(writer, [sent(2 * 10**9 + at)])  # something to checkpoint
        return is_read(store)

    await until(is_read_now)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not is_read(store)


def is_read(store: str) -> bool:
    """Return whether a transaction of another connection reads the store."""
    if "://" in store:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        return execute(store, f"SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND {others}") != [
            (0,)
        ]
    with closing(sqlite3.connect(store, timeout=0)) as connection:
        [(busy, _, _)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return bool(busy)


def blocked_until(holds: Callable[[], bool]) -> None:
    """Wait without letting the event loop run."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_an_error_says_where(log: EventLog) -> None:
    of = await society(log)
    for statement, words, at in [
        ("select form messages", "form", 7),
        ("select *\nfrm messages", "frm", 9),
        ("select text from messagse", "messagse", 17),
        ("select text from", "in", 16),
        ("select 1 form form messages", "form", None),
    ]:
        with pytest.raises(StatementFailed, match=words) as caught:
            await sql(log, of, statement)
        if at is not None or "://" not in log.location:
            assert (caught.value.position, caught.value.statement) == (at, statement)
        if at is not None:
            line = "line 2, column 1" if "\n" in statement else f"line 1, column {at + 1}"
            assert line in str(caught.value)


@pytest.mark.nightly
@pytest.mark.postgres
async def test_values_of_postgres_are_plain(log: EventLog) -> None:
    of = await society(log)
    uuid = "c0ffee00-0000-0000-0000-000000000000"
    statement = r"""select 1.5::numeric, 3::numeric, 10::numeric ^ 20, 'nan'::numeric::text, array[1, null],
        '{"a": [1]}'::jsonb, row(1, 'x'), '\xff'::bytea, date '2026-01-02', """
    [row] = (await sql(log, of, f"{statement}'{uuid}'::uuid")).rows
    big = 10**20
    assert row == (1.5, 3, big, "NaN", [1, None], {"a": [1]}, [1, "x"], b"\xff", "2026-01-02", uuid)
    assert isinstance(row[1], int)


@pytest.mark.sqlite
async def test_text_of_sqlite_that_is_not_utf_8_is_shown(log: EventLog) -> None:
    of = await society(log)
    assert (await sql(log, of, "select cast(x'61ff' as text), x'61ff'")).rows == [("a\\xff", b"a\xff")]


async def test_an_impossible_time_limit_is_refused(log: EventLog) -> None:
    of = await society(log)
    for seconds in (0, -1, float("inf"), float("nan"), 1e300, 2_147_484):
        with pytest.raises(StoreError, match=r"time limit of .* not possible.*at most 2147483\."):
            await sql(log, of, "select 1", timeout_s=seconds)
    assert (await sql(log, of, "select 1", timeout_s=2_147_483)).rows == [(1,)]


async def test_parentheses_in_texts_and_comments_close_nothing(log: EventLog) -> None:
    of = await society(log)
    found = await sql(log, of, "select ')', (select ')' as \")\") -- )\n, 1 /* ) */ from (select 1) a")
    assert found.rows == [(")", ")", 1)]
    with pytest.raises(StatementFailed, match=r"\)\".*\(line 2, column 1\)"):
        await sql(log, of, "select 1\n) as a, (select 2")


async def test_rows_come_in_pages(log: EventLog) -> None:
    of = await society(log)
    async with open_sql(log, of, ENDLESS.format("x")) as result:
        sizes = [len(page) async for page in pages_of(result, 2300)]
    assert sizes == [1000, 1000, 300]
