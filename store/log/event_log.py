"""EventLog: append, read, tail. Only this module appends events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from sqlalchemy import insert, select, update

from .. import json_text
from ..db.database import Database
from ..db.schema import KINDS, SEQ_BITS, event, experiment, recorder
from ..errors import ExperimentClosed, RecorderFenced
from ..experiments import lifecycle, registry
from ..experiments.provenance import this_process
from ..experiments.records import Experiment
from . import batch, chain, reading, tail
from .cursor import Point
from .event import Event, Fields
from .selection import Selection
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
            "meta": json_text.dump(dict(meta or {})),
            "host": here.host,
            "pid": here.pid,
            "boot_id": here.boot_id,
            "started_at": now,
            "heartbeat_at": now,
            "last_seq": 0,
            "head_hash": chain.first_link(name),
            "payload_bytes": 0,
            "worst_unacknowledged": 0,
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
                raise RecorderFenced(name, f"it is not in {self.location}: its experiment was removed")
            if row.status != "open":
                raise ExperimentClosed(row.exp_id)
            await connection.execute(
                update(recorder).where(recorder.c.id == row.id).values(epoch=row.epoch + 1, ended_at=None)
            )
        of = await registry.by_exp_id(self.database, row.exp_id)
        if of is None:
            raise RecorderFenced(name, f"its experiment was removed from {self.location}")
        return Writer(self.database, of, row.id, row.ordinal, name, row.epoch + 1, row.last_seq, row.head_hash)

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
                writer.uuid, f"committed events are missing in {self.location}: it is an older copy or another store"
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
        """Write a recorder's heartbeat and other columns of its row. Raises `RecorderFenced`."""
        async with self.database.writing() as connection:
            changed = await connection.execute(
                update(recorder)
                .where(recorder.c.id == writer.id, recorder.c.uuid == writer.uuid, recorder.c.epoch == writer.epoch)
                .values({"heartbeat_at": time.time_ns(), **values})
            )
            if changed.rowcount != 1:
                raise RecorderFenced(writer.uuid, "its experiment was closed, or another writer took it over")

    async def read(
        self,
        exp_id: str | Experiment,
        kinds: Iterable[str] | str | None = None,
        channels: Iterable[str] | str | None = None,
        agents: Iterable[Any] | int | str | None = None,
        since: Point = None,
        until: Point = None,
        after: Point = None,
        limit: int | None = None,
        *,
        exclude: Iterable[str] | str | None = None,
        from_ids: Iterable[Any] | int | str | None = None,
        to_ids: Iterable[Any] | int | str | None = None,
    ) -> AsyncIterator[Event]:
        """Yield the events of an experiment in replay order, `(ts, recorder, seq)`, in constant memory.

        The conditions are those of `Selection`. `since` (included), `until` (excluded) and `after` (like `since`, but
        excluded) are a `Cursor`, ns UTC, a `datetime`, or text (see `messager_store.log.cursor`). Events committed
        after the call are not read.
        """
        of = await self._found(exp_id)
        chosen = Selection(kinds, channels, exclude, agents, from_ids, to_ids)
        span = await reading.span_of(self.database, of, since, until, after, limit)
        async for page in reading.pages(self.database, of, chosen, span):
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

    async def experiment(self, wanted: str) -> Experiment:
        """Return the experiment of this exp_id, unique prefix, name, or `@last`. Raises `ExperimentNotFound`."""
        return await registry.find(self.database, wanted)

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
