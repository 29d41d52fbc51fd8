"""Appending to PostgreSQL: four round trips a batch, on connections of its own, many recorders at a time.

1. BEGIN, the compare-and-set on the recorder's row, and the batch's row, in one script; their values stand in it
2. and 3. COPY of the events
4. COMMIT

The compare-and-set comes first: its row lock is what makes the batches of one recorder follow each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
from sqlalchemy.dialects import postgresql

from ..commit import ADVANCE, EVENT_COLUMNS, Commit
from ..schema import batch, event, recorder
from .unbroken import to_its_end

CONNECTIONS = 16
"""How many batches of one log may be on their way at a time."""
SECONDS = 4.0
"""How long a small batch may take; a store out of reach is told within five seconds."""
BYTES_PER_SECOND = 100_000
"""The slowest connection that is waited for; a large batch has as much more time as it takes to send there."""
_THREADS = 2

Connection = Any
"""An asyncpg connection, which has no types."""


def _script() -> str:
    """Begin, and advance the recorder and add the batch, or do neither; the parameters as `%(name)s`."""
    dialect = postgresql.dialect(paramstyle="pyformat")  # type: ignore[no-untyped-call]
    advance = str(ADVANCE.returning(recorder.c.id).compile(dialect=dialect))
    columns = list(batch.c.keys())
    values = ", ".join(f"%(batch_{column})s" for column in columns)
    return (
        f"BEGIN; WITH advanced AS ({advance}) "
        f"INSERT INTO {batch.name} ({', '.join(columns)}) SELECT {values} FROM advanced"
    )


_SCRIPT = _script()


def _literal(value: Any) -> str:
    """A value as it may stand in a statement."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea"
    if isinstance(value, int):
        return f"({value})"
    quoted = str(value).replace("'", "''")  # standard_conforming_strings is on
    return f"'{quoted}'"


class Appender:
    """Connections that append, made when they are needed. `connect` makes one."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._threads = ThreadPoolExecutor(_THREADS, "messager-append")  # not the loop's own, which may be busy
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[Connection] = []
        self._writing: set[asyncio.Task[Commit | None]] = set()

    async def append(self, prepare: Callable[[], Commit]) -> Commit | None:
        """See `Dialect.append`. Raises what asyncpg raises; whether it was committed is not known then."""
        writing = asyncio.ensure_future(self._append(prepare))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        return await to_its_end(writing)

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
        self._threads.shutdown(wait=False)

    async def _append(self, prepare: Callable[[], Commit]) -> Commit | None:
        async with self._turns:
            prepared = asyncio.get_running_loop().run_in_executor(self._threads, _with_size, prepare)
            commit, size = await prepared
            connection = await self._connection()
            try:
                async with asyncio.timeout(SECONDS + size / BYTES_PER_SECOND):
                    written = await _write(connection, commit)
            except BaseException:
                connection.terminate()  # its state is unknown
                self._forget()
                raise
            self._idle.append(connection)
        return commit if written else None

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


def _with_size(prepare: Callable[[], Commit]) -> tuple[Commit, int]:
    """What is to be written, and how many bytes of texts and payloads it has."""
    commit = prepare()
    return commit, sum([len(value) for value in commit.values if isinstance(value, str | bytes)])


async def _write(connection: Connection, commit: Commit) -> bool:
    """One batch in one transaction; False where the compare-and-set met nobody."""
    values = commit.advance | {f"batch_{key}": value for key, value in commit.batch.items()}
    done = await connection.execute(_SCRIPT % {key: _literal(value) for key, value in values.items()})
    if done != "INSERT 0 1":
        await connection.execute("ROLLBACK")
        return False
    rows = zip(*[iter(commit.values)] * len(EVENT_COLUMNS), strict=True)
    await connection.copy_records_to_table(event.name, records=rows, columns=EVENT_COLUMNS)
    done = await connection.execute("COMMIT")
    if done != "COMMIT":
        raise asyncpg.InternalClientError(f"COMMIT was answered with {done}")
    return True
