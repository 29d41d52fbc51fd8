"""A user's statement on SQLite: a connection of its own that can only read.

Four means, each of which suffices against writing the store: the file is opened with mode=ro, `query_only` is on, the
authorizer permits nothing but SELECT, and a transaction is open. The authorizer alone refuses what writes or opens
other files: ATTACH, VACUUM INTO, loading of extensions.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ...errors import StatementFailed, StatementTimedOut, StoreError
from ..user_query import ONLY_EXP, ONLY_READS, Expressions, UserQuery, received, view_statements, views_named

T = TypeVar("T")

CACHE_KIB = 65536
"""Page cache of a statement's connection. A scan in replay order visits pages several times."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_REFUSED_FUNCTIONS = {"load_extension", "fts3_tokenizer", "sqlite_log", "readfile", "writefile", "edit"}
_STORE_CODES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOTADB,
}
"""Primary codes of errors that are the store's and not the statement's."""
_NAMED = re.compile(r"near \"(.+)\": |no such (?:column|table|function): (.+)|column name: (.+)|token: \"(.+)\"")
_EXPRESSIONS = Expressions(
    text="CAST({} AS TEXT)",
    member="CASE WHEN json_valid({0}) = 1 THEN json_extract({0}, '$.{key}') END",
    number="CASE WHEN json_valid({0}) = 1 THEN CASE json_type({0}, '$.{key}') WHEN 'integer' "
    "THEN json_extract({0}, '$.{key}') END END",
    minute="strftime('%Y-%m-%dT%H:%M:00Z', {} / 1000000000, 'unixepoch')",
    agent="""CASE
        WHEN {0}.value IS NULL THEN NULL
        WHEN {0}.text IS NULL THEN 'hex:' || hex({0}.value)
        WHEN json_valid({0}.text) IS NOT 1 THEN {0}.text
        WHEN json_type({0}.text) = 'integer' AND length({0}.text) > 18 THEN {0}.text
        ELSE json_extract({0}.text, '$') END""",
    channel="CASE WHEN {0}.value IS NOT NULL THEN coalesce({0}.text, 'hex:' || hex({0}.value)) END",
)


@asynccontextmanager
async def run(
    open_file: Callable[[], sqlite3.Connection], query: UserQuery, unavailable: Callable[[Exception], StoreError]
) -> AsyncIterator[Answer]:
    """Run a statement; its transaction ends with the block, or at the time limit, whichever is first.

    `unavailable` makes the error of a store that cannot be read.
    """
    answer = Answer(open_file, query, unavailable)
    try:
        await answer.begin()
        yield answer
    finally:
        await answer.close()


class Answer:
    """The rows of a statement.

    A thread ends the statement at the time limit, because the event loop may be blocked then, for example by a pipe
    that nobody reads.
    """

    def __init__(
        self,
        open_file: Callable[[], sqlite3.Connection],
        query: UserQuery,
        unavailable: Callable[[Exception], StoreError],
    ) -> None:
        self.columns: Sequence[str] = ()
        self._open_file, self._query, self._unavailable = open_file, query, unavailable
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._in_use = threading.Lock()
        """Held while the connection is in use."""
        self._expired = False
        self._timer = threading.Timer(query.seconds, self._expire)
        self._timer.daemon = True

    async def begin(self) -> None:
        """Execute the statement up to its first row."""
        self._timer.start()
        await self._in_thread(self._begin)

    async def fetch(self, most: int) -> list[Sequence[Any]]:
        return await self._in_thread(lambda: self._fetch(most))

    async def close(self) -> None:
        """End the statement and its transaction."""
        self._timer.cancel()
        await asyncio.to_thread(self._end)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Return the result of `work`. If the caller is cancelled, the statement is interrupted first."""
        working = asyncio.ensure_future(asyncio.to_thread(self._guarded, work))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.to_thread(self._end)
            with contextlib.suppress(Exception):
                await working
            raise

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            with self._in_use:
                return work()
        except (sqlite3.Error, sqlite3.Warning) as error:
            if self._expired:
                raise StatementTimedOut(self._query.seconds) from None
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _STORE_CODES:
                raise self._unavailable(error) from error
            raise _failed(self._query.statement, error) from None

    def _begin(self) -> None:
        self._connection = connection = self._open_file()
        connection.text_factory = lambda value: value.decode(errors="backslashreplace")
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        connection.execute("BEGIN")
        number, named = self._query.experiment_id, views_named(self._query.statement)
        counts = connection.execute(received(number)).fetchone() if "messages" in named else None
        views = view_statements(number, _EXPRESSIONS, counts)
        for name in named:
            connection.execute(f"CREATE TEMP VIEW {name} AS {views[name]}")
        connection.execute("PRAGMA query_only=ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_authorizer(_authorize)
        self._cursor = cursor = connection.cursor()
        cursor.execute(self._query.statement, {"exp": self._query.exp_id})
        if cursor.description is None:
            raise StatementFailed("it holds no statement")
        self.columns = [name for name, *_ in cursor.description]

    def _fetch(self, most: int) -> list[Sequence[Any]]:
        if self._expired:
            raise StatementTimedOut(self._query.seconds)
        assert self._cursor is not None
        return self._cursor.fetchmany(most)

    def _expire(self) -> None:
        self._expired = True
        self._end()

    def _end(self) -> None:
        """Interrupt the statement and close the connection."""
        while not self._in_use.acquire(timeout=0.02):
            # again and again: an interrupt before the first step of a statement has no effect
            if (connection := self._connection) is not None:
                with contextlib.suppress(sqlite3.ProgrammingError):
                    connection.interrupt()
        try:
            if self._cursor is not None:
                self._cursor.close()  # an unfinished statement would keep the connection's lock
            if self._connection is not None:
                self._connection.close()
            self._cursor = self._connection = None
        finally:
            self._in_use.release()


def _authorize(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _failed(statement: str, error: Exception) -> StatementFailed:
    message = str(error)
    if "not authorized" in message or "prohibited" in message or "cannot VACUUM" in message:
        return StatementFailed(ONLY_READS)
    if "one statement" in message:
        return StatementFailed("it is more than one statement")
    if "binding" in message.lower():
        return StatementFailed(ONLY_EXP)
    return StatementFailed(message, statement, _position(statement, message))


def _position(statement: str, message: str) -> int | None:
    """Return the index of the word that a message names, if the statement has it once; SQLite gives no position."""
    if message == "incomplete input":
        return len(statement.rstrip())
    found = _NAMED.search(message)
    if found is None:
        return None
    word = next(group for group in found.groups() if group is not None)
    places = [match.start() for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", statement)]
    return places[0] if len(places) == 1 else None
