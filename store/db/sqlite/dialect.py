"""SQLite, through aiosqlite.

Writers open with BEGIN IMMEDIATE: a deferred BEGIN fails at once ("database is locked")
when two writers upgrade together. Only the two connections that write checkpoint the WAL, and
they take turns: SQLite before 3.51.3 can in rare cases corrupt a database when several do at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from sqlite3 import Error as SQLiteError
from typing import Any

import aiosqlite
from sqlalchemy import Insert, Table, event, text
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from ...errors import DamagedStore, NotAStore, StoreError, StoreUnavailable
from ..dialect import Dialect, Need
from ..one_host import ELSEWHERE, HOST, refusal
from ..state_folder import cache_folder, state_folder
from . import file
from .append import Appender

BUSY_TIMEOUT_MS = 4000
"""Maximum wait of one writer for another; an unreachable store is reported within five seconds."""
READERS = 4
REWRITE_SECONDS = 10.0
"""Maximum time that a rewrite retries while other programs block it; each try waits for `BUSY_TIMEOUT_MS` itself."""
_WAL = "PRAGMA journal_mode=WAL"
_WANTED = "PRAGMA user_version"
_CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"
_READ_ONLY = "you may read it, but not write it: ask for the right to write to the file and its folder, or take a copy"
_UNREADABLE = "reading it takes a right to write beside it: ask for that, or copy it, with the -wal file beside it"


class SQLite(Dialect):
    """One file, created on first use. `:memory:` is a store that lives as long as its log.

    (It is a temporary file: a database in memory ends with its connection, and a cancelled read closes its
    connection.)
    """

    errors: tuple[type[Exception], ...] = (DBAPIError, SQLiteError, PoolTimeout, UnicodeDecodeError)
    commits_late = False
    open_seconds: float | None = None
    replay_index = "event INDEXED BY ix_event_replay"

    def __init__(self, path: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="messager-") if path == ":memory:" else None
        self.path = (
            os.path.realpath(os.path.expanduser(path)) if self._folder is None else f"{self._folder.name}/log.db"
        )
        self.one_host_file = self.path
        self.location = self.path if self._folder is None else path
        beside = f"{self.path}-spool"
        self.spool_folders = (beside,) if self._folder else (beside, state_folder(self.location))
        projection = f"{self.path}-projection"
        self.derived_folders = (projection,) if self._folder else (projection, cache_folder(self.location))
        self._turn = asyncio.Lock()
        self._threads: dict[threading.Thread, weakref.ref[aiosqlite.Connection]] = {}
        """The threads of connections."""

    def exists(self) -> bool:
        return os.path.exists(self.path)

    async def close(self) -> None:
        for thread, its in self._threads.items():
            if thread.is_alive() and ((connection := its()) is None or not connection._running):
                while thread.is_alive():  # it tells this event loop of its end
                    await asyncio.sleep(0.001)  # an executor takes no work while Python exits
        if self._folder is not None:
            self._folder.cleanup()

    def engines(self) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine]:
        self.check_location()
        rights = ((self.path, os.W_OK), (os.path.dirname(self.path), os.W_OK | os.X_OK))
        self.may_write = not self.exists() or all(os.access(*right) for right in rights)
        if self.may_write and not self.exists():
            try:
                file.make(self.path)
            except OSError as error:
                raise StoreUnavailable(self.location, error.strerror or str(error)) from None
        writer = self._engine(1, "BEGIN IMMEDIATE", checkpoints=True)
        reader = self._engine(READERS, "BEGIN", checkpoints=False)
        return writer, reader, writer

    def turn(self) -> AbstractAsyncContextManager[None]:
        """SQLite has one writer at a time; without turns the others would poll."""
        return self._turn

    def insert_or_ignore(self, table: Table) -> Insert:
        return insert(table).on_conflict_do_nothing()

    async def fetch(self, connection: AsyncConnection, sql: str, parameters: Sequence[Any]) -> Iterable[Any]:
        raw = await connection.get_raw_connection()
        assert raw.driver_connection is not None
        rows: Iterable[Any] = await raw.driver_connection.execute_fetchall(sql, parameters)
        return rows

    def appender(self) -> Appender:
        return Appender(self._open_for_appends, self._file_id)

    async def insert(self, connection: AsyncConnection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        raw = await connection.get_raw_connection()
        assert raw.driver_connection is not None
        sql = f"INSERT INTO {table.name} ({', '.join(table.c.keys())}) VALUES ({', '.join('?' * len(table.c))})"
        await raw.driver_connection.executemany(sql, rows)

    async def translate(self, error: Exception) -> StoreError:
        return self._translated(error)

    def _translated(self, error: Exception) -> StoreError:
        if isinstance(error, UnicodeDecodeError):  # of a name in the schema, which SQLite quotes in an error
            return DamagedStore(self.location, "a name in it is not UTF-8")
        cause = error.orig if isinstance(error, DBAPIError) else error
        reason = str(cause)
        if "not a database" in reason:
            return NotAStore(self.location, "it is not an SQLite database")
        if "malformed" in reason or "corrupt" in reason:
            return DamagedStore(self.location, reason, "or try `sqlite3 FILE .recover`")
        if "locked" in reason:
            reason = "another program keeps it locked"
        elif "unable to open" in reason and not self.exists():
            reason = self._unseen() or "the file is gone; was it moved?"
        elif ("unable to open" in reason or "readonly" in reason) and not self.may_write:
            reason = _READ_ONLY if "readonly" in reason else _UNREADABLE
        elif "unable to open" in reason or "readonly" in reason:
            reason = "no such folder, or no right to write there"
        elif "is full" in reason:
            reason = "the disk is full"
        return StoreUnavailable(self.location, reason)

    async def overwrite_deleted(self, connection: AsyncConnection) -> None:
        await connection.exec_driver_sql("PRAGMA secure_delete=ON")

    async def want_rewrite(self, connection: AsyncConnection) -> None:
        # a new number each time: a rewrite that began before this transaction must not clear the mark
        await connection.exec_driver_sql(f"PRAGMA user_version={secrets.randbelow(2**31 - 1) + 1}")

    async def rewrite_wanted(self, connection: AsyncConnection) -> bool:
        return bool((await connection.exec_driver_sql("PRAGMA user_version")).scalar_one())

    async def rewrite(self, connection: AsyncConnection) -> str | None:
        if not self.may_write:
            return _READ_ONLY
        # Pages that were split before keep copies of rows in their unused parts, which no later deletion
        # reaches: only a new file has none. It is written through the write-ahead log, which goes last.
        raw = (await connection.get_raw_connection()).driver_connection  # outside of any transaction
        assert raw is not None
        deadline = time.monotonic() + REWRITE_SECONDS
        wanted = 0
        for statement in (_WANTED, "PRAGMA secure_delete=ON", "VACUUM", _CHECKPOINT, "BEGIN IMMEDIATE"):
            while True:
                try:
                    rows = list(await raw.execute_fetchall(statement))
                    wanted = rows[0][0] if statement == _WANTED else wanted
                    if statement != _CHECKPOINT or not rows[0][0]:
                        break
                    reason = "another program reads an old state of it"
                except SQLiteError as error:
                    reason = str(error)
                    if "locked" not in reason and "busy" not in reason:
                        return reason
                    reason = "another program keeps it locked"
                except asyncio.CancelledError:
                    await raw.interrupt()
                    raise
                if time.monotonic() > deadline:
                    return reason
                await asyncio.sleep(0.05)
        try:
            if list(await raw.execute_fetchall(_WANTED)) == [(wanted,)] and wanted:
                await raw.execute_fetchall("PRAGMA user_version=0")
        finally:
            await raw.execute_fetchall("COMMIT")
        return None

    async def size(self, connection: AsyncConnection) -> int:
        pages = (await connection.execute(text("PRAGMA page_count"))).scalar_one()
        page_size = (await connection.execute(text("PRAGMA page_size"))).scalar_one()
        return int(pages) * int(page_size)

    def free_bytes(self) -> int | None:
        try:
            return shutil.disk_usage(os.path.dirname(self.path)).free
        except OSError:
            return None

    async def bytes_on_disk(self, connection: AsyncConnection) -> int:
        size = 0
        for ending in ("", "-wal"):
            with contextlib.suppress(OSError):  # the journal goes with the last connection
                size += os.stat(f"{self.path}{ending}").st_size
        return size

    async def slack(self, connection: AsyncConnection) -> int | None:
        pages = (await connection.execute(text("PRAGMA freelist_count"))).scalar_one()
        page_size = (await connection.execute(text("PRAGMA page_size"))).scalar_one()
        return int(pages) * int(page_size)

    async def rewriting_needs(self, connection: AsyncConnection) -> list[Need]:
        """VACUUM builds a temporary file and copies it back through the WAL."""
        content = await self.size(connection) - (await self.slack(connection) or 0)
        needs: dict[int, Need] = {}
        for folder in (os.path.dirname(self.path), _temporary_folder()):
            device = os.stat(folder).st_dev
            there = needs.get(device, Need(folder, 0, shutil.disk_usage(folder).free))
            needs[device] = Need(there.folder, there.bytes + content, there.free)
        return list(needs.values())

    def _engine(self, connections: int, begin: str, *, checkpoints: bool) -> AsyncEngine:
        engine = create_async_engine(
            URL.create("sqlite+aiosqlite", database=file.uri(self.path), query={"uri": "true", **self._mode()}),
            poolclass=AsyncAdaptedQueuePool,
            pool_size=connections,
            # a transaction ends with its block; a connection whose reset is cancelled is never given back
            pool_reset_on_return=None,
            max_overflow=0,
            connect_args={"async_creator_fn": self._connection},
        )

        def on_connect(connection: Any, record: Any) -> None:
            record.info["file"] = self._file_id()
            try:
                connection.isolation_level = None  # the driver must not begin transactions
                cursor = connection.cursor()
                for statement in _settings():
                    cursor.execute(statement)
                if not (checkpoints and self.may_write):
                    cursor.execute("PRAGMA wal_autocheckpoint=0")
                else:
                    connection.run_async(_into_wal)
                cursor.close()
            except BaseException:  # the pool forgets the connection without closing it
                connection.run_async(aiosqlite.Connection.close)
                raise

        def on_checkout(connection: Any, record: Any, proxy: Any) -> None:
            # SQLite would continue to write to a file that was moved away
            if record.info["file"] != self._file_id():
                raise DisconnectionError("the store's file is another one now")

        def on_begin(connection: Any) -> None:
            connection.exec_driver_sql(begin)

        event.listen(engine.sync_engine, "connect", on_connect)
        event.listen(engine.sync_engine, "checkout", on_checkout)

        def on_invalidate(connection: Any, *_: Any) -> None:
            # Closing is not enough while anybody refers to a statement that was cancelled, as its traceback does:
            # SQLite keeps the connection, and with it the lock, until that is gone.
            with contextlib.suppress(Exception, asyncio.CancelledError):
                connection.run_async(_rolled_back)

        event.listen(engine.sync_engine, "begin", on_begin)
        event.listen(engine.sync_engine, "invalidate", on_invalidate)
        return engine

    def _connection(self, *arguments: Any, **options: Any) -> aiosqlite.Connection:
        """Return a connection that is not open yet, and note its thread."""
        made = aiosqlite.connect(*arguments, **options)
        made._thread.daemon = True
        self._threads = {thread: its for thread, its in self._threads.items() if thread.is_alive()}
        self._threads[made._thread] = weakref.ref(made)
        return made

    def _mode(self) -> dict[str, str]:
        """Return the mode in which connections open the file.

        A read-only file that no process has open is opened as immutable: SQLite would otherwise create files beside
        it, which its owner could not write.
        """
        if self.may_write:
            return {"mode": "rw"}
        return {"mode": "ro"} if os.path.exists(f"{self.path}-wal") else {"mode": "ro", "immutable": "1"}

    def _open_for_appends(self) -> sqlite3.Connection:
        # mode=rw: a missing file is an error and is not created
        connection = sqlite3.connect(
            f"{file.uri(self.path)}?mode=rw", uri=True, isolation_level=None, check_same_thread=False
        )
        try:
            for statement in (*_settings(), _WAL):
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def _file_id(self) -> tuple[int, int] | None:
        """Return the device and inode of the file at the path, None if there is none."""
        try:
            there = os.stat(self.path)
        except OSError:
            return None
        return there.st_dev, there.st_ino

    def check_location(self) -> None:
        """Check the path, for clearer errors than those of SQLite."""
        elsewhere = os.environ.get(ELSEWHERE)
        if elsewhere and self.path == os.path.realpath(elsewhere):
            raise StoreError(refusal(elsewhere, os.environ.get(HOST) or "another host"))
        try:
            found = os.stat(self.path)
            if stat.S_ISDIR(found.st_mode):
                raise NotAStore(self.location, "it is a folder")
            if not stat.S_ISREG(found.st_mode):
                raise NotAStore(self.location, "it is not a regular file")
            if found.st_size and not file.is_database(self.path):
                raise NotAStore(self.location, "it is not an SQLite database")
        except OSError as error:
            folder = os.path.dirname(self.path)
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            if not missing or not os.path.isdir(folder):
                reason = f"there is no folder {folder}" if missing else error.strerror or str(error)
                raise StoreUnavailable(self.location, reason) from None

    def _unseen(self) -> str | None:
        """Return the reason why the file cannot be looked at; None if it can, or is not there."""
        try:
            self.check_location()
        except StoreUnavailable as error:
            return error.reason
        except StoreError:
            pass
        return None


async def _rolled_back(connection: aiosqlite.Connection) -> None:
    """Roll back. A statement that was cancelled still runs in the thread of the connection: interrupt it."""
    rollback = asyncio.ensure_future(connection.rollback())
    while not (await asyncio.wait([rollback], timeout=0.02))[0]:
        await connection.interrupt()  # it may have begun the statement only after the last interrupt
    await rollback


async def _into_wal(connection: aiosqlite.Connection) -> None:
    """Switch to WAL; retry while others write or do the same: SQLite ignores the busy timeout here."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            await connection.execute_fetchall(_WAL)
            return
        except SQLiteError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.02)


def _temporary_folder() -> str:
    """Return the folder of SQLite's temporary files."""
    for folder in (os.environ.get("SQLITE_TMPDIR"), os.environ.get("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp"):
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return "."


def _settings() -> tuple[str, ...]:
    """Return the first statements of every connection."""
    return f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}", "PRAGMA foreign_keys=ON", "PRAGMA synchronous=FULL"
