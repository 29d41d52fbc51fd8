"""One experiment for notebooks and scripts: synchronous, also where an event loop is running."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from .errors import StoreError
from .experiments.records import Experiment
from .lockstep.recorder_thread import RealThread
from .log.event import Event
from .log.event_log import EventLog
from .log.selection import Filters, Selection, selection_of
from .matching.match import Match
from .projection.narrowing import selected_pages
from .projection.pages import found_pages
from .projection.selecting import Rows
from .projection.sql import SqlResult, sql
from .queries.comparison.compare import compare
from .queries.comparison.result import Comparison
from .queries.counting.count import Counts, count
from .queries.delays import Delays, delays
from .queries.problems import Problems, problems
from .queries.silences import Silences, silences
from .run_card import card
from .view.report import Page, page_of, report

T = TypeVar("T")

IN_NOTEBOOK = 50_000
"""Maximum of messages in a page that a notebook shows."""


class Run:
    """One experiment of a store.

        run = Run("exp-1", store="messager.db")
        run.table(agents=[7]).to_pandas()

    `exp` is an exp_id, a name, a prefix or `@last`; `store` a file name or a URL, by default that of MESSAGER_STORE, or
    `messager.db`. Methods that take filters take those of `Selection`, or one as `selection`. An id that the experiment
    does not have means what is typed so: "3" the agent 3.

    The store is used in a thread with an event loop of its own. `close`, or the end of a `with` block, closes it; so do
    garbage collection and the end of the process. A forked process opens its own `Run`. Raises `StoreError`, as
    `EventLog.open` and `EventLog.experiment` do.
    """

    def __init__(self, exp: str = "@last", store: str | None = None) -> None:
        self.store = store if store is not None else os.environ.get("MESSAGER_STORE") or "messager.db"
        """The store, as it was given."""
        self._thread = RealThread("messager run")
        self._log: EventLog | None = None
        try:
            self._log = self._wait(_opened(self.store))
            self.experiment: Experiment = self._wait(self._log.experiment(exp))
            """The experiment, as it was when the run was opened."""
        except BaseException:
            _end(self._thread, self._log)
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

        docs/analysis.md describes the columns. The projection is brought up to date first.
        """
        from .projection.tables import table

        chosen = self._selection(selection, filters)
        return self._call(lambda log, of: table(log, of, chosen, events=events))

    def messages(self, selection: Selection | None = None, **filters: Unpack[Filters]) -> list[Event]:
        """Return the selected messages, each once."""
        chosen = self._selection(selection, filters)
        return self._call(lambda log, of: _listed(log, of, chosen, messages=True))

    def events(self, selection: Selection | None = None, **filters: Unpack[Filters]) -> list[Event]:
        """Return the selected events."""
        chosen = self._selection(selection, filters)
        return self._call(lambda log, of: _listed(log, of, chosen, messages=False))

    def count(
        self,
        *by: str,
        selection: Selection | None = None,
        max_gap: str | None = None,
        events: bool = False,
        **filters: Unpack[Filters],
    ) -> Counts:
        """Return the number of selected messages by one or two dimensions, from and to by default, as `count` does."""
        chosen = self._selection(selection, filters)
        return self._call(lambda log, of: count(log, of, by or ("from", "to"), chosen, max_gap=max_gap, events=events))

    def delays(
        self,
        by: str = "pair",
        *,
        replies: bool = False,
        selection: Selection | None = None,
        **filters: Unpack[Filters],
    ) -> Delays:
        """Return delivery times, or reply times, by pair or by channel, as `delays` does."""
        chosen = self._selection(selection, filters)
        return self._call(lambda log, of: delays(log, of, chosen, by=by, replies=replies))

    def silences(
        self, by: str = "agent", *, selection: Selection | None = None, **filters: Unpack[Filters]
    ) -> Silences:
        """Return the longest silence of each agent, pair or channel, and who stopped, as `silences` does."""
        chosen = self._selection(selection, filters)
        return self._call(lambda log, of: silences(log, of, chosen, by=by))

    def problems(self, selection: Selection | None = None, **filters: Unpack[Filters]) -> Problems:
        """Return everything that went wrong, as `problems` does."""
        chosen = self._selection(selection, filters)
        return self._call(lambda log, of: problems(log, of, chosen))

    def diff(
        self,
        other: str | Run,
        *,
        match: Match | None = None,
        selection: Selection | None = None,
        **filters: Unpack[Filters],
    ) -> Comparison:
        """Return the differences from this run to another one, or to another experiment of the store, as `compare`."""
        chosen = self._selection(selection, filters)
        exp, store = (other, self.store) if isinstance(other, str) else (other.exp_id, other.store)

        async def compared(log: EventLog, of: Experiment) -> Comparison:
            async with EventLog.open(store, create=False) as log_b:
                return await compare(log, of, exp, log_b=log_b, match=match, selection=chosen)

        return self._call(compared)

    def report(
        self, path: str | os.PathLike[str], selection: Selection | None = None, **filters: Unpack[Filters]
    ) -> int:
        """Write the selected messages as one HTML file to look at; return their number. See `view.report.report`."""
        chosen = self._selection(selection, filters)
        return self._call(lambda log, of: report(log, of.exp_id, path, chosen))

    def view(self, selection: Selection | None = None, *, height: int = 640, **filters: Unpack[Filters]) -> Page:
        """Return the selected messages as a page, which a notebook shows in a frame of `height` px.

        Raises `StoreError` for more than `IN_NOTEBOOK` messages, because a notebook keeps what it shows.
        """
        chosen = self._selection(selection, filters)
        page = self._call(lambda log, of: page_of(log, of.exp_id, chosen, most=IN_NOTEBOOK))
        return replace(page, height=height)

    def sql(self, statement: str, *, timeout_s: float = 30.0, limit: int | None = None) -> SqlResult:
        """Return the rows of one SQL statement that only reads, as `sql` does."""
        return self._call(lambda log, of: sql(log, of, statement, timeout_s=timeout_s, limit=limit))

    def close(self) -> None:
        """Close the store and end the thread. May be called twice."""
        _OPEN.discard(self)
        self._log = None
        if (ending := self._ending.detach()) is not None:
            _end(*ending[2])

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Run({self.exp_id!r}, store={self.store!r})"

    def _repr_html_(self) -> str:
        """Return a card for notebooks."""
        return self._call(card)

    def _selection(self, selection: Selection | None, filters: Filters) -> Selection:
        chosen = selection_of(selection, filters)
        if chosen.of_agents().everything:
            return chosen
        return chosen.with_ids_as_shown(self._call(lambda log, of: log.agents(of)))

    def _call(self, function: Callable[[EventLog, Experiment], Coroutine[Any, Any, T]]) -> T:
        if self._log is None:
            raise StoreError(
                "the run is closed, or belongs to the process that forked this one. Open it with Run(...)."
            )
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
    if messages or selection.by_content:
        rows = Rows.MESSAGES if messages else Rows.EVENTS
        return [entry async for page in found_pages(log, of, selection, rows) for entry in page]
    return [entry async for page in selected_pages(log, of, selection) for entry in page]


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


def _leave_to_parent() -> None:
    """Close nothing in a forked process: it has no copy of the threads, and the connections are the parent's."""
    for run in list(_OPEN):
        run._ending.detach()
        _INHERITED.append(run._log)
        run._log = None
    _OPEN.clear()


_INHERITED: list[EventLog | None] = []
"""In a forked process, the logs of its parent, which garbage collection must not close."""

atexit.register(_close_all)
os.register_at_fork(after_in_child=_leave_to_parent)
