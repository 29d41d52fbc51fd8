"""Rows about analysis: questions to a recorded society, each as a function of the library and as SQL by hand."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Awaitable, Callable

import duckdb
import pyarrow
import pyarrow.parquet as pq

from messager_store import EventLog, Experiment
from messager_store.db import derived_files
from messager_store.log.selection import Selection
from messager_store.projection.cache import size_of
from messager_store.projection.pages import found_pages
from messager_store.projection.query import Files, brought_up
from messager_store.projection.selecting import Rows
from messager_store.projection.tables import table
from messager_store.projection.update import PART
from messager_store.queries.counting.count import count
from messager_store.queries.delays import delays
from messager_store.queries.problems import problems

from .measure import Stage, Values
from .society import EXP_ID, FREQUENT, RARE, recipient_of, society
from .workload import BEGIN, STEP, channel

PAGE, FIRST = 100, 1000
ONE = 500
"""The agent of the page; it talks with the next one."""
COPIED = ["id", "ts", "kind", "channel", "from", "to", "payload"]
_EVENT = "SELECT e.ts, e.recorder, e.seq, e.kind, e.channel, e.from_id, e.to_id, e.payload FROM event e"
_RECEIVED = "FROM event r JOIN event m ON m.id = r.message_id WHERE r.id <> m.id AND NOT r.is_copy"


class Questions:
    """The time (s) of each question: until the last event is there, or the last sum."""

    def __init__(self, stage: Stage) -> None:
        self._path = society(stage)
        middle = BEGIN + stage.society // 4 * STEP
        other = recipient_of(ONE)
        self._ours: dict[str, Callable[[EventLog, Experiment], Awaitable[int]]] = {
            "page": _read(Selection(channels=channel(other), agents=ONE, since=str(middle), limit=PAGE), Rows.EVENTS),
            "conversation": _read(Selection(between=(ONE, other)), Rows.MESSAGES),
            "grep": _read(Selection(grep=RARE), Rows.EVENTS),
            "grep-frequent": _read(Selection(grep=FREQUENT, limit=FIRST), Rows.EVENTS),
            "count": _count,
            "delays": _delays,
            "replies": _replies,
            "problems": _problems,
            "table": _table,
        }
        order = "ORDER BY e.ts, e.id"
        self._theirs = {
            "page": f"{_EVENT} WHERE e.ts >= {middle} AND e.channel = '{channel(other)}' "
            f"AND ('{ONE}' IN (e.from_id, e.to_id)) {order} LIMIT {PAGE}",
            "conversation": f"{_EVENT} WHERE e.message_id = e.id AND (e.from_id = '{ONE}' AND e.to_id = '{other}' "
            f"OR e.from_id = '{other}' AND e.to_id = '{ONE}') {order}",
            "grep": f"{_EVENT} WHERE contains(e.folded, '{RARE}') {order}",
            "grep-frequent": f"{_EVENT} WHERE contains(e.folded, '{FREQUENT}') {order} LIMIT {FIRST}",
            "count": "SELECT from_id, to_id, count(*) AS n FROM event WHERE message_id = id "
            "GROUP BY ALL ORDER BY n DESC",
            "delays": "SELECT m.from_id, m.to_id, count(*), quantile_disc(r.ts - m.ts, [0.5, 0.95, 0.99]), "
            f"max(r.ts - m.ts) {_RECEIVED} GROUP BY ALL",
            "replies": "SELECT x, y, quantile_disc(ts - since, 0.5) FROM (SELECT from_id AS x, to_id AS y, ts, "
            "lag(ts) OVER turn AS since, lag(from_id) OVER turn AS earlier FROM event WHERE message_id = id "
            "WINDOW turn AS (PARTITION BY least(from_id, to_id), greatest(from_id, to_id) ORDER BY ts, id)) "
            "WHERE earlier <> x GROUP BY ALL",
            "problems": "SELECT e.id FROM event e ANTI JOIN event r ON r.message_id = e.id AND r.id <> e.id "
            "WHERE e.kind = 'sent'",
            "table": "SELECT * FROM event",
        }
        self._files = asyncio.run(self._brought_up())
        self._found: dict[str, int] = {}

    async def _brought_up(self) -> Files:
        async with EventLog.open(str(self._path), create=False) as log:
            return await brought_up(log, await log.experiment(EXP_ID))

    def ours(self) -> Values:
        return asyncio.run(self._ask())

    async def _ask(self) -> Values:
        times = {}
        async with EventLog.open(str(self._path), create=False) as log:
            of = await log.experiment(EXP_ID)
            for name, question in self._ours.items():
                began = time.perf_counter()
                found = await question(log, of)
                times[name] = time.perf_counter() - began
                self._compare(name, found)
        return times

    def theirs(self) -> Values:
        times = {}
        paths = ", ".join(f"'{path}'" for path in self._files.paths)
        for name, statement in self._theirs.items():
            began = time.perf_counter()
            with duckdb.connect() as connection:
                connection.register("tail", self._files.tail)
                connection.execute(f"CREATE VIEW event AS SELECT * FROM read_parquet([{paths}]) UNION ALL FROM tail")
                answer = connection.sql(statement)
                found = answer.to_arrow_table().num_rows if name == "table" else len(answer.fetchall())
            times[name] = time.perf_counter() - began
            self._compare(name, found)
        return times

    def _compare(self, name: str, found: int) -> None:
        if self._found.setdefault(name, found) != found:
            raise RuntimeError(f"{name}: {found} rows on one side, {self._found.get(name)} on the other")


class First:
    """The first answer of an experiment without a projection, and a copy of its events in Parquet by hand.

    The time is in s; `disk` is the size of what is made, in bytes a message.
    """

    def __init__(self, stage: Stage) -> None:
        self._path, self._copy = society(stage), stage.new_path(".parquet")

    def ours(self) -> Values:
        return asyncio.run(self._ask())

    async def _ask(self) -> Values:
        async with EventLog.open(str(self._path), create=False) as log:
            of = await log.experiment(EXP_ID)
            derived_files.delete(log.database, of.id)
            began = time.perf_counter()
            messages = sum(row.messages for row in await count(log, of, ("from",)))
            took = time.perf_counter() - began
            size = sum(size_of(folder) for folder in derived_files.folders(log.database, of.id))
        return {"first": took, "disk": size / messages}

    def theirs(self) -> Values:
        query = "SELECT id, ts, kind, channel_id, from_id, to_id, payload FROM event ORDER BY ts, id"
        began = time.perf_counter()
        number = 0
        with contextlib.closing(sqlite3.connect(self._path)) as log, contextlib.ExitStack() as stack:
            cursor, writer = log.execute(query), None
            while rows := cursor.fetchmany(PART):
                part = pyarrow.table([list(column) for column in zip(*rows, strict=True)], names=COPIED)
                if writer is None:
                    writer = stack.enter_context(pq.ParquetWriter(self._copy, part.schema, compression="zstd"))
                writer.write_table(part)
                number += len(rows)
        return {"first": time.perf_counter() - began, "disk": self._copy.stat().st_size / (number / 2)}


def _read(selection: Selection, rows: Rows) -> Callable[[EventLog, Experiment], Awaitable[int]]:
    async def read(log: EventLog, of: Experiment) -> int:
        return sum([len(page) async for page in found_pages(log, of, selection, rows)])

    return read


async def _count(log: EventLog, of: Experiment) -> int:
    return len(await count(log, of, ("from", "to")))


async def _delays(log: EventLog, of: Experiment) -> int:
    return len((await delays(log, of)).rows)


async def _replies(log: EventLog, of: Experiment) -> int:
    return len((await delays(log, of, replies=True)).rows)


async def _table(log: EventLog, of: Experiment) -> int:
    return int((await table(log, of, events=True)).num_rows)


async def _problems(log: EventLog, of: Experiment) -> int:
    return sum(sum(reasons.values()) for reasons in (await problems(log, of)).counts.values())
