"""Appending to PostgreSQL: four round trips per batch, on separate connections, many recorders at a time.

1. BEGIN, and a lock on the recorder's row if it is as the writer expects
2. and 3. COPY of the events; the first are sent while the last are still being encoded
4. the recorder's row, the batch's row, and COMMIT

The lock comes first: it serialises the batches of one recorder. 1 and 4 are scripts of one round trip each, with the
values as literals.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

import asyncpg
from sqlalchemy.dialects import postgresql

from messager.time_limit import time_limit

from ...errors import BadEvent, StoreUnavailable
from ...finishing import finish_then_cancel
from ..schema import batch as batch_table
from ..schema import event
from ..statements import ADVANCE, LOCK, Commit, Part
from . import copy_format
from .errors import ERRORS

CONNECTIONS = 16
"""Maximum of concurrent batches of one log."""
SECONDS = 4.0
"""Time limit of a small batch; an unreachable store is reported within five seconds."""
BYTES_PER_SECOND = 100_000
"""The slowest accepted connection: a large batch gets the additional time that it takes at this rate."""
MESSAGE = 1024 * 1024
"""Maximum of bytes in one message. PostgreSQL's own limit is one gigabyte."""

_DOUBTFUL: tuple[type[Exception], ...] = (StoreUnavailable, *ERRORS)
"""Errors of one connection that its siblings may have as well."""

Connection = Any
"""An asyncpg connection, which has no types."""


def _scripts() -> tuple[str, str]:
    """Return the scripts that begin and end a batch, with parameters as `%(name)s`."""
    dialect = postgresql.dialect(paramstyle="pyformat")  # type: ignore[no-untyped-call]
    lock, advance = (statement.compile(dialect=dialect) for statement in (LOCK, ADVANCE))
    columns = list(batch_table.c.keys())
    values = ", ".join(f"%(batch_{column})s" for column in columns)
    add = f"INSERT INTO {batch_table.name} ({', '.join(columns)}) VALUES ({values})"
    return f"BEGIN ISOLATION LEVEL READ COMMITTED; {lock}", f"{advance}; {add}; COMMIT"


_BEGIN, _END = _scripts()


def _literal(value: Any) -> str:
    """Return a value as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea"
    if isinstance(value, int):
        return f"({value:d})"
    quoted = str(value).replace("'", "''")  # standard_conforming_strings is on
    return f"'{quoted}'"


def _filled(script: str, parameters: Mapping[str, Any]) -> str:
    return script % {name: _literal(value) for name, value in parameters.items()}


class Appender:
    """Connections for appending, made on demand by `connect`. `doubt` is called when one of them failed."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], doubt: Callable[[], None]) -> None:
        self._connect = connect
        self._doubt = doubt
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[Connection] = []
        self._writing: set[asyncio.Task[Commit | None]] = set()

    async def write(self, expected: Mapping[str, Any], parts: Iterator[Part]) -> Commit | None:
        writing = asyncio.ensure_future(self._write(expected, parts))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        return await finish_then_cancel(writing)

    async def close(self) -> None:
        if self._writing:
            await asyncio.wait(list(self._writing))
        idle, self._idle = self._idle, []
        for connection in idle:
            try:
                await connection.close(timeout=1)
            except Exception:
                connection.terminate()

    async def _write(self, expected: Mapping[str, Any], parts: Iterator[Part]) -> Commit | None:
        try:
            async with self._turns:
                first = next(parts)  # all events of a small batch, before anything is locked
                connection = await self._connection()
                try:
                    async with time_limit(SECONDS) as limit:
                        commit = await _transaction(connection, expected, itertools.chain([first], parts), limit)
                except BadEvent:
                    self._idle.append(connection)
                    raise
                except BaseException:
                    connection.terminate()  # its state is unknown
                    self._forget()
                    raise
                self._idle.append(connection)
            return commit
        except _DOUBTFUL:
            self._doubt()
            raise

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()

    def _forget(self) -> None:
        """Close the idle connections: one connection failed, so they may have failed too."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()


async def _transaction(
    connection: Connection, expected: Mapping[str, Any], parts: Iterable[Part], limit: asyncio.Timeout
) -> Commit | None:
    """Write one batch; return None if its recorder's row is not as expected."""
    began = asyncio.get_running_loop().time()
    if await connection.execute(_filled(_BEGIN, expected)) != "SELECT 1":
        await connection.execute("ROLLBACK")
        return None
    wrong: BadEvent | None = None
    commit: Commit | None = None

    async def data() -> AsyncIterator[bytes | memoryview]:
        nonlocal wrong, commit
        size = 0
        yield copy_format.HEADER
        try:
            for part in parts:
                if isinstance(part, Commit):
                    commit = part
                    break
                rows = copy_format.encode(part)
                size += len(rows)
                limit.reschedule(began + SECONDS + size / BYTES_PER_SECOND)
                for at in range(0, len(rows), MESSAGE):
                    yield memoryview(rows)[at : at + MESSAGE]
                await asyncio.sleep(0)  # let other tasks run
                if connection.is_closed():
                    return  # or asyncio would log a warning for each further message
        except BadEvent as error:
            wrong = error  # if it were raised here, asyncpg would open a connection to cancel the statement
        yield copy_format.TRAILER

    copied = await connection.copy_to_table(event.name, source=data(), columns=copy_format.COLUMNS, format="binary")
    if wrong is not None:
        await connection.execute("ROLLBACK")
        raise wrong
    if commit is None or copied != f"COPY {commit.batch['count']}":
        raise asyncpg.InternalClientError(f"COPY of a batch was answered with {copied}")
    parameters = commit.advance | {f"batch_{key}": value for key, value in commit.batch.items()}
    done = await connection.execute(_filled(_END, parameters))
    if done != "COMMIT":
        raise asyncpg.InternalClientError(f"COMMIT was answered with {done}")
    return commit
