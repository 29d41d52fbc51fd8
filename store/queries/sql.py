"""A user's SQL statement about one experiment: one SELECT that cannot write, with a time limit.

It sees the views of `messager_store.db.user_query`, which hold this experiment only, beside all tables of the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any

from ..db.user_query import Rows, UserQuery
from ..errors import StatementFailed, StoreError
from ..experiments.records import Experiment
from ..html_table import html_table
from ..log.event_log import EventLog
from .index import index_or_warn
from .texts import Progress

PAGE = 1000
"""Rows that are read at a time."""
MOST_SECONDS = 2_147_483
"""Maximum time limit: PostgreSQL counts milliseconds in 32 bits."""
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, dict})


@dataclass(frozen=True, slots=True)
class SqlResult:
    """The rows of a statement."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    """Values: None, bool, int, float, str, bytes; on PostgreSQL also lists and dicts, from JSON and arrays."""
    more: bool
    """True if the statement has more rows than the limit."""

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as records, for data frames. Of columns with the same name, the last one is in them."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def _repr_html_(self) -> str:
        return html_table(self.records())


async def sql(
    log: EventLog, of: Experiment, statement: str, *, timeout_s: float = 30.0, limit: int | None = None
) -> SqlResult:
    """Return the result of a statement, at most `limit` rows. All of them are in memory; see `open_sql`.

    The statement may use the views `messages`, `events`, `deliveries`, `marks`, `gaps` and `minutes`, which hold this
    experiment, and the parameter `:exp`. Side tables are brought up to date first. Raises `StatementFailed`, and
    `StatementTimedOut` after `timeout_s` seconds (above 0, at most `MOST_SECONDS`).
    """
    found: list[tuple[Any, ...]] = []
    async with open_sql(log, of, statement, timeout_s=timeout_s) as result:
        async for page in pages_of(result, None if limit is None else limit + 1):
            found += page
    return SqlResult(list(result.columns), found[:limit], limit is not None and len(found) > limit)


@asynccontextmanager
async def open_sql(
    log: EventLog, of: Experiment, statement: str, *, timeout_s: float = 30.0, progress: Progress | None = None
) -> AsyncIterator[Rows]:
    """Run a statement as `sql` does, and read its rows with `pages_of`. The time limit includes the reading.

    `progress` is called while the side tables are filled.
    """
    if not 0 < timeout_s <= MOST_SECONDS:
        raise StoreError(
            f"a time limit of {timeout_s:.10g} s is not possible. Give seconds above 0, and at most {MOST_SECONDS}."
        )
    if "\0" in statement:
        raise StatementFailed("it holds the character U+0000", statement, statement.index("\0"))
    await index_or_warn(log, of, progress=progress)
    query = UserQuery(statement, of.id, of.exp_id, timeout_s)
    async with log.database.dialect.user_query(query) as rows:
        yield rows


async def pages_of(rows: Rows, most: int | None = None) -> AsyncIterator[list[tuple[Any, ...]]]:
    """Yield the rows, at most so many, in lists of at most `PAGE`."""
    left = most
    while left is None or left > 0:
        page = await rows.fetch(PAGE if left is None else min(left, PAGE))
        if not page:
            return
        left = None if left is None else left - len(page)
        yield [tuple(row) if _PLAIN.issuperset(map(type, row)) else tuple(map(_plain, row)) for row in page]


def _plain(value: Any) -> Any:
    """Return a value of PostgreSQL as one of the types of `SqlResult`."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Decimal):
        if not value.is_finite():
            return float(value)
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Sequence) and not isinstance(value, str):  # an array, or a row
        return [_plain(one) for one in value]
    return str(value)
