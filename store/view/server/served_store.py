"""The store that the page is served from, which may not exist yet."""

from __future__ import annotations

import asyncio
from copy import copy

from ...db.databases import in_memory
from ...errors import ExperimentNotFound, StoreNotFound
from ...experiments.records import Experiment
from ...log.event_log import EventLog
from ...log.messages import Sources
from ...log.selection import Selection
from ..columns import ON_THE_PAGE, Names
from .message_rule import CurrentRule


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

    async def prepare(self, wanted: str) -> bool:
        """Begin to choose the messages of an experiment; return whether it exists. Raises `AmbiguousExperiment`."""
        try:
            (await self.run(wanted)).prepare()
        except (StoreNotFound, ExperimentNotFound):
            return False
        return True

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
        """Positions of names, the same in all answers."""
        self.rule = CurrentRule()
        self._choosing: asyncio.Task[Sources] | None = None

    async def close(self) -> None:
        """End what was begun."""
        if self._choosing is not None:
            self._choosing.cancel()
            await asyncio.wait((self._choosing,))

    def prepare(self) -> None:
        """Begin to choose the messages, which takes a second for ten million events. A request meets its errors."""
        self._choosing = asyncio.create_task(self.rule.sources(self.log, self.of))

    async def sources(self, selection: Selection) -> Sources:
        """Return the choice of the messages of a selection."""
        rule = copy(await self.rule.sources(self.log, self.of))
        if selection.kinds is not None:
            rule.kinds = selection.kinds & ON_THE_PAGE
        return rule
