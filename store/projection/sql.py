"""A user's SQL statement about one experiment: one that cannot write, with limits of time and memory.

It sees the `VIEWS` of `query`, and runs in a process of its own (`sql_program`).
"""

from __future__ import annotations

import io
import marshal
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from typing import Any

from ..child_process import ChildProcess
from ..errors import StatementFailed, StatementTimedOut, StoreError
from ..experiments.records import Experiment
from ..html_table import html_table
from ..log.event_log import EventLog
from . import schema
from .query import Files, Progress, brought_up, reading, small_tables, statements

PAGE = 1000
"""Rows that are read at a time."""
MOST_SECONDS = 2_147_483
"""Maximum time limit."""
MEMORY = 4 << 30
"""Bytes that the process of a statement may use."""
_PROGRAM = Path(__file__).with_name("sql_program.py")
_PLAIN = frozenset({type(None), bool, int, float, str, bytes, dict})


@dataclass(frozen=True, slots=True)
class SqlResult:
    """The rows of a statement."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    """Values: None, bool, int, float, str, bytes, datetime, date, time, timedelta, lists and dicts."""
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

    The statement is one of DuckDB about the views `messages`, `events`, `deliveries`, `marks` and `gaps`, which hold
    this experiment. Raises `StatementFailed`, `StatementTimedOut` after `timeout_s` seconds (above 0, at most
    `MOST_SECONDS`), and `StoreError` if DuckDB or pyarrow is not installed.
    """
    found: list[tuple[Any, ...]] = []
    async with open_sql(log, of, statement, timeout_s=timeout_s) as result:
        async for page in pages_of(result, None if limit is None else limit + 1):
            found += page
    return SqlResult(result.columns, found[:limit], limit is not None and len(found) > limit)


@asynccontextmanager
async def open_sql(
    log: EventLog, of: Experiment, statement: str, *, timeout_s: float = 30.0, progress: Progress | None = None
) -> AsyncIterator[Rows]:
    """Run a statement as `sql` does, and read its rows with `pages_of`. The time limit includes the reading.

    `progress` is called while the projection is brought up to date, before the time limit begins.
    """
    if not 0 < timeout_s <= MOST_SECONDS:
        raise StoreError(
            f"a time limit of {timeout_s:.10g} s is not possible. Give seconds above 0, and at most {MOST_SECONDS}."
        )
    if "\0" in statement:
        raise StatementFailed("it holds the character U+0000", statement, statement.index("\0"))
    try:
        statement.encode()
    except UnicodeEncodeError as error:
        raise StatementFailed("it holds half a character (a lone surrogate)", statement, error.start) from None
    files = await brought_up(log, of, progress)
    with reading(files), ChildProcess(_PROGRAM, "-P") as process:
        rows = Rows(process, statement, timeout_s)
        await rows.begin(files)
        yield rows


class Rows:
    """The rows of a statement, computed while they are fetched."""

    def __init__(self, process: ChildProcess, statement: str, seconds: float) -> None:
        self.columns: list[str] = []
        self._process, self._statement, self._seconds = process, statement, seconds

    async def begin(self, files: Files) -> None:
        """Execute the statement up to its first rows."""
        tables = {"tail": files.tail, **small_tables(files)}
        streams = {name: _stream(table) for name, table in tables.items()}
        parts = "SELECT * FROM parts UNION ALL " if files.paths else ""
        views = [f"CREATE VIEW event AS {parts}SELECT * FROM tail", *statements()]
        deadline = time.monotonic() + self._seconds
        self.columns = await self._ask(
            (deadline, MEMORY, self._statement, [str(path) for path in files.paths], streams, views)
        )

    async def fetch(self, most: int) -> list[tuple[Any, ...]]:
        """Return the next rows, at most so many; none at the end. Raises `StatementFailed`, `StatementTimedOut`."""
        rows: list[tuple[Any, ...]] = []
        for stream in await self._ask(most):
            for batch in schema.pyarrow().ipc.open_stream(stream):
                rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return rows

    async def _ask(self, request: Any) -> Any:
        return await self._process.call(lambda: self._answered(request))

    def _answered(self, request: Any) -> Any:
        """Return the answer of the process to a request: its value, or Arrow streams with rows."""
        rows: list[bytes] = []
        try:
            data = marshal.dumps(request)
            self._process.stdin.write(len(data).to_bytes(8, "big") + data)
            self._process.stdin.flush()
            while True:
                size = int.from_bytes(self._process.stdout.read(8), "big")
                tag, value = marshal.loads(self._process.stdout.read(size))  # EOFError if it is cut off
                if tag == "rows":
                    rows.append(value)
                elif tag == "failed":
                    raise self._failed(*value)
                else:
                    return rows if tag == "end" else value
        except (BrokenPipeError, EOFError):
            if self._process.code() == -signal.SIGALRM:
                raise StatementTimedOut(self._seconds) from None
            raise StatementFailed(f"its process ended, perhaps for want of memory ({self._process.reason()})") from None

    def _failed(self, message: str, at: int | None) -> StatementFailed:
        """Return an error; `at` is the index of a byte of the statement."""
        if at is None:
            return StatementFailed(message)
        position = len(self._statement.encode()[:at].decode(errors="ignore"))
        return StatementFailed(message, self._statement, position)


def _stream(table: Any) -> bytes:
    sink = io.BytesIO()
    with schema.pyarrow().ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


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
    """Return a value of Arrow as one of the types of `SqlResult`."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if type(value) in _PLAIN or isinstance(value, date | clock | timedelta):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return str(value)
