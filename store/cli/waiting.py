"""Waiting for a store, and for an experiment in it, that do not exist yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from .options import opened
from .output import note

if TYPE_CHECKING:
    from ..experiments.registry import Experiment
    from ..log.event_log import EventLog

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

POLL_SECONDS = 0.5
"""Seconds between two attempts."""


@asynccontextmanager
async def opened_when_there(store: str, exp: str) -> AsyncIterator[tuple[EventLog, Experiment]]:
    """The log of a store and an experiment in it, as soon as both exist; waiting makes neither.

    One line on standard error says that it waits. Any other error is raised at once: a store that is out of reach,
    not a store, or of another revision, and an exp_id that fits several experiments.
    """
    from ..db.databases import in_memory
    from ..errors import ExperimentNotFound, StoreNotFound

    told = False

    def tell(missing: str, hint: str = "") -> None:
        nonlocal told
        if not told:
            note(f"waiting for {missing}; Ctrl-C ends it.{hint}")
        told = True

    def without_store(error: StoreNotFound) -> None:
        if in_memory(store):  # no other process can make it
            raise error
        tell(f"the store {error.location} and the experiment {exp!r} in it")

    def without_experiment(error: ExperimentNotFound) -> None:
        tell(f"the experiment {exp!r} in {log.location}", _suggestion(error.nearest))

    async with AsyncExitStack() as stack:
        log = await _once_found(lambda: stack.enter_async_context(opened(store)), StoreNotFound, without_store)
        of = await _once_found(lambda: log.experiment(exp), ExperimentNotFound, without_experiment)
        yield log, of


def _suggestion(nearest: list[str]) -> str:
    """The experiments that may have been meant, if the exp_id is misspelt."""
    return f" Did you mean {' or '.join(nearest)}?" if nearest else ""


async def _once_found(ask: Callable[[], Awaitable[T]], missing: type[E], tell: Callable[[E], None]) -> T:
    """Ask again and again while it raises `missing`."""
    while True:
        try:
            return await ask()
        except missing as error:
            tell(error)
        await asyncio.sleep(POLL_SECONDS)
