"""A statement on SQLite ends with its process: at the limit, with its caller, and in the middle of a function."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from messager_store import EventLog, Experiment
from messager_store.errors import StatementTimedOut, StoreError, StoreUnavailable
from messager_store.queries.index import index
from messager_store.queries.sql import open_sql, pages_of, sql
from tests.store.queries.test_sql import ENDLESS, LONG, is_read, society
from tests.support import MESSAGER, nightly_after, until
from tests.support.logs import sent

ONE_CALL = "select printf('%.*c', 50000000, 'a') like '%' || printf('%.*c', 40000, 'a') || 'b%' from event"
"""A function that takes hours, and that an interrupt does not end."""

pytestmark = pytest.mark.sqlite


def running(parent: int) -> list[int]:
    """Return the processes that run statements of a process."""
    return [pid for pid, of, command in processes() if of == parent and "query_program.py" in command]


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


async def until_read(log: EventLog, of: Experiment, parent: int) -> int:
    """Wait until a statement has a transaction, and return its process."""
    writer = await log.register(of, role="messager")
    at = 0

    async def is_read_now() -> bool:
        nonlocal at
        if not running(parent):
            return False
        at += 1
        await log.append(writer, [sent(2 * 10**9 + at)])  # something to checkpoint
        return is_read(log.location)

    await until(is_read_now, 30)
    [statement] = running(parent)
    return statement


async def test_a_function_that_takes_hours_ends_at_the_limit(log: EventLog, store: str) -> None:
    of = await society(log)
    with pytest.raises(StatementTimedOut, match=r"time limit of 0.5 s"):
        await sql(log, of, ONE_CALL, timeout_s=0.5)
    await log.append(await log.register(of, role="messager"), [sent(2 * 10**9)])
    assert running(os.getpid()) == [] and not is_read(store)


async def test_a_limit_that_passes_before_the_statement_begins_is_kept(log: EventLog) -> None:
    of = await society(log)
    with pytest.raises(StatementTimedOut):
        await sql(log, of, ENDLESS.format("count(*)"), timeout_s=1e-9)


async def test_a_cancelled_caller_ends_a_function_that_takes_hours(log: EventLog, store: str) -> None:
    of = await society(log)
    await index(log, of)
    asking = asyncio.create_task(sql(log, of, ONE_CALL, timeout_s=600))
    statement = await until_read(log, of, os.getpid())
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not exists(statement) and not is_read(store)


@pytest.mark.parametrize(("name", "code"), nightly_after(1, [("SIGINT", 130), ("SIGTERM", 130), ("SIGKILL", -9)]))
async def test_a_signal_to_the_caller_ends_a_function_that_takes_hours(
    log: EventLog, store: str, name: str, code: int
) -> None:
    of = await society(log)
    await index(log, of)
    arguments = ["--store", store, "sql", "e1", ONE_CALL, "--timeout", "600"]
    caller = subprocess.Popen([*MESSAGER, *arguments], stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        statement = await until_read(log, of, caller.pid)
    finally:
        os.killpg(caller.pid, signal.Signals[name])  # as a terminal does
    _, errors = caller.communicate(timeout=60)
    assert (caller.returncode, errors.strip()) == (code, "messager: interrupted" if code > 0 else "")
    await until(lambda: not exists(statement))
    assert not is_read(store)


async def test_a_closed_pipe_ends_an_endless_result(log: EventLog, store: str) -> None:
    of = await society(log)
    await index(log, of)
    caller = subprocess.Popen(
        [*MESSAGER, "--store", store, "sql", "e1", ENDLESS.format("x"), "--csv", "--timeout", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert caller.stdout is not None
    assert caller.stdout.readline() == b"x\n"
    [statement] = running(caller.pid)
    caller.stdout.close()
    caller.stdout = None
    assert caller.communicate(timeout=60) == (None, b"") and caller.returncode == 0
    assert not exists(statement) and not is_read(store)


async def test_a_process_that_somebody_kills_is_an_error_of_the_store(log: EventLog) -> None:
    of = await society(log)
    async with open_sql(log, of, LONG) as result:
        assert len(await result.fetch(10)) == 10
        [statement] = running(os.getpid())
        os.kill(statement, signal.SIGKILL)
        with pytest.raises(StoreUnavailable, match="was killed"):
            await result.fetch(10)


async def test_large_rows_come_in_small_pages(log: EventLog) -> None:
    of = await society(log)
    statement = f"select x, zeroblob(1000000) from ({ENDLESS.format('x')} limit 90)"
    async with open_sql(log, of, statement, timeout_s=60) as result:
        pages = [[x for x, _ in page] async for page in pages_of(result)]
    assert [x for page in pages for x in page] == list(range(1, 91))
    assert max(map(len, pages)) < 40


async def test_a_python_without_a_name_is_one_error(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    of = await society(log)
    monkeypatch.setattr("sys.executable", "")
    with pytest.raises(StoreError, match=r"sys.executable is empty"):
        await sql(log, of, "select 1")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(StoreError, match=r"/nowhere/python cannot be started"):
        await sql(log, of, "select 1")


def exists(pid: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
