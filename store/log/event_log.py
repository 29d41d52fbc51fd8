"""EventLog: append, read, tail. Only this module appends events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from ..db.codes import AGENT, CHANNEL
from ..db.database import Database
from ..errors import ExperimentExists, RecorderFenced, StoreError
from ..experiments import lifecycle, registry
from ..experiments.records import Experiment, RecorderRow
from . import batch, lineage, reading, recorder_rows, tail
from .cursor import Point
from .event import Event, Fields
from .last_of_each import last_of_each
from .names import all_names
from .selection import Filters, Selection, selection_of
from .span import Span
from .writer import Writer


class EventLog:
    """The log of one store.

    `async with EventLog.open("runs.db") as log:` or `log = await EventLog.open(url)` and
    `await log.close()`. One log belongs to one event loop and may be shared by its tasks.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    @staticmethod
    def open(url: str, *, create: bool = True) -> _Opening:
        """Open a store by its URL or file name; create it on first use unless `create` is False.

        Raises `StoreUnavailable` (`StoreNotFound` if absent), `NotAStore`, `DamagedStore` or `WrongRevision`.
        """
        return _Opening(url, create)

    @property
    def location(self) -> str:
        """The store as shown to people: an absolute path, or a URL without credentials."""
        return self.database.location

    async def close(self) -> None:
        """Close the connections. May be called twice."""
        await self.database.close()

    async def register(
        self,
        of: Experiment,
        *,
        role: str,
        patterns: Iterable[str] = (),
        meta: Mapping[str, Any] | None = None,
        name: str | None = None,
        durability: str = "buffered",
        spool: str | None = None,
        row: Mapping[str, Any] | None = None,
    ) -> Writer:
        """Register a new recorder of an experiment, with the next ordinal, and return its writer.

        `name` is its uuid, if it has one already. If the answer to a call was lost, a second call with the same `name`
        returns the recorder of the first. `row` replaces the columns that describe this process and its clock. Raises
        `ExperimentClosed`, and `RecorderFenced` if the recorder of this name has recorded or ended already.
        """
        return await recorder_rows.register(
            self.database,
            of,
            role=role,
            patterns=patterns,
            meta=meta or {},
            name=name,
            durability=durability,
            spool=spool,
            row=row or {},
        )

    async def take_over(self, name: str) -> Writer:
        """Return a writer that continues the recorder of this uuid, and fence its earlier writer.

        Raises `RecorderFenced` if there is no such recorder, and `ExperimentClosed`.
        """
        return await recorder_rows.take_over(self.database, name)

    async def append(
        self,
        writer: Writer,
        events: Sequence[Fields],
        *,
        unacknowledged_ns: int = 0,
        complete_until: int | None = None,
    ) -> None:
        """Commit a batch, all of it or nothing, as the next link of the recorder's chain.

        `unacknowledged_ns` is the time that its oldest event has waited. With this batch, the log holds every event
        that the recorder accepted before `complete_until` (ns UTC). Raises `RecorderFenced` if the recorder was ended
        or taken over, `BadEvent` for an event that the log cannot hold (nothing is written then), and
        `StoreUnavailable` if it is unknown whether the batch was committed: call `recover` then.
        """
        if not events:
            return
        names = await writer.resolve(events)
        commit = await self.database.append(
            batch.expected(writer),
            batch.parts(writer, events, names, unacknowledged_ns=unacknowledged_ns, complete_until=complete_until),
        )
        if commit is None:
            raise RecorderFenced(writer.uuid, "its experiment was closed, or another writer took it over")
        writer.last_seq, writer.head_hash = commit.advance["new_last_seq"], commit.advance["new_head_hash"]

    async def recover(self, writer: Writer) -> int:
        """After an append with unknown outcome, find out what was committed.

        Returns the number of committed events that `writer` did not know of: the whole batch, or 0. If the server
        could still commit the batch, a new epoch prevents that first. Raises `RecorderFenced`.
        """
        return await recorder_rows.recover(self.database, writer)

    async def times(self, writer: Writer, first: int) -> list[int]:
        """Return the ts of this writer's events from the seq `first` on."""
        return await recorder_rows.times(self.database, writer, first)

    async def touch(self, writer: Writer, **values: Any) -> None:
        """Write a recorder's heartbeat and other columns of its row; with `ended_at`, it ends and its row is sealed.

        Raises `RecorderFenced`.
        """
        await recorder_rows.touch(self.database, writer, **values)

    async def read(
        self, exp_id: str | Experiment, selection: Selection | None = None, **filters: Unpack[Filters]
    ) -> AsyncIterator[Event]:
        """Yield the events of an experiment in replay order, `(ts, recorder, seq)`, in constant memory.

        The selection is given as a `Selection`, or by its filters: `log.read("exp-1", agents=[7], since="10m")`.
        Events committed after the call are not read. Raises `StoreError` for a selection with `context`.
        """
        of = await self._found(exp_id)
        chosen = selection_of(selection, filters)
        if chosen.context:
            raise StoreError("log.read gives single events: leave out context, or ask `Run(...).events(context=...)`.")
        span = await chosen.span(self.database, of)
        read = partial(reading.pages, self.database, of)
        if chosen.last_per is not None:
            whole = replace(span, limit=None)
            for entry in (await last_of_each(read, self.database, of, chosen, whole, chosen.last_per))[: span.limit]:
                yield entry
            return
        async with aclosing(read(chosen, span)) as pages:
            async for page in pages:
                for entry in page:
                    yield entry

    async def tail(
        self,
        exp_id: str | Experiment,
        position: Mapping[int, int] | None = None,
        *,
        poll: float = 0.2,
    ) -> AsyncIterator[Event]:
        """Yield every event once, as recorders commit them; end when the experiment is closed.

        `position` is a tail position `{recorder: seq}`: the events that have been seen already. Within a recorder the
        order is that of seq. `poll` is in seconds.
        """
        of = await self._found(exp_id)
        async for page in tail.tail(self.database, of, dict(position or {}), poll):
            for entry in page:
                yield entry

    async def span(
        self, of: Experiment, since: Point = None, until: Point = None, after: Point = None, limit: int | None = None
    ) -> Span:
        """Return the part of an experiment between points, as `read` takes them. Raises `BadCursor`."""
        return await Selection(since=since, until=until, after=after, limit=limit).span(self.database, of)

    async def as_recorded(self, of: Experiment, selection: Selection) -> Selection:
        """Return the selection with its channel patterns as the brokers of an experiment understand them."""
        return await selection.as_recorded(self.database, of)

    async def channels(self, of: Experiment) -> list[str]:
        """Return the names of all channels of an experiment."""
        return list((await all_names(self.database, of.id, CHANNEL)).values())

    async def agents(self, of: Experiment) -> list[Any]:
        """Return the ids of all agents of an experiment, with their JSON types."""
        return list((await all_names(self.database, of.id, AGENT)).values())

    async def create_experiment(
        self,
        exp_id: str,
        *,
        name: str | None = None,
        tags: Iterable[str] = (),
        meta: Mapping[str, Any] | None = None,
        parent: str | Experiment | None = None,
        at: Point = None,
    ) -> Experiment:
        """Create an open experiment. Raises `ExperimentExists`, and `StoreError` for an invalid name or tag.

        With `parent`, it is a fork of that experiment, for copies of its events before the point `at` (None: all).
        Raises the errors of `messager_store.log.lineage.create_fork` then.
        """
        if parent is not None:
            return await lineage.create_fork(self.database, parent, exp_id, at, name=name, tags=tags, meta=meta)
        made = await lifecycle.create(self.database, exp_id, name=name, tags=tags, meta=dict(meta or {}))
        if made is None:
            raise ExperimentExists(exp_id, "Choose another exp_id.")
        return made

    async def experiment(self, wanted: str) -> Experiment:
        """Return the experiment of this exp_id, name, unique prefix of an exp_id, or `@last`.

        Raises `ExperimentNotFound`, which names similar ones, or `AmbiguousExperiment`.
        """
        return await registry.find(self.database, wanted)

    async def has_experiment(self, exp_id: str) -> bool:
        """Return whether there is an experiment of exactly this exp_id."""
        return await registry.by_exp_id(self.database, exp_id) is not None

    async def experiments(
        self,
        *,
        name: str | None = None,
        tags: Iterable[str] = (),
        since: int | None = None,
        limit: int | None = None,
    ) -> list[Experiment]:
        """Return experiments, oldest first, that match all conditions.

        `name` is a part of their name or exp_id in any case, `tags` are all required, `since` (ns UTC) is the earliest
        time of creation. With `limit`, at most so many: the newest.
        """
        return await registry.every(self.database, name=name, tags=tags, since=since, limit=limit)

    async def tag(self, of: Experiment, add: Iterable[str] = (), remove: Iterable[str] = ()) -> list[str]:
        """Add and remove tags; return the tags that the experiment has then. Raises `StoreError` for an invalid tag."""
        return await lifecycle.retag(self.database, of, add, remove)

    async def recorders(self, of: Experiment | None = None, *, unended: bool = False) -> list[RecorderRow]:
        """Return the recorders of an experiment in order of ordinal, or of all experiments.

        With `unended`, only those without an end.
        """
        return await registry.recorders_of(self.database, None if of is None else of.id, unended=unended)

    async def _found(self, exp_id: str | Experiment) -> Experiment:
        return exp_id if isinstance(exp_id, Experiment) else await self.experiment(exp_id)


class _Opening:
    """The result of `EventLog.open`: await it, or enter it with `async with`."""

    def __init__(self, url: str, create: bool) -> None:
        self._url = url
        self._create = create
        self._log: EventLog | None = None

    def __await__(self) -> Generator[Any, None, EventLog]:
        return self._open().__await__()

    async def __aenter__(self) -> EventLog:
        self._log = await self._open()
        return self._log

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._log is not None:
            await self._log.close()

    async def _open(self) -> EventLog:
        database = Database(self._url)
        await database.open(create=self._create)
        return EventLog(database)
