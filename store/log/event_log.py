"""EventLog: append, read, tail. Only this module appends events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from sqlalchemy import insert, select, true, update

from .. import json_text
from ..db.codes import AGENT, CHANNEL, KINDS, SEQ_BITS
from ..db.database import Database
from ..db.schema import event, experiment, recorder
from ..errors import ExperimentClosed, ExperimentExists, RecorderFenced, StoreError
from ..experiments import lifecycle, registry
from ..experiments.provenance import this_process
from ..experiments.records import Experiment, RecorderRow
from ..experiments.seal import seal_ended
from ..experiments.validation import meta_text
from . import batch, chain, lineage, reading, tail
from .cursor import Point
from .event import Event, Fields
from .last_of_each import last_of_each
from .names import all_names
from .selection import Filters, Selection, selection_of
from .span import Span
from .writer import Writer, new_uuid


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
        again = name is not None
        here = this_process()
        now = time.time_ns()
        name = name or new_uuid()
        values: dict[str, Any] = dict.fromkeys((f"{kind}_count" for kind in KINDS), 0)
        values |= {
            "uuid": name,
            "experiment_id": of.id,
            "epoch": 1,
            "role": role,
            "patterns": json_text.dump(list(patterns)),
            "meta": meta_text(meta or {}),
            "host": here.host,
            "pid": here.pid,
            "boot_id": here.boot_id,
            "started_at": now,
            "heartbeat_at": now,
            "last_seq": 0,
            "head_hash": chain.first_link(name),
            "payload_bytes": 0,
            "worst_unacknowledged": 0,
            "unclean": 0,
            "durability": durability,
            "spool": spool,
            **(row or {}),
        }
        async with self.database.writing() as connection:
            if again:
                await lifecycle.lock(connection, of.id)  # an earlier call may be committed only now
                query = select(recorder).where(recorder.c.uuid == name)
                there = (await connection.execute(query)).one_or_none()
                if there is not None:
                    facts = (there.experiment_id, there.epoch, there.last_seq, there.ended_at)
                    if facts != (of.id, 1, 0, None):
                        raise RecorderFenced(name, "it has recorded already, or has been ended")
                    return Writer(self.database, of, there.id, there.ordinal, name)
            joined = await connection.execute(
                update(experiment)
                .where(experiment.c.id == of.id, experiment.c.status.in_(("open", "importing")))
                .values(recorders=experiment.c.recorders + 1)
            )
            if joined.rowcount != 1:
                raise ExperimentClosed(of.exp_id)
            ordinal = (
                await connection.execute(select(experiment.c.recorders).where(experiment.c.id == of.id))
            ).scalar_one()
            made = await connection.execute(insert(recorder).values(**values, ordinal=ordinal))
            number = made.inserted_primary_key[0]  # type: ignore[index]
        return Writer(self.database, of, number, ordinal, name)

    async def take_over(self, name: str) -> Writer:
        """Return a writer that continues the recorder of this uuid, and fence its earlier writer.

        Raises `RecorderFenced` if there is no such recorder, and `ExperimentClosed`.
        """
        owner = select(recorder.c.experiment_id).where(recorder.c.uuid == name)
        query = select(recorder, experiment.c.exp_id, experiment.c.status).join(experiment)
        async with self.database.writing() as connection:
            await lifecycle.lock(connection, (await connection.execute(owner)).scalar_one_or_none())
            row = (await connection.execute(query.where(recorder.c.uuid == name).with_for_update())).one_or_none()
            if row is None:
                raise RecorderFenced(name, f"it is not in {self.database.location}: its experiment was removed")
            if row.epoch < 0:
                raise RecorderFenced(
                    name, "it was gathered from another store, and only `messager gather` appends to it"
                )
            if row.status != "open":
                raise ExperimentClosed(row.exp_id)
            await connection.execute(
                update(recorder).where(recorder.c.id == row.id).values(epoch=row.epoch + 1, ended_at=None, seal=None)
            )
        of = await registry.by_exp_id(self.database, row.exp_id)
        if of is None:
            raise RecorderFenced(name, f"its experiment was removed from {self.database.location}")
        position = (row.epoch + 1, row.last_seq, row.head_hash)
        return Writer(self.database, of, row.id, row.ordinal, name, *position)

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
        query = select(recorder.c.last_seq, recorder.c.head_hash, recorder.c.epoch, recorder.c.ended_at).where(
            recorder.c.id == writer.id
        )
        if self.database.dialect.commits_late:
            await self._outdate(writer)
        async with self.database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None or row.epoch != writer.epoch or row.ended_at is not None:
            raise RecorderFenced(writer.uuid, "its experiment was closed or removed, or another writer took it over")
        news: int = row.last_seq - writer.last_seq
        if news < 0:
            raise RecorderFenced(
                writer.uuid,
                f"committed events are missing in {self.database.location}: it is an older copy or another store",
            )
        writer.last_seq, writer.head_hash = row.last_seq, row.head_hash
        return news

    async def _outdate(self, writer: Writer) -> None:
        """Wait for this writer's transactions, and raise the epoch so that later ones are refused."""
        mine = recorder.c.id == writer.id, recorder.c.epoch == writer.epoch, recorder.c.ended_at.is_(None)
        async with self.database.writing() as connection:
            raised = await connection.execute(update(recorder).where(*mine).values(epoch=writer.epoch + 1))
        writer.epoch += raised.rowcount

    async def times(self, writer: Writer, first: int) -> list[int]:
        """Return the ts of this writer's events from the seq `first` on."""
        base = writer.id << SEQ_BITS
        query = select(event.c.ts).where(event.c.id >= base | first, event.c.id <= base | writer.last_seq)
        async with self.database.reading() as connection:
            return list((await connection.execute(query.order_by(event.c.id))).scalars())

    async def touch(self, writer: Writer, **values: Any) -> None:
        """Write a recorder's heartbeat and other columns of its row; with `ended_at`, it ends and its row is sealed.

        Raises `RecorderFenced`.
        """
        mine = recorder.c.id == writer.id, recorder.c.uuid == writer.uuid, recorder.c.epoch == writer.epoch
        ends = values.get("ended_at") is not None
        async with self.database.writing() as connection:
            changed = await connection.execute(
                update(recorder)
                .where(*mine, true() if ends else recorder.c.ended_at.is_(None))
                .values({"heartbeat_at": time.time_ns(), **values})
            )
            if changed.rowcount != 1:
                raise RecorderFenced(writer.uuid, "its experiment was closed, or another writer took it over")
            if ends:
                await seal_ended(connection, recorder.c.id == writer.id)

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
