"""A user's statement on SQLite: a process of its own, with a connection that can only read (`query_program`).

Four means, each of which suffices against writing the store: the file is opened with mode=ro, `query_only` is on, the
authorizer permits nothing but SELECT, and a transaction is open. The authorizer alone refuses what writes or opens
other files: ATTACH, VACUUM INTO, loading of extensions.
"""

from __future__ import annotations

import marshal
import re
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ...child_process import ChildProcess
from ...errors import StatementFailed, StatementTimedOut, StoreError
from ..user_query import ONLY_EXP, ONLY_READS, Expressions, UserQuery, received, view_statements, views_named

_PROGRAM = Path(__file__).with_name("query_program.py")
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
    uri: str, setup: Sequence[str], query: UserQuery, unavailable: Callable[[Exception], StoreError]
) -> AsyncIterator[Answer]:
    """Run a statement; its process ends with the block, or at the time limit, whichever is first.

    `uri` and `setup` are the URI and the first statements of the connection; `unavailable` makes the error of a store
    that cannot be read.
    """
    deadline = time.monotonic() + query.seconds
    with ChildProcess(_PROGRAM, "-I", "-S") as process:
        answer = Answer(process, query, unavailable)
        await answer.begin(uri, setup, deadline)
        yield answer


class Answer:
    """The rows of a statement."""

    def __init__(self, process: ChildProcess, query: UserQuery, unavailable: Callable[[Exception], StoreError]) -> None:
        self.columns: Sequence[str] = ()
        self._process, self._query, self._unavailable = process, query, unavailable

    async def begin(self, uri: str, setup: Sequence[str], deadline: float) -> None:
        """Execute the statement up to its first row."""
        number, statement = self._query.experiment_id, self._query.statement
        named = views_named(statement)
        counts = await self._ask((deadline, uri, list(setup), received(number) if "messages" in named else None))
        views = view_statements(number, _EXPRESSIONS, counts)
        made = [f"CREATE TEMP VIEW {name} AS {views[name]}" for name in named]
        columns = await self._ask((made, statement.encode(), {"exp": self._query.exp_id}))
        if columns is None:
            raise StatementFailed("it holds no statement")
        self.columns = columns

    async def fetch(self, most: int) -> list[Sequence[Any]]:
        rows: list[Sequence[Any]] = await self._ask(most)
        return rows

    async def _ask(self, request: Any) -> Any:
        return await self._process.call(lambda: self._answered(request))

    def _answered(self, request: Any) -> Any:
        """Return the answer of the process to a request: its value, or rows."""
        rows: list[Sequence[Any]] = []
        try:
            data = marshal.dumps(request)
            self._process.stdin.write(len(data).to_bytes(8, "big") + data)
            self._process.stdin.flush()
            while True:
                size = int.from_bytes(self._process.stdout.read(8), "big")
                tag, value = marshal.loads(self._process.stdout.read(size))  # EOFError if it is cut off
                if tag == "rows":
                    rows += value
                elif tag == "failed":
                    raise self._failed(*value)
                else:
                    return rows if tag == "end" else value
        except (BrokenPipeError, EOFError):
            if self._process.code() == -signal.SIGALRM:
                raise StatementTimedOut(self._query.seconds) from None
            raise self._unavailable(sqlite3.OperationalError(self._process.reason())) from None

    def _failed(self, message: str, code: int) -> StoreError:
        if code & 0xFF in _STORE_CODES:
            return self._unavailable(sqlite3.OperationalError(message))
        return _failed(self._query.statement, message)


def _failed(statement: str, message: str) -> StatementFailed:
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
