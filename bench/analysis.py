"""Rows about analysis: questions to a recorded society, each as a function of the library and as SQL by hand."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from messager_store import EventLog, Experiment
from messager_store.log.messages import selected_pages
from messager_store.log.selection import Selection
from messager_store.queries.index import index

from . import raw
from .measure import Stage, Values
from .society import EXP_ID, FREQUENT, RARE, batches, make, recipient_of, society
from .workload import BEGIN, STEP, channel, remove

PAGE, FIRST = 100, 1000
ONE = 500
"""The agent of the page; it talks with the next one."""
APPENDED = 20_000
"""Messages that are appended; each is two events."""
RECORDED = 200_000

_COLUMNS = ", ".join(f"e.{column.strip()}" for column in raw.COLUMNS.split(","))
_OF = f"(SELECT id FROM experiment WHERE exp_id = '{EXP_ID}')"


def _name(what: int, value: str | int) -> str:
    return f"(SELECT id FROM name WHERE experiment_id = {_OF} AND what = {what} AND text = '{value}')"


class Questions:
    """The time (s) of each question: until the last event is there, or the last sum, with names for ids."""

    def __init__(self, stage: Stage) -> None:
        self._path = society(stage)
        middle = BEGIN + stage.society // 4 * STEP
        other = recipient_of(ONE)
        one, two = _name(1, ONE), _name(1, other)
        events = f"SELECT {_COLUMNS} FROM event e WHERE e.experiment_id = {_OF} AND"
        said = f"SELECT {_COLUMNS} FROM said s JOIN event e ON e.id = s.event_id WHERE e.experiment_id = {_OF} AND"
        order = "ORDER BY e.ts, e.id"
        self._ours: dict[str, Callable[[EventLog, Experiment], Awaitable[int]]] = {
            "page": _read(
                Selection(channels=channel(other), agents=ONE, since=str(middle), limit=PAGE), messages=False
            ),
            "conversation": _read(Selection(between=(ONE, other)), messages=True),
            "count": _count,
            "grep": _read(Selection(grep=RARE), messages=False),
            "grep-frequent": _read(Selection(grep=FREQUENT, limit=FIRST), messages=False),
        }
        self._theirs = {
            "page": f"{events} e.ts >= {middle} AND e.channel_id = {_name(0, channel(other))} "
            f"AND (e.from_id = {one} OR e.to_id = {one}) {order} LIMIT {PAGE}",
            "conversation": f"{events} e.kind = 1 AND (e.from_id = {one} AND e.to_id = {two} "
            f"OR e.from_id = {two} AND e.to_id = {one}) {order}",
            "count": "SELECT f.text, t.text, sum(a.messages) AS messages FROM recorder r "
            "JOIN activity a ON a.recorder_id = r.id JOIN name f ON f.id = a.from_id JOIN name t ON t.id = a.to_id "
            f"WHERE r.experiment_id = {_OF} AND a.kind = 1 GROUP BY a.from_id, a.to_id ORDER BY messages DESC",
            "grep": f"{said} s.folded LIKE '%{RARE}%' {order}",
            "grep-frequent": f"{events} EXISTS (SELECT 1 FROM said s WHERE s.event_id = e.id "
            f"AND s.folded LIKE '%{FREQUENT}%') {order} LIMIT {FIRST}",
        }
        self._found: dict[str, int] = {}

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
        for name, statement in self._theirs.items():
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as connection:
                began = time.perf_counter()
                found = len(connection.execute(statement).fetchall())
                times[name] = time.perf_counter() - began
            self._compare(name, found)
        return times

    def _compare(self, name: str, found: int) -> None:
        if not found or self._found.setdefault(name, found) != found:
            raise RuntimeError(f"{name}: {found} rows on one side, {self._found.get(name)} on the other")


def _read(selection: Selection, *, messages: bool) -> Callable[[EventLog, Experiment], Awaitable[int]]:
    async def read(log: EventLog, of: Experiment) -> int:
        return sum([len(page) async for page in selected_pages(log, of, selection, messages=messages)])

    return read


async def _count(log: EventLog, of: Experiment) -> int:
    from messager_store.queries.counting.count import count

    return len(await count(log, of, ("from", "to")))


class Append:
    """Events appended per second to a society by the same recorders, indexed and not."""

    def __init__(self, stage: Stage) -> None:
        self._plain, self._indexed, self._copy = (stage.new_path() for _ in range(3))
        asyncio.run(make(self._plain, RECORDED, stage.say, indexed=False))
        shutil.copyfile(self._plain, self._indexed)
        asyncio.run(_index(self._indexed))

    def ours(self) -> Values:
        return self._append_to(self._indexed)

    def theirs(self) -> Values:
        return self._append_to(self._plain)

    def _append_to(self, path: Path) -> Values:
        shutil.copyfile(path, self._copy)
        try:
            return {"rate": 2 * APPENDED / asyncio.run(_append(self._copy))}
        finally:
            remove(self._copy)


async def _index(path: Path) -> None:
    async with EventLog.open(str(path), create=False) as log:
        await index(log, await log.experiment(EXP_ID))


async def _append(path: Path) -> float:
    async with EventLog.open(str(path), create=False) as log:
        of = await log.experiment(EXP_ID)
        parts = batches(RECORDED // 2, APPENDED)
        writers = [await log.register(of, role="messager") for _ in parts]
        began = time.perf_counter()
        for writer, batch in zip(writers, parts, strict=True):
            await log.append(writer, batch)
        return time.perf_counter() - began
