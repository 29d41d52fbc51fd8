"""The store that the page is served from, which may not exist yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
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
from ...queries import side_tables
from ...queries.index import index_or_warn
from ..columns import ON_THE_PAGE, Names
from .message_rule import CurrentRule

ANSWERS = 16
"""Counts that are kept of an experiment."""
PATIENCE_S = 0.5
"""Seconds that a page waits for the indexing, before it is told about it."""


class ServedStore:
    """A store, and what the server keeps of its experiments.

    `async with ServedStore("runs.db") as store:` raises the errors of `EventLog.open`, except that a store which does
    not exist is looked for again whenever it is asked for.
    """

    def __init__(self, url: str) -> None:
        self.url = url
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
        run = self._runs.setdefault((of.id, of.created_at), Served(log))  # a removed one may leave its id to another
        run.of = of
        return run


class Served:
    """One experiment, and what the server keeps of it."""

    of: Experiment
    """As it was when it was last asked for."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.names = Names()
        """Positions of names, the same in all chunks."""
        self.rule = CurrentRule()
        self._indexing: asyncio.Task[bool] | None = None
        self._indexed = 0, 0
        self._begun: asyncio.Task[None] | None = None
        self._answers: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._answered: dict[int, int] = {}
        """Last seqs when these were asked."""

    async def close(self) -> None:
        """End the indexing; what was indexed remains."""
        tasks = [task for task in (self._indexing, self._begun, *self._answers.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin what requests will wait for, unless it has begun. They meet its errors."""
        if self._begun is None or self._begun.done():
            self._begun = asyncio.create_task(_suppressed(work()))

    async def sources(self, selection: Selection) -> Sources:
        """Return the choice of the messages of a selection."""
        rule = copy(await self.rule.sources(self.log, self.of))
        if selection.kinds is not None:
            rule.kinds = selection.kinds & ON_THE_PAGE
        return rule

    async def counted(self, question: str, count: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> dict[str, Any]:
        """Return the answer of `count`, the same to the same question while nothing is recorded."""
        now = (await recorders_now(self.log.database, self.of)).last_seqs
        if now != self._answered:
            self._answers, self._answered = {}, now
        task = self._answers.get(question)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            if len(self._answers) >= ANSWERS:
                del self._answers[next(iter(self._answers))]
            task = self._answers[question] = asyncio.create_task(count())
        return await asyncio.shield(task)

    async def indexing(self, *, again: bool = False) -> list[int] | None:
        """Return the number of events that are indexed and their total; None if the experiment is indexed.

        Starts the indexing if nobody has. An experiment that is being recorded counts as indexed after the first time:
        a count adds what is new. With `again`, as for a page that begins, what is new is indexed now: its receptions
        would not be shown.
        """
        idle = self._indexing is None or (again and self._indexing.done())
        if idle and await side_tables.is_behind(self.log.database, self.of.id):
            self._indexing = asyncio.create_task(index_or_warn(self.log, self.of, progress=self._progress))
        if self._indexing is None or self._indexing.done():
            return None
        await asyncio.wait((self._indexing,), timeout=PATIENCE_S)
        return None if self._indexing.done() else list(self._indexed)

    def _progress(self, done: int, total: int) -> None:
        self._indexed = done, total


async def _suppressed(work: Coroutine[Any, Any, None]) -> None:
    with suppress(StoreError):
        await work
