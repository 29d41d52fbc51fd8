"""The store that the page is served from, which may not exist yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from copy import copy
from typing import Any

from ...db.databases import in_memory
from ...errors import StoreError, StoreNotFound
from ...experiments.records import Experiment
from ...log.event_log import EventLog
from ...log.event_query import recorders_now
from ...log.messages import Sources
from ...log.selection import Selection
from ..columns import ON_THE_PAGE, Names
from .message_rule import CurrentRule, Indexed, indexed

ReadIndexed = Callable[[EventLog, Experiment, bool], Coroutine[Any, Any, Indexed]]
"""`indexed`, or the same by another process."""
ANSWERS = 16
"""Answers that are kept of an experiment."""


class ServedStore:
    """A store, and what the server keeps of its experiments.

    `async with ServedStore("runs.db") as store:` raises the errors of `EventLog.open`, except that a store which does
    not exist is looked for again whenever it is asked for.
    """

    def __init__(self, url: str, read: ReadIndexed = indexed) -> None:
        self.url = url
        self._read = read
        self._log: EventLog | None = None
        self._opening = asyncio.Lock()
        self._runs: dict[tuple[int, int], Served] = {}

    async def __aenter__(self) -> ServedStore:
        try:
            await self.log()
        except StoreNotFound:
            if in_memory(self.url):  # no other process can create it
                raise
        return self

    async def __aexit__(self, *ignored: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the log, if it was opened."""
        for run in self._runs.values():
            await run.close()
        if self._log is not None:
            await self._log.close()

    async def log(self) -> EventLog:
        """Return the log. Raises `StoreNotFound` while the store does not exist."""
        async with self._opening:
            if self._log is None:
                self._log = await EventLog.open(self.url, create=False)
            return self._log

    async def run(self, wanted: str) -> Served:
        """Return the experiment of this exp_id, name or prefix. Raises `StoreNotFound` or `ExperimentNotFound`."""
        log = await self.log()
        of = await log.experiment(wanted)
        kept = of.id, of.created_at  # a removed one may leave its id to another
        run = self._runs.setdefault(kept, Served(log, self._read))
        run.of = of
        return run


class Served:
    """One experiment, and what the server keeps of it."""

    of: Experiment
    """As it was when it was last asked for."""

    def __init__(self, log: EventLog, read: ReadIndexed) -> None:
        self.log = log
        self._read = read
        self.names = Names()
        """Positions of names, the same in all answers."""
        self.rule = CurrentRule(self.indexed)
        self.counting = asyncio.Lock()
        """Held by a count, which indexes what is new: another one would read all events meanwhile."""
        self._begun: asyncio.Task[None] | None = None
        self._kept: dict[str, asyncio.Task[Any]] = {}
        self._kept_at: dict[int, int] = {}
        """Last seqs when these were asked."""

    async def close(self) -> None:
        """End what was begun."""
        tasks = [task for task in (self._begun, *self._kept.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Begin what requests will wait for, unless it has begun. They meet its errors."""
        if self._begun is None or self._begun.done():
            self._begun = asyncio.create_task(_suppressed(work))

    async def sources(self, selection: Selection) -> Sources:
        """Return the choice of the messages of a selection."""
        rule = copy(await self.rule.sources(self.log, self.of))
        if selection.kinds is not None:
            rule.kinds = selection.kinds & ON_THE_PAGE
        return rule

    async def indexed(self, counted: bool) -> Indexed:
        """Return what `activity` has."""
        found: Indexed = await self.kept(f"indexed {counted}", lambda: self._read(self.log, self.of, counted))
        return found

    async def kept(self, question: str, find: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Return what `find` finds, the same to the same question while nothing is recorded."""
        now = (await recorders_now(self.log.database, self.of)).last_seqs
        if now != self._kept_at:
            self._kept, self._kept_at = {}, now
        task = self._kept.get(question)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            if len(self._kept) >= ANSWERS:
                del self._kept[next(iter(self._kept))]
            task = self._kept[question] = asyncio.create_task(find())
        return await asyncio.shield(task)


async def _suppressed(work: Callable[[], Awaitable[Any]]) -> None:
    with suppress(StoreError):
        await work()
