"""A user's statement on PostgreSQL: in a READ ONLY transaction of a connection of its own, which is rolled back.

The statement becomes a subquery of a SELECT that defines the views as common table expressions, because creating
temporary views writes the catalogue and takes a right. A subquery can only be a SELECT, and no parenthesis of the
statement may end it; the extended protocol prepares one statement. What a SELECT can still do is up to the rights of
the user: read files of the server, end backends, call functions of an extension that reach other servers.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from asyncpg import exceptions as pg

from messager.time_limit import time_limit

from ...errors import StatementFailed, StatementTimedOut, StoreError
from ..user_query import ONLY_EXP, ONLY_READS, Expressions, UserQuery, received, view_statements, views_named
from . import nul_text
from .errors import ERRORS

END_SECONDS = 2.0
"""Maximum wait for the end of a statement that was given up."""
_EXPRESSIONS = Expressions(
    text="{} #>> '{{}}'",
    member="messager_member({0}, '{key}')",
    number="messager_number({0}, '{key}')",
    minute="to_char(to_timestamp({} / 1000000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:00\"Z\"')",
    agent="messager_id({0}.value, {0}.text)",
    channel="coalesce({0}.text, 'hex:' || upper(encode({0}.value, 'hex')))",
)
_ESCAPED = r"'(?:[^'\\]|''|\\.)*'"
_TOKENS = re.compile(
    r"(?P<comment>--[^\n\r]*|/\*.*?\*/)|(?P<space>\s+)|(?P<end>;)"
    rf"|[eE]{_ESCAPED}(?:(?:\s|--[^\n\r]*+)++{_ESCAPED})*"
    r"|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|(?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?P=tag)"
    r"|(?P<exp>(?<![:\w]):exp\b)|\w[\w$]*|.",
    re.DOTALL,
)
_LIMITS = "SET LOCAL statement_timeout = {0}; SET LOCAL idle_in_transaction_session_timeout = {0}"
_BEGINNINGS = {"select", "with", "values", "table", "("}
_STORE_ERRORS = (asyncpg.InterfaceError, pg.PostgresConnectionError, pg.OperatorInterventionError, OSError)


@asynccontextmanager
async def run(
    connect: Callable[[], Awaitable[Any]],
    query: UserQuery,
    translate: Callable[[Exception], Awaitable[StoreError]],
) -> AsyncIterator[Answer]:
    """Run a statement; its transaction ends with the block, and is ended by the server at the time limit."""
    connection = await connect()
    try:
        answer = Answer(connection, query, translate)
        await answer.begin()
        yield answer
    finally:
        # a rollback first, so that a statement that was cancelled is not left running on the server
        with contextlib.suppress(*ERRORS):
            async with time_limit(END_SECONDS):
                await connection.execute("ROLLBACK")
        connection.terminate()  # ends what outlives a transaction: advisory locks of the session, settings


class Answer:
    """The rows of a statement."""

    def __init__(
        self, connection: Any, query: UserQuery, translate: Callable[[Exception], Awaitable[StoreError]]
    ) -> None:
        self.columns: Sequence[str] = ()
        self._connection, self._query, self._translate = connection, query, translate
        self._deadline = time.monotonic() + query.seconds
        self._cursor: Any = None

    async def begin(self) -> None:
        """Begin the transaction and prepare the statement."""
        text, values = _parameters(self._query)
        offset = 0
        try:
            for name in ("json", "jsonb"):
                await self._connection.set_type_codec(
                    name, schema="pg_catalog", encoder=json.dumps, decoder=_json, format="text"
                )
            await self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            await self._limit()
            with_views = await self._views()
            offset = len(with_views)
            prepared = await self._connection.prepare(f"{with_views}{text}\n) AS answer")
            if len(prepared.get_parameters()) != len(values):
                raise StatementFailed(ONLY_EXP)
            self.columns = [column.name for column in prepared.get_attributes()]
            self._cursor = await prepared.cursor(*values)
        except ERRORS as error:
            raise await self._failed(error, offset) from error

    async def fetch(self, most: int) -> list[Sequence[Any]]:
        try:
            await self._limit()
            rows = await self._cursor.fetch(most)
        except ERRORS as error:
            raise await self._failed(error, 0) from error
        return [tuple(row) for row in rows]

    async def _views(self) -> str:
        """Return the beginning of the statement that is run, up to the user's text."""
        number, named = self._query.experiment_id, views_named(self._query.statement)
        counts = tuple(await self._connection.fetchrow(received(number))) if "messages" in named else None
        views = view_statements(number, _EXPRESSIONS, counts)
        made = ", ".join(f"{name} AS NOT MATERIALIZED ({views[name]})" for name in named)
        return f"{f'WITH {made} ' if made else ''}SELECT * FROM ("

    async def _limit(self) -> None:
        """Give the server the time that is left: for the next statement, and for waiting until one comes."""
        left = int((self._deadline - time.monotonic()) * 1000)
        if left <= 0:
            raise StatementTimedOut(self._query.seconds)
        await self._connection.execute(_LIMITS.format(left))

    async def _failed(self, error: Exception, offset: int) -> StoreError:
        late = time.monotonic() >= self._deadline - 0.1
        if isinstance(error, pg.QueryCanceledError | pg.IdleInTransactionSessionTimeoutError) or (
            late and isinstance(error, _STORE_ERRORS)
        ):
            return StatementTimedOut(self._query.seconds)
        if isinstance(error, _STORE_ERRORS) or not isinstance(error, asyncpg.PostgresError):
            return await self._translate(error)
        message, statement = " ".join(str(error).split()), self._query.statement
        position = int(getattr(error, "position", None) or 0) - 1 - offset
        if position > len(statement):  # the text around it
            return StatementFailed("it ends too early", statement, len(statement.rstrip()))
        return StatementFailed(message, statement, position if position >= 0 else None)


def _parameters(query: UserQuery) -> tuple[str, list[str]]:
    """Return the statement with PostgreSQL's parameter for `:exp`, without a semicolon at its end, and the values.

    All other text keeps its place, so that positions can be told. Raises `StatementFailed` if nothing is left.
    """
    tokens = list(_TOKENS.finditer(query.statement))
    code = [match for match in tokens if match.lastgroup not in ("comment", "space", "end")]
    if not code:
        raise StatementFailed("it holds no statement")
    if code[0][0].lower() not in _BEGINNINGS:
        raise StatementFailed(ONLY_READS)
    _check_parentheses(tokens, query.statement)
    end = code[-1].end()
    text = "".join("$1  " if match["exp"] else match[0] for match in tokens if match.end() <= end)
    return text, [query.exp_id] if any(match["exp"] for match in code) else []


def _check_parentheses(tokens: Sequence[re.Match[str]], statement: str) -> None:
    """Check that no parenthesis ends the subquery into which the statement is put. Raises `StatementFailed`."""
    depth = 0
    for match in tokens:
        if match["comment"] and "/*" in match[0][2:] and match[0].startswith("/*"):
            raise StatementFailed("a comment inside a comment is not supported", statement, match.start())
        depth += (match[0] == "(") - (match[0] == ")")
        if depth < 0:
            raise StatementFailed('syntax error at ")"', statement, match.start())


def _json(text: str) -> Any:
    """Return a JSON value; ids are mostly single texts."""
    value = json.loads(text)
    return nul_text.decode(value.encode()) if isinstance(value, str) else value
