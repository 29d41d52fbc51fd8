"""Appending to SQLite: one thread, one connection, one call for each batch.

Three measures keep an append cheap for the agents in the same process:

- The whole transaction, from encoding the events to COMMIT, is one call into a thread. An asynchronous driver took
  about two dozen iterations of the agents' event loop.
- One INSERT has up to some hundred rows. `executemany` releases and acquires the interpreter lock for each row, and
  beside a busy event loop each acquisition may take 5 ms. A large statement works for milliseconds without the lock.
- The connection and its prepared statements are kept.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.dml import Insert, Update

from ...finishing import finish_then_cancel
from ..schema import event
from ..statements import ADD_BATCH, ADVANCE, EVENT_COLUMNS, Commit, Part

CHUNKS = (512, 64, 8, 1)
"""Rows of one INSERT. Few sizes, so that each statement is prepared once."""


def _sql(statement: Insert | Update) -> str:
    """Return a statement with named parameters, for sqlite3."""
    return str(statement.compile(dialect=sqlite.dialect(paramstyle="named")))


def _insert(rows: int) -> str:
    row = f"({', '.join('?' * len(EVENT_COLUMNS))})"
    return f"INSERT INTO {event.name} ({', '.join(EVENT_COLUMNS)}) VALUES {', '.join([row] * rows)}"


_ADVANCE, _ADD_BATCH = _sql(ADVANCE), _sql(ADD_BATCH)
_INSERTS = {rows: _insert(rows) for rows in CHUNKS}


class Appender:
    """The connection for appending.

    `connect` opens it, in the thread that uses it; `file_id` identifies the file at the store's path.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], file_id: Callable[[], object]) -> None:
        self._connect = connect
        self._file_id = file_id
        self._thread = ThreadPoolExecutor(1, "messager-append")
        self._used = False
        self._connection: sqlite3.Connection | None = None
        self._opened_at: object = None
        self._chunks: tuple[int, ...] = CHUNKS

    async def write(self, expected: Mapping[str, Any], parts: Iterator[Part]) -> Commit | None:
        self._used = True
        writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, parts)
        return await finish_then_cancel(writing)

    async def close(self) -> None:
        """Finish the current write, then close the connection."""
        if self._used:  # a thread cannot start any more while the process ends
            await asyncio.get_running_loop().run_in_executor(self._thread, self._discard)
        self._thread.shutdown(wait=False)

    def _write(self, parts: Iterator[Part]) -> Commit | None:
        values: list[Any] = []
        for part in parts:
            if isinstance(part, Commit):
                commit = part
            else:
                for row in part:
                    values += row
        connection = self._current()
        try:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute(_ADVANCE, commit.advance).rowcount != 1:
                connection.execute("ROLLBACK")
                return None
            self._insert(connection, values)
            connection.execute(_ADD_BATCH, commit.batch)
            connection.execute("COMMIT")
        except BaseException:
            self._discard()  # its state is unknown
            raise
        return commit

    def _insert(self, connection: sqlite3.Connection, values: list[Any]) -> None:
        at, width = 0, len(EVENT_COLUMNS)
        left = len(values) // width
        for size in self._chunks:
            while left >= size:
                connection.execute(_INSERTS[size], values[at : at + size * width])
                at, left = at + size * width, left - size

    def _current(self) -> sqlite3.Connection:
        """Return the connection, reopened if another file is at the store's path."""
        file_id = self._file_id()
        if self._connection is not None and file_id != self._opened_at:
            self._discard()
        if self._connection is None:
            self._connection, self._opened_at = self._connect(), file_id
            most = self._connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // len(EVENT_COLUMNS)
            self._chunks = tuple(size for size in CHUNKS if size <= most)
        return self._connection

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
