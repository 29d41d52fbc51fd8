"""The database of one store: opened, checked, created on first use, and its connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from messager.time_limit import time_limit

from ..errors import NotAStore, StoreNotFound, StoreUnavailable, WrongRevision
from .databases import for_store
from .dialect import Appender
from .schema import HEAD_REVISION
from .statements import Commit, Part

_MIGRATING = threading.Lock()
"""Held during a migration: Alembic has one context a process, which refers to the connection of one store."""
_NOTHING = "it does not exist. Record or import something first, or name another with --store"


class Database:
    """Connections to one store. Their errors are raised as `StoreError`."""

    def __init__(self, store: str) -> None:
        self.dialect = for_store(store)
        self.location = self.dialect.location
        self._writer: AsyncEngine | None = None
        self._reader: AsyncEngine | None = None
        self._patient: AsyncEngine | None = None
        self._appender: Appender | None = None

    async def open(self, *, create: bool = True) -> None:
        """Connect, and create the tables if the store is empty.

        Raises `StoreUnavailable`, `NotAStore`, `DamagedStore` or `WrongRevision`, and `StoreNotFound` if the store does
        not exist and `create` is False.
        """
        if not create and not self.dialect.exists():
            self.dialect.check_location()
            raise StoreNotFound(self.location, _NOTHING)
        await self.open_engines()
        try:
            found = await self.read_revision()
            if found is None:
                if not create:
                    raise StoreNotFound(self.location, _NOTHING)
                async with self.migrating() as connection:
                    await connection.run_sync(_create)
            elif found != HEAD_REVISION:
                raise WrongRevision(self.location, found or "none", HEAD_REVISION, newer=is_newer(found))
        except BaseException:
            await self.close()
            raise

    async def read_revision(self) -> str | None:
        """Return the revision of the tables, None for an empty database. Raises `NotAStore` for other tables."""
        try:
            async with time_limit(self.dialect.open_seconds), self.reading() as connection:
                found = await connection.run_sync(_revision)
                if found is None:
                    await self.dialect.check_visible(connection)
                return found
        except TimeoutError:
            raise StoreUnavailable(self.location, "it does not answer") from None
        except _Foreign as error:
            raise NotAStore(self.location, str(error)) from None

    async def open_engines(self) -> None:
        """Connect without checking the tables. Used by migrations."""
        self._writer, self._reader, self._patient = self.dialect.engines()
        self._appender = self.dialect.appender()

    async def close(self) -> None:
        """Close the connections. May be called twice."""
        async with self.dialect.turn():  # writers that wait for their turn find the store closed
            engines = {self._reader, self._writer, self._patient}
            appender, self._appender = self._appender, None
            self._reader = self._writer = self._patient = None
            for engine in engines:
                if engine is not None:
                    await engine.dispose()
            if appender is not None:
                await appender.close()
            await self.dialect.close()

    @asynccontextmanager
    async def writing(self, *, long: bool = False) -> AsyncIterator[AsyncConnection]:
        """A connection in a transaction that commits at the end. With `long`, its statements have no time limit."""
        try:
            async with self.dialect.turn(), _connected(self._opened(long)) as connection:
                try:
                    async with connection.begin():
                        yield connection
                except self.dialect.errors:
                    await connection.invalidate()  # its state is unknown
                    raise
        except self.dialect.errors as error:
            raise await self.dialect.translate(error) from error

    @asynccontextmanager
    async def migrating(self, *, long: bool = False) -> AsyncIterator[AsyncConnection]:
        """A connection as `writing` gives it, for a migration. The migrations of all stores of a process take turns.

        The turn comes first: waiting for it inside of a transaction would keep other writers of this store waiting.
        """
        while not _MIGRATING.acquire(blocking=False):  # threads may wait, and event loops must go on
            await asyncio.sleep(0.01)
        try:
            async with self.writing(long=long) as connection:
                yield connection
        finally:
            _MIGRATING.release()

    async def append(self, expected: Mapping[str, Any], parts: Iterator[Part]) -> Commit | None:
        """Write a batch in one transaction; return its commit, or None if its recorder's row is not as `expected`.

        `expected` are parameters of `LOCK`; `parts` are the events, at least one, and then the commit. The parts are
        taken one by one, while earlier ones are on their way. Raises `StoreError`, and `BadEvent` if making a part
        raises it; nothing is written then.
        """
        try:
            async with self.dialect.turn():
                if self._appender is None:
                    raise self._closed()
                return await self._appender.write(expected, parts)
        except self.dialect.errors as error:
            raise await self.dialect.translate(error) from error

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection for queries; all of them read one snapshot until the block ends."""
        if self._reader is None:
            raise self._closed()
        try:
            async with _connected(self._reader) as connection:
                yield connection
        except self.dialect.errors as error:
            raise await self.dialect.translate(error) from error

    def _opened(self, long: bool = False) -> AsyncEngine:
        """Return an engine for writing. Call it after `turn`: the store may have been closed during the wait."""
        engine = self._patient if long else self._writer
        if engine is None:
            raise self._closed()
        return engine

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(self.location, "it has been closed")

    async def rewrite_wanted(self) -> bool:
        """Return whether a redaction was not followed by a rewrite: old pages may still hold the redacted data."""
        async with self.reading() as connection:
            return await self.dialect.rewrite_wanted(connection)

    async def rewrite(self) -> str | None:
        """Rewrite the store without deleted data, journals included; return the reason if it could not be finished."""
        try:
            async with self.dialect.turn(), _connected(self._opened(long=True)) as connection:
                return await self.dialect.rewrite(connection)
        except self.dialect.errors as error:
            raise await self.dialect.translate(error) from error


class _Foreign(Exception):
    """The database holds tables of another program."""


@asynccontextmanager
async def _connected(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection that is returned to its pool at the end.

    SQLAlchemy's own context manager returns it in a task. At the end of `asyncio.run` all tasks are cancelled, that
    one possibly before it starts, and then the connection is lost.
    """
    pool = engine.pool
    connection = await engine.connect()
    try:
        yield connection
    finally:
        if engine.pool is not pool:  # the store was closed meanwhile: the old pool is not disposed again
            await connection.invalidate()
        await connection.close()


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables, None for an empty database."""
    tables = set(inspect(connection).get_table_names())
    if "alembic_version" in tables and ("experiment" in tables or tables == {"alembic_version"}):
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        if found is None and "experiment" in tables:
            return ""
        return found
    if tables:
        raise _Foreign(f"it holds other tables ({', '.join(sorted(tables)[:3])})")
    return None


def _create(connection: Connection) -> None:
    from . import migrations

    if _revision(connection) is None:  # another process may have been faster
        migrations.upgrade(connection)


def is_newer(revision: str) -> bool:
    """Return whether this version does not know a revision."""
    from . import migrations

    known = {script.revision for script in migrations.scripts().walk_revisions()}
    return bool(revision) and revision not in known
