"""Events of an export, as every format writes them: changed for sharing, counted, with progress."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from ..experiments.records import Experiment
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.selection import Selection
from ..projection.narrowing import selected_pages
from .sharing import Sharing

STEP = 1000
"""Progress is reported when another so many events were exported."""


class Export:
    """An export of an experiment, made by `begin`."""

    def __init__(
        self, log: EventLog, of: Experiment, progress: Callable[..., None] | None, shared: Sharing | None
    ) -> None:
        self._log = log
        self._progress = progress
        self._shared = shared
        self.of = of
        """The experiment."""
        self.count = 0
        """Number of events so far."""

    async def pages(self, selection: Selection) -> AsyncGenerator[list[Event], None]:
        """Yield the events of a selection in lists."""
        async with aclosing(selected_pages(self._log, self.of, selection)) as found:
            async for page in found:
                yield page if self._shared is None else [self._shared.event(entry) for entry in page]
                self._exported(len(page))

    async def batches(self, selection: Selection | None, *, messages: bool) -> AsyncGenerator[Any, None]:
        """Yield the record batches of a selection: all events, or with `messages` each message once."""
        from ..projection.tables import batches  # text formats start faster without it

        change = None if self._shared is None else self._shared.event
        found = batches(self._log, self.of, selection, events=not messages, change=change, progress=self._indexing)
        async with aclosing(found):
            async for batch in found:
                yield batch
                self._exported(batch.num_rows)

    def _exported(self, number: int) -> None:
        before, self.count = self.count, self.count + number
        if self._progress is not None and before // STEP < self.count // STEP:
            self._progress(self.count)

    def _indexing(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(done, total, "reading")


async def begin(
    log: EventLog, exp_id: str, progress: Callable[..., None] | None = None, shared: Sharing | None = None
) -> Export:
    """Begin an export with the changes of `shared`. Raises `UnknownExperiment`."""
    of = await log.experiment(exp_id)
    if shared is not None:
        shared.begin(await log.agents(of))
    return Export(log, of, progress, shared)
