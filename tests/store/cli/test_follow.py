"""`events --follow`, started before the store or the experiment exists."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, NewEvent
from messager_store.errors import StoreNotFound, StoreUnavailable
from messager_store.recording.closing import close
from messager_store.testing import PostgresServer, execute
from tests.support import forks, messager
from tests.support.command_line import one_line
from tests.support.forked_program import ForkedProgram
from tests.support.logs import filled, sent

WAIT = "waiting for"


@contextlib.contextmanager
def following(folder: Path, store: str, *words: str, exp: str = "e1") -> Iterator[tuple[ForkedProgram, str]]:
    """Start a verb that follows an experiment; return it with its line about waiting."""
    line = ["--store", store, "events", exp, "--follow", "--json", *words]
    with ForkedProgram(forks.COMMAND_LINE, line, folder) as process:
        assert process.stderr is not None
        try:
            yield process, process.stderr.readline()
        finally:
            process.kill()


def printed(process: ForkedProgram) -> list[int]:
    """Return the times of the printed events, in order."""
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    return [json.loads(line)["ts"] for line in stdout.splitlines()]


async def recorded(store: str, *events: NewEvent) -> None:
    """Record events into the experiment e1, creating the store if needed, and close the experiment."""
    async with EventLog.open(store) as log:
        of = await filled(log, list(events))
        await close(log, of, force=True)


def test_a_store_that_does_not_exist_yet_is_waited_for_and_followed_from_the_first_event(
    unmade: str, tmp_path: Path
) -> None:
    with following(tmp_path, unmade, "--from", "3") as (process, line):
        assert line.startswith(WAIT) and "'e1'" in line
        assert "://" in unmade or not Path(unmade).exists()
        asyncio.run(recorded(unmade, sent(1, from_id=3), sent(2, from_id=4), sent(3, from_id=3)))
        assert printed(process) == [1, 3]


def test_an_experiment_that_does_not_exist_yet_is_waited_for(store: str, tmp_path: Path) -> None:
    async def another() -> None:
        async with EventLog.open(store) as log:
            await filled(log, [sent(9)], "e2")

    asyncio.run(another())
    with following(tmp_path, store) as (process, line):
        assert line.startswith(f"{WAIT} the experiment 'e1' in ") and "Did you mean e2?" in line
        asyncio.run(recorded(store, sent(1)))
        assert printed(process) == [1]


@pytest.mark.sqlite
def test_a_file_without_a_schema_is_waited_for(unmade: str, tmp_path: Path) -> None:
    Path(unmade).touch()
    with following(tmp_path, unmade) as (process, line):
        assert line.startswith(WAIT)
        assert Path(unmade).stat().st_size == 0
        asyncio.run(recorded(unmade, sent(1)))
        assert printed(process) == [1]


@pytest.mark.postgres
@pytest.mark.parametrize("missing", ["database", "schema"])
def test_a_database_or_a_schema_that_does_not_exist_yet_is_waited_for(
    databases: Any, tmp_path: Path, missing: str
) -> None:
    base = databases.create()
    store = f"{base}_later" if missing == "database" else f"{base}?search_path=later"
    try:
        with following(tmp_path, store) as (process, line):
            assert line.startswith(WAIT)
            execute(
                base,
                f'CREATE DATABASE "{base.rpartition("/")[2]}_later"'
                if missing == "database"
                else "CREATE SCHEMA later",
            )
            asyncio.run(recorded(store, sent(1)))
            assert printed(process) == [1]
    finally:
        if missing == "database":
            databases.drop(store)
        databases.drop(base)


@pytest.mark.parametrize("experiment", [False, True])
def test_an_interrupt_ends_the_waiting_and_leaves_no_store(tmp_path: Path, experiment: bool) -> None:
    if experiment:
        messager("db", "upgrade", cwd=tmp_path)
    there = sorted(os.listdir(tmp_path))
    with following(tmp_path, "messager.db") as (process, line):
        assert line.startswith(WAIT)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        assert (process.returncode, stderr.strip()) == (130, "messager: interrupted")
    assert [name for name in sorted(os.listdir(tmp_path)) if not name.endswith(("-wal", "-shm"))] == there


def test_what_waiting_does_not_help_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database, but a text that is longer than its header\n" * 3)
    assert messager("--store", "newer.db", "db", "upgrade", cwd=tmp_path).returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "newer.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for store, code, words in (
        ("text.db", 2, "not an SQLite database"),
        ("newer.db", 2, "made by another version"),
        ("no/folder/log.db", 3, "there is no folder"),
        (":memory:", 3, "it does not exist"),
        ("nosuch://host/x", 2, "no store of scheme 'nosuch'"),
        ("postgresql://127.0.0.1:1/x", 3, "nobody listens"),
    ):
        done = messager("--store", store, "events", "e1", "--follow", cwd=tmp_path)
        one_line(done, code, words)
    one_line(messager("events", "e1", "--follow", "--kind", "said", cwd=tmp_path), 2, "said")
    one_line(messager("events", "e1", cwd=tmp_path), 3, "it does not exist")
    assert sorted(os.listdir(tmp_path)) == ["newer.db", "text.db"]


async def test_a_missing_store_is_told_from_one_that_is_out_of_reach(unmade: str, server: PostgresServer) -> None:
    with pytest.raises(StoreNotFound, match="it does not exist"):
        await EventLog.open(unmade, create=False)
    server.stop()
    with pytest.raises(StoreUnavailable) as raised:
        await EventLog.open(server.url("postgres"), create=False)
    assert not isinstance(raised.value, StoreNotFound)
