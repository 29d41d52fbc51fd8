"""A user's SQL statement reads one experiment, writes nothing, and ends at its limits of time and memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from messager_store import EventLog, Experiment, NewEvent
from messager_store.db import derived_files
from messager_store.errors import StatementFailed, StatementTimedOut, StoreError
from messager_store.projection.sql import open_sql, pages_of, sql
from tests.support import MESSAGER, nightly_after, until
from tests.support.logs import experiment, listed, sent

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {} FROM n"
LONG = "select range from range(1000000000000)"
ONE_CALL = "select count(*) from range(1000) where repeat('a', 5000000 + range) like '%' || repeat('a', 4000) || 'b%'"
"""A function that takes hours."""
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
    expected = Counter((str(e.from_id), str(e.to_id)) for e in events if e.kind == "sent")
    assert {row[:2]: row[2] for row in found.rows} == expected and len(expected) == 3
    assert (await sql(log, of, "select count(*) from events")).rows == [(len(events),)]
    assert (await sql(log, of, "select count(*), min(delay_ms) from deliveries")).rows == [(59, 0.5)]
    [(name, fields, ts)] = (await sql(log, of, "select name, fields, ts from marks")).rows
    assert (name, json.loads(fields), ts) == ("tick", {"n": 1}, 7)
    assert (await sql(log, of, "select reason, since, until from gaps")).rows == [("lost", 10**9, 10**9 + 1)]
    [(text,)] = (await sql(log, of, "select text from messages where received_at is null")).rows
    assert text == "hello 59"


async def test_a_retracted_sending_is_no_message(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="messager")
    await log.append(writer, [sent(1, b"a"), sent(2, b"b")])
    assert len((await sql(log, of, "select text from messages")).rows) == 2
    failed = NewEvent("failed", 3, "c", b"a", cause=(writer.ordinal, 1), meta={"outcome": "not_sent"})
    await log.append(writer, [failed])
    assert (await sql(log, of, "select text from messages")).rows == [("b",)]


HOSTILE = [
    "select 1; delete from event",
    "delete from tail",
    "create table evil (x int)",
    "explain analyze copy (select 1) to 'evil.csv'",
    "attach 'evil.db' as evil",
    "copy (select 1) to '{part}' (format parquet)",
    "export database 'evil'",
    "install httpfs",
    "set enable_external_access = true",
    "select * from read_text('/etc/hostname')",
    "select * from '{part}'",
    "select * from glob('*')",
    "from query('delete from tail')",
    " ;-- nothing\n;",
    "select $other",
    "select \0",
    "select '\ud800'",
]
MORE_HOSTILE = [
    "select 1; select 2",
    "/* select */ update tail set ts = 0",
    "with gone as (delete from tail returning 1) select * from gone",
    "create temp table evil (x int)",
    "drop view messages",
    "begin",
    "vacuum",
    "checkpoint",
    "copy messages to 'evil.csv'",
    "copy (select 1) to 'evil.parquet' (format parquet)",
    "import database 'evil'",
    "load httpfs",
    "set memory_limit = '99GB'",
    "set temp_directory = 'evil'",
    "reset enable_external_access",
    "pragma enable_external_access",
    "call enable_logging()",
    "select * from read_blob('{part}')",
    "select * from read_parquet('{part}')",
    "select * from read_csv('/etc/passwd')",
    "select * from sniff_csv('/etc/passwd')",
    "select * from parquet_metadata('{part}')",
    "from duckdb_secrets()",
    "from sqlite_scan('evil.db', 'event')",
    "prepare x as select 1",
    "select getenv('HOME')",
    "",
    "select ?",
]


@pytest.mark.parametrize("statements", nightly_after(1, [HOSTILE, MORE_HOSTILE]), ids=["short", "more"])
async def test_no_statement_writes_or_opens_anything(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: list[str]
) -> None:
    monkeypatch.setattr("messager_store.projection.update.TAIL", 10)
    of = await society(log)
    assert (await sql(log, of, "select count(*) from messages")).rows == [(60,)]
    [part] = [path for folder in derived_files.folders(log.database, of.id) for path in folder.glob("*.parquet")]
    before = part.read_bytes()
    monkeypatch.chdir(tmp_path)
    left = []
    for statement in statements:
        try:
            await sql(log, of, statement.replace("{part}", str(part)), timeout_s=60)
        except StatementFailed:
            continue
        left.append(statement)
    assert left == []
    assert part.read_bytes() == before
    assert not [*tmp_path.rglob("evil*"), *tmp_path.rglob("*.tmp")]
    assert (await sql(log, of, "select count(*) from messages")).rows == [(60,)]


@pytest.mark.parametrize(
    "statement",
    ["select length(repeat('x', 4000000000))", "select list(repeat('x', 100000000)) from range(1000)"],
)
async def test_a_statement_that_needs_too_much_memory_ends(
    log: EventLog, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr("messager_store.projection.sql.MEMORY", 1 << 30)
    of = await society(log)
    with pytest.raises(StatementFailed, match="memory"):
        await sql(log, of, statement, timeout_s=120)


@pytest.mark.parametrize(
    "statement", nightly_after(2, [ONE_CALL, ENDLESS.format("count(*)"), f"select sum(range) from ({LONG})"])
)
async def test_a_statement_ends_at_its_time_limit(log: EventLog, statement: str) -> None:
    of = await society(log)
    with pytest.raises(StatementTimedOut, match=r"time limit of 1 s"):
        await sql(log, of, statement, timeout_s=1)
    assert running(os.getpid()) == []


async def test_a_limit_that_passes_before_the_statement_begins_is_kept(log: EventLog) -> None:
    of = await society(log)
    with pytest.raises(StatementTimedOut):
        await sql(log, of, ENDLESS.format("count(*)"), timeout_s=1e-9)


async def test_the_time_limit_holds_while_nobody_reads_the_result(log: EventLog) -> None:
    """The event loop is blocked here, as by a write into a pipe that nobody reads."""
    of = await society(log)

    async def read() -> None:
        async with open_sql(log, of, LONG, timeout_s=5) as result:
            await result.fetch(10)
            blocked_until(lambda: not running(os.getpid()))
            await result.fetch(10**9)

    with pytest.raises(StatementTimedOut):
        await read()


async def test_a_long_result_is_read_in_pages_and_its_rest_never_computed(log: EventLog) -> None:
    of = await society(log)
    found = await sql(log, of, LONG, limit=2500, timeout_s=60)
    assert [x for (x,) in found.rows] == list(range(2500)) and found.more
    async with open_sql(log, of, LONG, timeout_s=60) as result:
        assert [len(page) async for page in pages_of(result, 2300)] == [1000, 1000, 300]


async def test_large_rows_come_in_small_pages(log: EventLog) -> None:
    of = await society(log)
    statement = "select range, repeat('x', 1000000) from range(90) order by 1"
    async with open_sql(log, of, statement, timeout_s=120) as result:
        pages = [[x for x, _ in page] async for page in pages_of(result)]
    assert [x for page in pages for x in page] == list(range(90))


async def test_recorders_go_on_while_a_result_is_read(log: EventLog) -> None:
    of = await society(log)
    async with open_sql(log, of, LONG, timeout_s=60) as result:
        assert len(await result.fetch(10)) == 10
        await log.append(await log.register(of, role="messager"), [sent(2 * 10**9)])
        assert len(await result.fetch(10)) == 10
    assert running(os.getpid()) == []
    assert (await sql(log, of, "select count(*) from messages")).rows == [(61,)]


async def test_a_cancelled_caller_ends_a_function_that_takes_hours(log: EventLog) -> None:
    of = await society(log)
    asking = asyncio.create_task(sql(log, of, ONE_CALL, timeout_s=600))
    await until(lambda: running(os.getpid()) != [], 60)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert running(os.getpid()) == []


@pytest.mark.sqlite
@pytest.mark.parametrize(("name", "code"), nightly_after(1, [("SIGINT", 130), ("SIGTERM", 130), ("SIGKILL", -9)]))
async def test_a_signal_to_the_caller_ends_a_function_that_takes_hours(
    log: EventLog, store: str, name: str, code: int
) -> None:
    await society(log)
    arguments = ["--store", store, "sql", "e1", ONE_CALL, "--timeout", "600"]
    caller = subprocess.Popen([*MESSAGER, *arguments], stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        await until(lambda: running(caller.pid) != [], 60)
        [statement] = running(caller.pid)
    finally:
        os.killpg(caller.pid, signal.Signals[name])  # as a terminal does
    _, errors = caller.communicate(timeout=60)
    assert (caller.returncode, errors.strip()) == (code, "messager: interrupted" if code > 0 else "")
    await until(lambda: not exists(statement), 60)


@pytest.mark.sqlite
async def test_a_closed_pipe_ends_a_result(log: EventLog, store: str) -> None:
    await society(log)
    caller = subprocess.Popen(
        [*MESSAGER, "--store", store, "sql", "e1", LONG, "--csv", "--timeout", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert caller.stdout is not None
    assert caller.stdout.readline() == b"range\n"
    [statement] = running(caller.pid)
    caller.stdout.close()
    caller.stdout = None
    assert caller.communicate(timeout=60) == (None, b"") and caller.returncode == 0
    assert not exists(statement)


async def test_a_process_that_somebody_kills_is_one_error(log: EventLog) -> None:
    of = await society(log)
    async with open_sql(log, of, LONG, timeout_s=60) as result:
        assert len(await result.fetch(10)) == 10
        [statement] = running(os.getpid())
        os.kill(statement, signal.SIGKILL)
        with pytest.raises(StatementFailed, match="process ended"):
            await result.fetch(10)


async def test_a_python_without_a_name_is_one_error(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    of = await society(log)
    monkeypatch.setattr("sys.executable", "")
    with pytest.raises(StoreError, match=r"sys.executable is empty"):
        await sql(log, of, "select 1")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(StoreError, match=r"/nowhere/python cannot be started"):
        await sql(log, of, "select 1")


@pytest.mark.parametrize(
    ("statement", "words", "at"),
    [
        ("select form messages x y", "x", 21),
        ("select *\nfrm messages m n", "messages", 13),
        ("select text from messagse", "messagse", 17),
        ("select '\u65e5', nothing from messages", "nothing", 12),
    ],
)
async def test_an_error_says_where(log: EventLog, statement: str, words: str, at: int) -> None:
    of = await society(log)
    with pytest.raises(StatementFailed, match=words) as caught:
        await sql(log, of, statement)
    assert (caught.value.position, caught.value.statement) == (at, statement)
    line = "line 2, column 5" if "\n" in statement else f"line 1, column {at + 1}"
    assert line in str(caught.value)


async def test_an_error_of_a_value_says_which(log: EventLog) -> None:
    of = await society(log)
    with pytest.raises(StatementFailed, match="hello 0"):
        await sql(log, of, "select text::int from messages order by ts")


async def test_values_are_plain(log: EventLog) -> None:
    of = await society(log)
    statement = """select 1.5::decimal(5, 2), 3::decimal(5, 0), 10::hugeint ** 1, [1, null], {'a': [1]}, '\\xFF'::blob,
        date '2026-01-02', timestamptz '2026-01-02 03:04:05Z', interval '1 day', sum(ts)
        from messages where ts = 0"""
    [row] = (await sql(log, of, statement)).rows
    assert row[:5] == (1.5, 3, 10, [1, None], {"a": [1]})
    assert row[5:8] == (b"\xff", date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert row[9] == 0 and isinstance(row[1], int) and not isinstance(row[8], timedelta)


async def test_an_impossible_time_limit_is_refused(log: EventLog) -> None:
    of = await society(log)
    for seconds in (0, -1, float("inf"), float("nan"), 1e300, 2_147_484):
        with pytest.raises(StoreError, match=r"time limit of .* not possible.*at most 2147483\."):
            await sql(log, of, "select 1", timeout_s=seconds)
    assert (await sql(log, of, "select 1", timeout_s=2_147_483)).rows == [(1,)]


def running(parent: int) -> list[int]:
    """Return the processes that run statements of a process."""
    return [pid for pid, of, command in processes() if of == parent and "sql_program.py" in command]


def processes() -> Iterator[tuple[int, int, str]]:
    """Yield each process, its parent and its command line. A small Linux has no ps, and macOS no /proc."""
    if not os.path.exists("/proc/self/stat"):
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            pid, parent, command = line.split(None, 2)
            yield int(pid), int(parent), command
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            yield int(path.name), int(parent), (path / "cmdline").read_text(errors="replace")


def exists(pid: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def blocked_until(holds: Callable[[], bool]) -> None:
    """Wait without letting the event loop run."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
