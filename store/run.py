"""One experiment for notebooks and scripts: synchronous, also where an event loop is running."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, Unpack

from .errors import StoreError
from .experiments.records import Experiment
from .log.event import Event
from .log.event_log import EventLog
from .log.messages import selected_pages
from .log.selection import Filters, Selection, selection_of
from .queries.sql import SqlResult, sql
from .replay.real_thread import RealThread
from .run_card import card

T = TypeVar("T")


class Run:
    """One experiment of a store.

        run = Run("exp-1", store="messager.db")
        run.table(agents=[7]).to_pandas()

    `exp` is an exp_id, a name, a prefix or `@last`; `store` a file name or a URL, by default that of MESSAGER_STORE, or
    `messager.db`. Methods that take filters take those of `Selection`, or one as `selection`.

    The store is used in a thread with an event loop of its own. `close`, or the end of a `with` block, closes it; so do
    garbage collection and the end of the process. Raises `StoreError`, as `EventLog.open` and `EventLog.experiment` do.
    """

    def __init__(self, exp: str = "@last", store: str | None = None) -> None:
        self.store = store or os.environ.get("MESSAGER_STORE") or "messager.db"
        """The store, as it was given."""
        self._thread = RealThread("messager run")
        self._log: EventLog | None = None
        try:
            self._log = self._wait(_opened(self.store))
            self.experiment: Experiment = self._wait(self._log.experiment(exp))
            """The experiment, as it was when the run was opened."""
        except BaseException:
            self.close()
            raise
        self._ending = weakref.finalize(self, _end_elsewhere, self._thread, self._log)
        self._ending.atexit = False
        _OPEN.add(self)

    @property
    def exp_id(self) -> str:
        """The exp_id of the experiment."""
        return self.experiment.exp_id

    def table(self, selection: Selection | None = None, *, events: bool = False, **filters: Unpack[Filters]) -> Any:
        """Return the selected messages, each once, as a `pyarrow.Table`; with `events`, all events.

        docs/analysis.md describes the columns. The experiment is indexed first, if it is not yet.
        """
        from .arrow.batches import table

        return self._call(lambda log, of: table(log, of, selection_of(selection, filters), events=events))

    def messages(self, selection: Selection | None = None, **filters: Unpack[Filters]) -> list[Event]:
        """Return the selected messages, each once."""
        return self._call(lambda log, of: _listed(log, of, selection_of(selection, filters), messages=True))

    def events(self, selection: Selection | None = None, **filters: Unpack[Filters]) -> list[Event]:
        """Return the selected events."""
        return self._call(lambda log, of: _listed(log, of, selection_of(selection, filters), messages=False))

    def sql(self, statement: str, *, timeout_s: float = 30.0, limit: int | None = None) -> SqlResult:
        """Return the result of one statement that only reads, as `messager_store.queries.sql.sql` does."""
        return self._call(lambda log, of: sql(log, of, statement, timeout_s=timeout_s, limit=limit))

    def close(self) -> None:
        """Close the store and end the thread. May be called twice."""
        _OPEN.discard(self)
        ending = getattr(self, "_ending", None)
        if ending is not None:
            ending.detach()
        log, self._log = self._log, None
        _end(self._thread, log)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Run({self.exp_id!r}, store={self.store!r})"

    def _repr_html_(self) -> str:
        """Return a card for notebooks."""
        return self._call(card)

    def _call(self, function: Callable[[EventLog, Experiment], Coroutine[Any, Any, T]]) -> T:
        if self._log is None:
            raise StoreError("the run is closed. Open it again with Run(...).")
        return self._wait(function(self._log, self.experiment))

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and return its result. An interrupt cancels it."""
        result = asyncio.run_coroutine_threadsafe(call, self._thread.loop)
        try:
            return result.result()
        except BaseException:
            result.cancel()
            raise


async def _opened(store: str) -> EventLog:
    return await EventLog.open(store, create=False)


async def _listed(log: EventLog, of: Experiment, selection: Selection, *, messages: bool) -> list[Event]:
    return [entry async for page in selected_pages(log, of, selection, messages=messages) for entry in page]


def _end(thread: RealThread, log: EventLog | None) -> None:
    if log is not None:
        asyncio.run_coroutine_threadsafe(log.close(), thread.loop).result()
    thread.close()


def _end_elsewhere(thread: RealThread, log: EventLog) -> None:
    """Close in another thread: garbage collection may run in the thread that is to end."""
    threading.Thread(target=_end, args=(thread, log), name="messager run: closing").start()


_OPEN: weakref.WeakSet[Run] = weakref.WeakSet()
"""Runs to close at the end of the process."""


def _close_all() -> None:
    for run in list(_OPEN):
        run.close()


atexit.register(_close_all)
