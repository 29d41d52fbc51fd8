"""Waiting for a store, or an experiment in it, that does not exist yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from .options import open_log
from .output import note

if TYPE_CHECKING:
    from ..experiments.records import Experiment
    from ..log.event_log import EventLog

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

POLL_SECONDS = 0.5
"""Seconds between two attempts."""


@asynccontextmanager
async def open_when_created(store: str, exp: str) -> AsyncIterator[tuple[EventLog, Experiment]]:
    """Open the log of a store, and find an experiment in it, as soon as both exist. Waiting creates neither.

    A note on standard error tells the user about the wait. Any other error is raised at once, such as a store that
    is unavailable or of another revision, and an ambiguous exp_id.
    """
    from ..db.databases import in_memory
    from ..errors import ExperimentNotFound, StoreNotFound

    noted = False

    def note_once(missing: str, hint: str = "") -> None:
        nonlocal noted
        if not noted:
            note(f"waiting for {missing}; Ctrl-C ends it.{hint}")
        noted = True

    def without_store(error: StoreNotFound) -> None:
        if in_memory(store):  # no other process can create it
            raise error
        note_once(f"the store {error.location} and the experiment {exp!r} in it")

    def without_experiment(error: ExperimentNotFound) -> None:
        note_once(f"the experiment {exp!r} in {log.location}", _suggestion(error.nearest))

    async with AsyncExitStack() as stack:
        log = await _retry(lambda: stack.enter_async_context(open_log(store)), StoreNotFound, without_store)
        of = await _retry(lambda: log.experiment(exp), ExperimentNotFound, without_experiment)
        yield log, of


def _suggestion(nearest: list[str]) -> str:
    """Return a hint with similar exp_ids."""
    return f" Did you mean {' or '.join(nearest)}?" if nearest else ""


async def _retry(attempt: Callable[[], Awaitable[T]], missing: type[E], on_missing: Callable[[E], None]) -> T:
    """Repeat an attempt while it raises `missing`."""
    while True:
        try:
            return await attempt()
        except missing as error:
            on_missing(error)
        await asyncio.sleep(POLL_SECONDS)
