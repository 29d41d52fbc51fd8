"""Answers that read a whole experiment, from a thread of their own: pages and followed recordings do not wait for them.

The projection of an experiment stays open there until something is recorded or redacted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from sqlalchemy import func, select

from ...db.schema import redaction
from ...experiments.records import Experiment
from ...lockstep.recorder_thread import RealThread
from ...log.event_log import EventLog
from ...log.event_query import recorders_now
from ...projection.query import Projection, projected

T = TypeVar("T")
Question = Callable[[EventLog, Experiment, Projection], Awaitable[T]]
"""Is called in the thread."""

PATIENCE_S = 0.5
"""Seconds that `progress` waits for a projection."""


class Questions:
    """Answers from the store of a URL, which has to exist by the first question. Use it as a context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._thread = RealThread("messager view")
        self._log: EventLog | None = None
        self._opening = asyncio.Lock()
        self._open: dict[tuple[int, int], _Opened] = {}
        """By id and time of creation: a removed experiment may leave its id to another."""

    async def __aenter__(self) -> Questions:
        return self

    async def __aexit__(self, *ignored: object) -> None:
        try:
            await self._thread.run(self._close())
        finally:
            self._thread.close()

    async def ask(self, exp_id: str, question: Question[T]) -> T:
        """Return the answer to a question, as soon as the projection is up to date. Raises `StoreError`."""

        async def asked() -> T:
            opened = await self._opened(exp_id)
            await asyncio.shield(opened.update())
            async with opened.asking:
                return await question(opened.log, opened.of, opened.projection)

        return await self._thread.run(asked())

    async def with_log(self, exp_id: str, question: Callable[[EventLog, Experiment], Awaitable[T]]) -> T:
        """Return the answer to a question that opens a projection of its own, or none. Raises `StoreError`."""

        async def asked() -> T:
            opened = await self._opened(exp_id)
            return await question(opened.log, opened.of)

        return await self._thread.run(asked())

    async def progress(self, exp_id: str, wait_s: float | None = None) -> list[int] | None:
        """Return how many events the projection has, and their number; None if it is up to date. Raises `StoreError`.

        Brings it up to date, which goes on after the answer; waits `PATIENCE_S` for it by default.
        """

        async def asked() -> list[int] | None:
            opened = await self._opened(exp_id)
            updating = opened.update()
            await asyncio.wait((updating,), timeout=PATIENCE_S if wait_s is None else wait_s)
            if not updating.done():
                return list(opened.done)
            updating.result()
            return None

        return await self._thread.run(asked())

    async def _opened(self, exp_id: str) -> _Opened:
        async with self._opening:
            if self._log is None:
                self._log = await EventLog.open(self._url, create=False)
        of = await self._log.experiment(exp_id)
        opened = self._open.setdefault((of.id, of.created_at), _Opened(self._log))
        opened.of = of
        return opened

    async def _close(self) -> None:
        for opened in self._open.values():
            await opened.close()
        if self._log is not None:
            await self._log.close()


class _Opened:
    """One experiment, and its projection."""

    of: Experiment
    """As it was when it was last asked for."""
    projection: Projection

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.asking = asyncio.Lock()
        """Held by a question: a connection answers one at a time."""
        self.done = 0, 0
        """Events that are in the projection, and their number, while it is brought up to date."""
        self._updates: set[asyncio.Task[None]] = set()
        self._updating = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._state: Any = None
        """What the projection was opened for."""

    def update(self) -> asyncio.Task[None]:
        """Begin to bring the projection up to date with what the log has now; return what ends then.

        An update that is running does not do: it has read the log before.
        """
        update = asyncio.create_task(self._update())
        self._updates.add(update)
        update.add_done_callback(self._ended)
        return update

    def _ended(self, update: asyncio.Task[None]) -> None:
        self._updates.discard(update)
        if not update.cancelled():
            update.exception()  # who waits for it gets it; nobody may wait any more

    async def close(self) -> None:
        """End the update; what was written remains."""
        updates = list(self._updates)
        for update in updates:
            update.cancel()
        await asyncio.gather(*updates, return_exceptions=True)
        await self._stack.aclose()

    async def _update(self) -> None:
        async with self._updating:
            state = await self._now()
            if state == self._state:
                return
            self.done = 0, 0
            stack = AsyncExitStack()
            projection = await stack.enter_async_context(projected(self.log, self.of, self._note))
            async with self.asking:
                self._stack, stack = stack, self._stack
                self.projection, self._state = projection, state
                await stack.aclose()

    async def _now(self) -> Any:
        redactions = select(func.max(redaction.c.id)).where(redaction.c.experiment_id == self.of.id)
        async with self.log.database.reading() as connection:
            last = (await connection.execute(redactions)).scalar_one()
        return (await recorders_now(self.log.database, self.of)).last_seqs, last

    def _note(self, done: int, total: int) -> None:
        self.done = done, total
