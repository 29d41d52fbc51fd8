"""Appending to PostgreSQL: four round trips a batch, on connections of its own, many recorders at a time.

1. BEGIN, and a lock on the recorder's row, where that is as its writer takes it to be
2. and 3. COPY of the events, which are made meanwhile: the first are on their way before the last are there
4. the recorder's row, the batch's row, and COMMIT

The lock comes first: it is what makes the batches of one recorder follow each other. 1 and 4 are scripts,
a round trip each, in which the values stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import asyncpg
from sqlalchemy.dialects import postgresql

from ...errors import BadEvent
from ...finishing import finish_then_cancel
from ...log.batch import Batch
from ...log.names import Unknown
from ..schema import batch as batch_table
from ..schema import event
from ..statements import ADVANCE, LOCK, Commit
from . import copy_format

CONNECTIONS = 16
"""How many batches of one log may be on their way at a time."""
SECONDS = 4.0
"""How long a small batch may take; a store out of reach is told within five seconds."""
BYTES_PER_SECOND = 100_000
"""The slowest connection that is waited for; a large batch has as much more time as it takes to send there."""
ROWS, BYTES = 128, 256 * 1024
"""How many rows, and bytes of payloads, are made at a time: in the agents' own loop, which has others to serve."""
MESSAGE = 1024 * 1024
"""Bytes that are sent in one message; PostgreSQL takes less than a gigabyte."""

Connection = Any
"""An asyncpg connection, which has no types."""


def _scripts() -> tuple[str, str]:
    """What begins a batch, and what ends it; the parameters as `%(name)s`."""
    dialect = postgresql.dialect(paramstyle="pyformat")  # type: ignore[no-untyped-call]
    lock, advance = (statement.compile(dialect=dialect) for statement in (LOCK, ADVANCE))
    columns = list(batch_table.c.keys())
    values = ", ".join(f"%(batch_{column})s" for column in columns)
    add = f"INSERT INTO {batch_table.name} ({', '.join(columns)}) VALUES ({values})"
    return f"BEGIN ISOLATION LEVEL READ COMMITTED; {lock}", f"{advance}; {add}; COMMIT"


_BEGIN, _END = _scripts()


def _literal(value: Any) -> str:
    """A value as it may stand in a statement."""
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


def _part(batch: Batch) -> bytes:
    """The next rows, encoded; empty after the last."""
    return copy_format.encode(batch.rows(ROWS, BYTES))


class Appender:
    """Connections that append, made when they are needed. `connect` makes one."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[Connection] = []
        self._writing: set[asyncio.Task[Commit | None]] = set()

    async def append(self, batch: Batch) -> Commit | None:
        """See `Dialect.append`. Raises what asyncpg raises; whether it was committed is not known then."""
        writing = asyncio.ensure_future(self._append(batch))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        return await finish_then_cancel(writing)

    async def close(self) -> None:
        """Close the connections, once what is being written is done."""
        if self._writing:
            await asyncio.wait(list(self._writing))
        idle, self._idle = self._idle, []
        for connection in idle:
            try:
                await connection.close(timeout=1)
            except Exception:
                connection.terminate()

    async def _append(self, batch: Batch) -> Commit | None:
        async with self._turns:
            first = _part(batch)  # all of a small batch, before anything is locked
            connection = await self._connection()
            try:
                async with asyncio.timeout(SECONDS) as limit:
                    commit = await self._write(connection, batch, first, limit)
            except (BadEvent, Unknown):
                self._idle.append(connection)
                raise
            except BaseException:
                connection.terminate()  # its state is unknown
                self._forget()
                raise
            self._idle.append(connection)
        return commit

    async def _write(self, connection: Connection, batch: Batch, part: bytes, limit: asyncio.Timeout) -> Commit | None:
        """One batch in one transaction; None where its recorder's row is not as expected."""
        began = asyncio.get_running_loop().time()
        if await connection.execute(_filled(_BEGIN, batch.expected)) != "SELECT 1":
            await connection.execute("ROLLBACK")
            return None
        wrong: Exception | None = None
        commit: Commit | None = None

        async def data() -> AsyncIterator[bytes | memoryview]:
            nonlocal part, wrong, commit
            yield copy_format.HEADER
            try:
                while part:
                    limit.reschedule(began + SECONDS + batch.size / BYTES_PER_SECOND)
                    for at in range(0, len(part), MESSAGE):
                        yield memoryview(part)[at : at + MESSAGE]
                    await asyncio.sleep(0)  # others have their turn
                    if connection.is_closed():
                        return  # or asyncio would warn of each message that goes nowhere
                    part = _part(batch)
            except (BadEvent, Unknown) as error:
                wrong = error  # raised from here, it would have asyncpg cancel the statement by another connection
            yield copy_format.TRAILER
            if wrong is None:
                commit = batch.seal()  # while the server takes the last of them

        copied = await connection.copy_to_table(event.name, source=data(), columns=copy_format.COLUMNS, format="binary")
        if wrong is not None:
            await connection.execute("ROLLBACK")
            raise wrong
        if commit is None or copied != f"COPY {batch.made}":
            raise asyncpg.InternalClientError(f"COPY of {batch.made} events was answered with {copied}")
        parameters = commit.advance | {f"batch_{key}": value for key, value in commit.batch.items()}
        done = await connection.execute(_filled(_END, parameters))
        if done != "COMMIT":
            raise asyncpg.InternalClientError(f"COMMIT was answered with {done}")
        return commit

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await self._connect()

    def _forget(self) -> None:
        """What befell one connection may have befallen the others."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()
