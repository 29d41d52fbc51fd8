"""The store that the page is served from, which may not exist yet."""

from __future__ import annotations

import asyncio

from ...db.databases import in_memory
from ...errors import StoreNotFound
from ...experiments.records import Experiment
from ...log.event_log import EventLog
from ..columns import Names


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
        run = self._runs.setdefault(kept, Served(log))
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
