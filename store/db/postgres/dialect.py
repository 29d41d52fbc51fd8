"""PostgreSQL, through asyncpg.

Writers are READ COMMITTED: after waiting for a row they see what was committed meanwhile. Readers are REPEATABLE READ,
so that a block reads one snapshot. Connections are made here and not by SQLAlchemy, which therefore never sees a
password.

Every connection encodes texts with `nul_text`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg
from sqlalchemy import Insert, Table, event, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from messager.time_limit import time_limit

from ...errors import StoreError, StoreNotFound, StoreUnavailable
from ..dialect import Dialect, Need
from ..schema import metadata
from ..state_folder import cache_folder, state_folder
from . import nul_text
from .append import Appender
from .errors import ALSO_CONNECTING, ERRORS, is_about_rights, translate
from .rights import has_schema, missing
from .url import parse_url

CONNECT_SECONDS = 4.0
"""Time limit of connecting; an unreachable store is reported within five seconds."""
OPEN_SECONDS = 4.5
"""Time limit of connecting and checking the tables: a server may fall silent after connecting."""
LOCK_TIMEOUT_MS = 4000
"""Maximum wait of one writer for another."""
WRITERS, READERS = 4, 4
"""Maximum of connections for writes other than appends, and for reading. They are made on demand."""
WRITING_SECONDS = 30.0
"""Time limit of a writer's statement; an append has less."""
LONG_SECONDS: float | None = None
"""The same for redactions, removals, migrations and rewrites, whose time depends on the size of the log."""
REWRITE_SECONDS = 10.0
"""Maximum wait of a rewrite for readers of older states, and for the lock of each table."""
_SETTINGS = {
    "application_name": "messager",
    "client_encoding": "utf-8",
    "standard_conforming_strings": "on",
    "synchronous_commit": "on",
    # releases the locks of a host that is gone
    "idle_in_transaction_session_timeout": "60000",
}
_KEEPALIVE = (("TCP_KEEPIDLE", 3), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 2), ("TCP_USER_TIMEOUT", 5000))
"""Detects a silent network, also while an answer is pending."""
_MARKED = "ix_event_replay"
"""The index whose comment says that a rewrite must follow. A comment is transactional, like a row."""
_MARK_LOCK = 7_104_961_833_297_412_001
"""The key of the advisory lock for reading and changing that comment."""
_WANTED = f"SELECT obj_description('{_MARKED}'::regclass, 'pg_class')"

_OTHER_WAYS = ("enable_seqscan", "enable_bitmapscan", "enable_sort", "enable_incremental_sort")
_PREFER_INDEXES = f"SELECT set_config(name, 'off', true) FROM pg_settings WHERE name IN {_OTHER_WAYS}"


class Postgres(Dialect):
    """A database on a server. The database must exist; the tables are created on first use."""

    errors = ERRORS
    commits_late = True
    open_seconds: float | None = OPEN_SECONDS

    def __init__(self, url: str) -> None:
        self._url = parse_url(url)
        self.location = self._url.location
        self.spool_folders = (state_folder(self.location),)
        self.derived_folders = (cache_folder(self.location),)
        self._doubted = 0
        """Number of times that all connections were discarded. Older connections are not used again."""

    def engines(self) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine]:
        return (
            self._engine(WRITERS, "READ COMMITTED", WRITING_SECONDS),
            self._engine(READERS, "REPEATABLE READ", None),
            self._engine(1, "READ COMMITTED", LONG_SECONDS),
        )

    def insert_or_ignore(self, table: Table) -> Insert:
        return insert(table).on_conflict_do_nothing()

    async def fetch(self, connection: AsyncConnection, sql: str, parameters: Sequence[Any]) -> Iterable[Any]:
        rows: Iterable[Any] = await (await _driver(connection)).fetch(sql, *parameters)
        return rows

    async def prefer_indexes(self, connection: AsyncConnection) -> None:
        await connection.exec_driver_sql(_PREFER_INDEXES)

    def appender(self) -> Appender:
        return Appender(self._connect, self._doubt)

    async def insert(self, connection: AsyncConnection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        await (await _driver(connection)).copy_records_to_table(table.name, records=rows, columns=table.c.keys())

    async def translate(self, error: Exception) -> StoreError:
        if is_about_rights(error):
            with contextlib.suppress(StoreError, *ERRORS):
                lacked = await self._missing_rights()
                if lacked is not None:
                    return StoreUnavailable(self.location, lacked)
        return translate(self._url, error)

    async def check_visible(self, connection: AsyncConnection) -> None:
        if connection.dialect.default_schema_name is None:  # invisible tables are not missing
            raw = await _driver(connection)
            kind = StoreUnavailable if await has_schema(raw) else StoreNotFound
            raise kind(self.location, await missing(raw) or "it has no schema")

    async def _missing_rights(self) -> str | None:
        connection = await self._connect(CONNECT_SECONDS)
        try:
            return await missing(connection)
        finally:
            connection.terminate()

    async def want_rewrite(self, connection: AsyncConnection) -> None:
        await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MARK_LOCK})
        # a new text each time: a rewrite that began before this transaction must not clear the mark
        await connection.exec_driver_sql(f"COMMENT ON INDEX {_MARKED} IS 'rewrite wanted {secrets.token_hex(8)}'")

    async def rewrite_wanted(self, connection: AsyncConnection) -> bool:
        return (await connection.exec_driver_sql(_WANTED)).scalar_one() is not None

    async def rewrite(self, connection: AsyncConnection) -> str | None:
        """VACUUM FULL each table, once no transaction reads an older state.

        Deleted data is then in no file of a table or an index. It remains in the write-ahead log until that is
        recycled, in archives and base backups, and on a replica until it has caught up. A transaction of another user
        that this user may not see (without pg_read_all_stats) may also retain it.
        """
        raw = await _driver(connection)  # outside of any transaction
        wanted = await raw.fetchval(_WANTED)
        if not await raw.fetchval("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'event'::regclass"):
            return "only the owner of its tables can rewrite them"
        deadline = time.monotonic() + REWRITE_SECONDS
        now = await raw.fetchval("SELECT pg_current_xact_id()::xid::text")
        while await raw.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() "
            f"AND backend_xmin IS NOT NULL AND age(backend_xmin) >= age('{now}'::xid)"
        ):
            if time.monotonic() > deadline:
                return "another program reads an old state of it"
            await asyncio.sleep(0.05)
        try:
            for table in metadata.sorted_tables:
                await raw.execute(f"VACUUM (FULL) {table.name}")
        except (asyncpg.LockNotAvailableError, asyncpg.DiskFullError) as error:
            return translate(self._url, error).reason  # type: ignore[attr-defined, no-any-return]
        async with raw.transaction():
            await raw.execute("SELECT pg_advisory_xact_lock($1)", _MARK_LOCK)
            if wanted is not None and await raw.fetchval(_WANTED) == wanted:
                await raw.execute(f"COMMENT ON INDEX {_MARKED} IS NULL")
        return None

    async def size(self, connection: AsyncConnection) -> int:
        names = ", ".join(f"'{table.name}'" for table in metadata.sorted_tables)
        query = f"SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE relname IN ({names})"
        here = " AND relkind = 'r' AND relnamespace = current_schema()::regnamespace"
        return int((await connection.exec_driver_sql(query + here)).scalar_one())

    async def rewriting_needs(self, connection: AsyncConnection) -> list[Need]:
        """VACUUM FULL writes a copy of each table, and as much into the write-ahead log.

        The old files are deleted afterwards; the log, archives and backups are not.
        """
        return [Need("the server's disk", await self.size(connection), None)]

    def _doubt(self) -> None:
        """Use no connection again that exists now: one of them failed, so the others may have failed too."""
        self._doubted += 1

    def _engine(self, connections: int, isolation: str, patience: float | None) -> AsyncEngine:
        """Return an engine. `patience` is the time limit of one statement in seconds."""

        async def connect(*_: Any, **__: Any) -> Any:
            return await self._connect_unless_cancelled(patience)

        engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=connect,
            poolclass=AsyncAdaptedQueuePool,
            pool_size=connections,
            max_overflow=0,
            isolation_level=isolation,
        )

        def on_connect(connection: Any, record: Any) -> None:
            record.info["doubted"] = self._doubted

        def on_checkout(connection: Any, record: Any, proxy: Any) -> None:
            # after an outage, connect again: connecting has a time limit, an old connection might hang
            if connection.driver_connection.is_closed() or record.info["doubted"] != self._doubted:
                raise DisconnectionError("the connection was given up")

        def on_close(connection: Any, *_: Any) -> None:
            connection.driver_connection.terminate()  # an orderly close would wait for ever for a dead server

        # for a connection that failed before these events apply
        engine.sync_engine.dialect.do_terminate = on_close  # type: ignore[assignment, method-assign]
        event.listen(engine.sync_engine, "invalidate", on_close)
        event.listen(engine.sync_engine, "close", on_close)
        event.listen(engine.sync_engine, "connect", on_connect)
        event.listen(engine.sync_engine, "checkout", on_checkout)
        return engine

    async def _connect_unless_cancelled(self, patience: float | None) -> Any:
        """Return a connection. If the caller is cancelled, finish connecting first, then close the connection."""
        making = asyncio.ensure_future(self._connect(patience))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait([making])
            if not making.cancelled() and making.exception() is None:
                making.result().terminate()
            raise

    async def _connect(self, patience: float | None = None) -> Any:
        """Return a connection. Raises `StoreError`."""
        try:
            async with time_limit(CONNECT_SECONDS):
                settings = {**_SETTINGS, "lock_timeout": str(LOCK_TIMEOUT_MS)}
                made = await asyncpg.connect(
                    self._url.dsn,
                    timeout=CONNECT_SECONDS,
                    command_timeout=patience,
                    server_settings=settings,
                )
                try:
                    for name in ("text", "varchar"):
                        await made.set_type_codec(
                            name,
                            schema="pg_catalog",
                            encoder=nul_text.encode,
                            decoder=nul_text.decode,
                            format="binary",
                        )
                except BaseException:
                    made.terminate()
                    raise
        except ALSO_CONNECTING as error:
            raise translate(self._url, error, connecting=True) from None
        if made.get_settings().server_encoding not in ("UTF8", "UTF-8"):
            made.terminate()
            raise StoreUnavailable(self.location, "its encoding is not UTF8: make the database with ENCODING 'UTF8'")
        _watch(made)
        return made


async def _driver(connection: AsyncConnection) -> Any:
    raw = await connection.get_raw_connection()
    assert raw.driver_connection is not None
    return raw.driver_connection


def _watch(connection: Any) -> None:
    """Let the operating system probe an idle connection."""
    there = connection._transport.get_extra_info("socket")
    if there is None or there.family not in (socket.AF_INET, socket.AF_INET6):
        return
    there.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        if hasattr(socket, option):
            there.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
