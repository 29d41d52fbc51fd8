"""Stores: creation on first use, and errors for other files, damaged stores and locked ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from sqlalchemy import select, text

from messager_store import EventLog
from messager_store.db.databases import for_store
from messager_store.db.postgres import dialect as postgres_dialect
from messager_store.db.schema import HEAD_REVISION, recorder
from messager_store.db.sqlite import dialect as sqlite_dialect
from messager_store.db.sqlite.file import is_database, make
from messager_store.errors import NotAStore, StoreError, StoreUnavailable, WrongRevision
from messager_store.formats.jsonl import export_jsonl
from tests.support import MESSAGER, nightly_after, sql
from tests.support.logs import experiment, filled, listed, sent
from tests.support.outages import locked


async def test_the_store_is_made_on_first_use_and_never_by_reading(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with pytest.raises(StoreUnavailable, match="it does not exist"):
        async with EventLog.open(str(path), create=False):
            pass
    assert not path.exists()
    log = await EventLog.open(f"sqlite:///{path}")
    assert log.location == str(path)
    await log.close()
    await log.close()
    async with EventLog.open(str(path), create=False):
        assert path.exists()


@pytest.mark.databases
async def test_many_may_make_the_same_store_at_once(unmade: str) -> None:
    async def open_and_use(number: int) -> None:
        async with EventLog.open(unmade) as log:
            await log.create_experiment(f"e{number}")

    await asyncio.gather(*(open_and_use(number) for number in range(6)))
    async with EventLog.open(unmade) as log:
        assert len(await log.experiments()) == 6


@pytest.mark.sqlite
@pytest.mark.parametrize("again", nightly_after(1, ["opened", "exported onto", "looked at"]))
async def test_a_store_that_is_opened_again_in_this_process_stays_locked_against_others(
    log: EventLog, store: str, tmp_path: Path, again: str
) -> None:
    writer = await log.register(await experiment(log), role="tap")
    await log.append(writer, [sent(1)])
    if again == "opened":
        await (await EventLog.open(store)).close()
    elif again == "looked at":
        assert is_database(store)
    else:
        with pytest.raises(StoreError, match="belongs to the store"):
            await export_jsonl(log, "e1", store)

    def others_see() -> int:
        done = subprocess.run([*MESSAGER, "info", "e1", "--json", "--store", store], capture_output=True, timeout=60)
        return int(json.loads(done.stdout)["events"])

    assert others_see() == 1  # and takes itself for the last one, where nobody else has it locked
    await log.append(writer, [sent(2)])
    assert others_see() == 2


@pytest.mark.sqlite
@pytest.mark.parametrize("links", [True, False])
async def test_a_store_is_made_once_and_only_its_owner_may_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: os.rmdir(tmp_path / "missing"))  # any OSError
    before = os.umask(0)
    try:
        make(tmp_path / "log.db")
    finally:
        os.umask(before)
    assert (tmp_path / "log.db").stat().st_mode & 0o777 == 0o600
    (tmp_path / "log.db").write_bytes(b"kept")
    make(tmp_path / "log.db")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"kept"]
    assert not is_database(tmp_path / "log.db")


@pytest.mark.sqlite
async def test_a_store_in_a_setgid_folder_belongs_to_the_group_and_its_mode_is_not_changed(tmp_path: Path) -> None:
    tmp_path.chmod(0o2700)
    before = os.umask(0o077)
    try:
        for mode in (0o660, 0o640):
            async with EventLog.open(str(tmp_path / "log.db")) as log:
                await log.create_experiment(f"e{mode}")
                files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
            assert files == dict.fromkeys(("log.db", "log.db-wal", "log.db-shm"), mode)
            (tmp_path / "log.db").chmod(0o640)
    finally:
        os.umask(before)


@pytest.mark.sqlite
async def test_who_opens_a_new_store_waits_for_one_who_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, refused, sleep = tmp_path / "log.db", asyncio.Event(), asyncio.sleep

    async def until_the_next_try(seconds: float) -> None:
        refused.set()
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", until_the_next_try)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.ensure_future(EventLog.open(str(path)))
        first_try = asyncio.create_task(refused.wait())
        await asyncio.wait([opening, first_try], return_when=asyncio.FIRST_COMPLETED)
        assert first_try.done(), await opening
        other.execute("COMMIT")
        log = await opening
        await log.create_experiment("e1")
        await log.close()


async def test_files_that_are_no_store_are_named_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("dear diary " * 100)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE recipes (id INTEGER)")
    connection.close()
    before = {path: path.read_bytes() for path in (text, other)}
    for path, reason in ((text, "not an SQLite database"), (other, "recipes"), (tmp_path, "a folder")):
        with pytest.raises(NotAStore, match=reason):
            await EventLog.open(str(path))
    with pytest.raises(StoreUnavailable, match="no folder"):
        await EventLog.open(str(tmp_path / "no" / "such" / "log.db"))
    assert {path: path.read_bytes() for path in before} == before


async def test_a_store_of_another_revision_is_named_with_the_command(store: str) -> None:
    await (await EventLog.open(store)).close()
    for revision, remedy in (("9999", "another version"), ("", "db upgrade")):
        sql(store, "DELETE FROM alembic_version")
        if revision:
            sql(store, f"INSERT INTO alembic_version VALUES ('{revision}')")
        with pytest.raises(WrongRevision, match=remedy) as caught:
            await EventLog.open(store)
        assert HEAD_REVISION in str(caught.value)


async def test_a_scheme_nobody_knows_lists_those_it_does() -> None:
    for url in ["mysql://h/d", "oracle://u:hunter2@h/d", "://", "weird://x"]:
        with pytest.raises(StoreError, match="sqlite") as caught:
            await EventLog.open(url)
        assert "hunter2" not in str(caught.value)


async def test_a_damaged_store_is_told(tmp_path: Path) -> None:
    from messager_store.errors import DamagedStore

    path = tmp_path / "log.db"
    async with EventLog.open(str(path)) as log:
        await filled(log, [sent(number, b"x" * 500) for number in range(2000)])
    data = bytearray(path.read_bytes())
    for at in range(4096 * 20, len(data), 4096):
        data[at : at + 64] = b"\xa5" * 64
    path.write_bytes(data)
    with pytest.raises(DamagedStore):
        async with EventLog.open(str(path)) as log:
            await listed(log.read("e1"))
    async with EventLog.open(str(tmp_path / "other.db")):
        pass
    data = bytearray((tmp_path / "other.db").read_bytes())
    path.write_bytes(data.replace(b"CREATE INDEX", b"CREATE \xadNDEX"))
    with pytest.raises(DamagedStore, match="not UTF-8"):
        async with EventLog.open(str(path), create=False):
            pass


async def test_a_store_kept_locked_is_told_within_five_seconds(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for dialect, name in ((sqlite_dialect, "BUSY_TIMEOUT_MS"), (postgres_dialect, "LOCK_TIMEOUT_MS")):
        assert 1000 < getattr(dialect, name) < 5000
        monkeypatch.setattr(dialect, name, 100)
    async with EventLog.open(store) as log:
        of = await experiment(log)
        with locked(store), pytest.raises(StoreUnavailable, match="locked"):
            await log.register(of, role="tap")
        await log.register(of, role="tap")


async def test_a_read_that_is_cancelled_does_no_harm(store: str) -> None:
    for where in (store,) if "://" in store else (":memory:", store):
        async with EventLog.open(where) as log:
            await filled(log, [sent(number) for number in range(3000)])
            for turns in range(40):
                task = asyncio.create_task(listed(log.read("e1")))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert len(await listed(log.read("e1"))) == 3000


async def test_a_statement_that_is_cancelled_ends_and_so_does_its_thread(tmp_path: Path) -> None:
    """Ctrl-C waited for the statement; its thread told a closed event loop: "Event loop is closed" was printed."""
    endless = text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n")
    before = set(threading.enumerate())

    async def use(log: EventLog) -> None:
        async with log.database.reading() as connection:
            await connection.execute(endless)

    for turns in (30, 300):
        async with EventLog.open(str(tmp_path / "a.db")) as log:
            task = asyncio.create_task(use(log))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
    left = [thread.name for thread in set(threading.enumerate()) - before if "connection" in thread.name]
    assert left == []


def test_a_url_without_a_file_is_told_without_its_secrets() -> None:
    for url in ["sqlite://u:hun@ter2@host/", "sqlite://u:hunter2@host/x.db"]:
        with pytest.raises(StoreError, match="names no file") as caught:
            for_store(url)
        assert "hun" not in str(caught.value) and "ter2" not in str(caught.value)


def test_a_mistyped_url_is_not_taken_for_the_name_of_a_file() -> None:
    for url in ["postgresql:ann:hunter2@h", "postgres:/ann:hunter2@h", "postgresql//ann:hunter2@h/db"]:
        with pytest.raises(StoreError, match="no :// after the scheme") as caught:
            for_store(url)
        assert "hunter2" not in str(caught.value)
        assert for_store("postgres.db").location.endswith("postgres.db")


@pytest.mark.parametrize("way", ["writing", "reading"])
async def test_a_task_that_is_cancelled_at_any_moment_leaves_neither_a_lock_nor_a_connection_behind(
    log: EventLog, way: str
) -> None:
    """`asyncio.run` cancels all tasks at its end. Saving afterwards once waited for them for ever."""
    dice = random.Random(7)
    kept: list[asyncio.Task[None]] = []
    of = await experiment(log)

    async def use() -> None:
        async with getattr(log.database, way)() as connection:
            for _ in range(2):
                await connection.execute(select(recorder.c.id))

    for _ in range(150):
        others = asyncio.all_tasks()
        kept.append(asyncio.create_task(use()))  # and with it, its exception
        for _ in range(dice.randrange(60)):
            await asyncio.sleep(0)
        if dice.random() < 0.5:
            await asyncio.sleep(dice.random() * 0.002)
        for task in asyncio.all_tasks() - others:
            task.cancel()
        await asyncio.wait(kept)
        async with asyncio.timeout(60):
            await log.tag(of, ["a"], [])
            await use()
