"""Rows about PostgreSQL: appending compared with COPY and eventsourcing, and many recorders over a slow network."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from messager_store import EventLog, NewEvent
from messager_store.db.schema import event
from messager_store.testing import SUPERUSER, Databases, postgres_server

from . import peers, raw
from .latency import delayed
from .measure import Stage, Values
from .workload import BATCH, WIRE, events

EVENTS = 50_000
WARM_UP = 10
"""Events before the measurement. They contain every name once."""
COLUMNS = list(event.c.keys())


class _Server:
    """A separate PostgreSQL with fsync, and a new database for each side of each round."""

    def __init__(self, stage: Stage) -> None:
        server = stage.shared.get("postgres")
        if server is None:
            server = stage.shared["postgres"] = stage.enter(postgres_server(durable=True))
        self._server = server
        self._databases = Databases(server.url("postgres"))

    def create(self) -> str:
        """Create an empty database and return its URL."""
        return self._databases.create()

    def drop(self, url: str) -> None:
        """Remove a database."""
        self._databases.drop(url)


class Copy(_Server):
    """Events per second of `EventLog.append` and of asyncpg's COPY of the same rows, in batches of `BATCH`."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._first = events(0, WARM_UP)
        self._batches = [events(WARM_UP + at, BATCH) for at in range(0, EVENTS, BATCH)]

    def ours(self) -> Values:
        url = self.create()
        try:
            return asyncio.run(self._ours(url))
        finally:
            self.drop(url)

    def theirs(self) -> Values:
        url = self.create()
        try:
            return asyncio.run(self._theirs(url))
        finally:
            self.drop(url)

    async def _ours(self, url: str) -> Values:
        async with EventLog.open(url) as log:
            of = await log.create_experiment("bench")
            writer = await log.register(of, role="tap")
            await log.append(writer, self._first)
            began = time.perf_counter()
            for batch in self._batches:
                await log.append(writer, batch)
            took = time.perf_counter() - began
            async with log.database.reading() as connection:
                size = await log.database.dialect.size(connection)
        return {"rate": EVENTS / took, "bytes": size / (EVENTS + WARM_UP)}

    async def _theirs(self, url: str) -> Values:
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            for statement in _tables():
                await connection.execute(statement)
            await _copy(connection, 1, self._first)
            began = time.perf_counter()
            for at, batch in enumerate(self._batches):
                await _copy(connection, at * BATCH + WARM_UP + 1, batch)
            took = time.perf_counter() - began
        finally:
            await connection.close()
        return {"rate": EVENTS / took}


class Eventsourcing(Copy):
    """Events per second of `EventLog.append` and of `insert_events` of the eventsourcing library.

    Each round uses the fastest of its two PostgreSQL recorders and of batches of 500, 1000 and 5000.
    """

    BATCHES = (500, 1000, 5000)

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._postgres = peers.import_peer("eventsourcing.postgres")
        stored = peers.import_peer("eventsourcing.persistence").StoredEvent
        name = uuid.UUID(int=1)
        self._stored = [stored(name, version, "bench:Sent", WIRE) for version in range(1, EVENTS + 1)]

    def theirs(self) -> Values:
        kinds = {
            "aggregate": self._postgres.PostgresAggregateRecorder,
            "application": self._postgres.PostgresApplicationRecorder,
        }
        rates = {f"{name}_{size}": self._rate(kind, size) for name, kind in kinds.items() for size in self.BATCHES}
        return {"rate": max(rates.values()), **rates}

    def _rate(self, kind: Any, size: int) -> float:
        url = self.create()
        parts = urlsplit(url)
        datastore = self._postgres.PostgresDatastore(
            parts.path.strip("/"), "127.0.0.1", str(parts.port), SUPERUSER, "", lock_timeout=5
        )
        try:
            recorder = kind(datastore)
            recorder.create_table()
            began = time.perf_counter()
            for first in range(0, EVENTS, size):
                recorder.insert_events(self._stored[first : first + size])
            return EVENTS / (time.perf_counter() - began)
        finally:
            datastore.close()
            self.drop(url)


class Recorders(_Server):
    """Events per second of 16 recorders at once, and of one; 20 events a batch, 1 ms added to every round trip."""

    MANY, SIZE, BATCHES, MILLISECONDS = 16, 20, 100, 1.0

    def ours(self) -> Values:
        return self._rate(self.MANY)

    def theirs(self) -> Values:
        return self._rate(1)

    def _rate(self, recorders: int) -> Values:
        url = self.create()
        try:
            parts = urlsplit(url)
            assert parts.port is not None
            with delayed("127.0.0.1", parts.port, self.MILLISECONDS) as port:
                through = parts._replace(netloc=f"{SUPERUSER}@127.0.0.1:{port}").geturl()
                return asyncio.run(self._timed(through, recorders))
        finally:
            self.drop(url)

    async def _timed(self, url: str, recorders: int) -> Values:
        async with EventLog.open(url) as log:
            of = await log.create_experiment("bench")
            writers = [await log.register(of, role="tap") for _ in range(recorders)]
            await asyncio.gather(*(log.append(writer, events(0, WARM_UP)) for writer in writers))
            batches = [events(WARM_UP + at * self.SIZE, self.SIZE) for at in range(self.BATCHES)]

            async def record(writer: Any) -> None:
                for batch in batches:
                    await log.append(writer, batch)

            began = time.perf_counter()
            await asyncio.gather(*map(record, writers))
            took = time.perf_counter() - began
        return {"rate": recorders * self.BATCHES * self.SIZE / took}


def _tables() -> list[str]:
    """Return the statements that create the event table with its index."""
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.schema import CreateIndex, CreateTable

    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    indexes = [str(CreateIndex(index).compile(dialect=dialect)) for index in event.indexes]
    return [str(CreateTable(event).compile(dialect=dialect)), *indexes]


async def _copy(connection: Any, first_seq: int, batch: Sequence[NewEvent]) -> None:
    """Copy one batch in one transaction. Includes making the row tuples."""
    rows = raw.rows(first_seq, batch)
    async with connection.transaction():
        await connection.copy_records_to_table(event.name, records=rows, columns=COLUMNS)
