"""Rows about appending to SQLite: the rate, and the bytes on disk."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path
from typing import Any

from messager_store import EventLog

from . import peers, raw
from .measure import Stage, Values
from .workload import BATCH, WIRE, events, make_store, remove

EVENTS = 50_000
WARM_UP = 10
"""Events before the measurement. They contain every name once."""


class Executemany:
    """Events per second of `EventLog.append` and of `sqlite3` alone with the same rows, in batches of `BATCH`."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._first = events(0, WARM_UP)
        self._batches = [events(WARM_UP + at, BATCH) for at in range(0, EVENTS, BATCH)]

    def ours(self) -> Values:
        return asyncio.run(self._ours())

    async def _ours(self) -> Values:
        path = self.stage.new_path()
        async with EventLog.open(str(path)) as log:
            of = await log.create_experiment("bench")
            writer = await log.register(of, role="tap")
            await log.append(writer, self._first)
            began = time.perf_counter()
            for batch in self._batches:
                await log.append(writer, batch)
            took = time.perf_counter() - began
        remove(path)
        return {"rate": EVENTS / took}

    def theirs(self) -> Values:
        path = self.stage.new_path()
        connection = raw.open_table(path)
        raw.insert(connection, 1, self._first)
        began = time.perf_counter()
        for at, batch in enumerate(self._batches):
            raw.insert(connection, at * BATCH + WARM_UP + 1, batch)
        took = time.perf_counter() - began
        connection.close()
        remove(path)
        return {"rate": EVENTS / took}


class Eventsourcing(Executemany):
    """Events per second of `EventLog.append` and of `insert_events` of the eventsourcing library.

    Each round uses the fastest of its two SQLite recorders and of batches of 500, 1000 and 5000. The library stores
    the same payload bytes under an id and a version, in WAL, synchronous FULL.
    """

    BATCHES = (500, 1000, 5000)

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._sqlite = peers.import_peer("eventsourcing.sqlite")
        stored = peers.import_peer("eventsourcing.persistence").StoredEvent
        name = uuid.UUID(int=1)
        self._stored = [stored(name, version, "bench:Sent", WIRE) for version in range(1, EVENTS + 1)]

    def theirs(self) -> Values:
        kinds = {
            "aggregate": self._sqlite.SQLiteAggregateRecorder,
            "application": self._sqlite.SQLiteApplicationRecorder,
        }
        rates = {f"{name}_{size}": self._rate(kind, size) for name, kind in kinds.items() for size in self.BATCHES}
        return {"rate": max(rates.values()), **rates}

    def _rate(self, kind: Any, size: int) -> float:
        path = self.stage.new_path()
        datastore = self._sqlite.SQLiteDatastore(str(path), pool_size=1, max_overflow=0)
        with datastore.get_connection(commit=True) as connection:
            connection.cursor().execute("PRAGMA synchronous=FULL")
        recorder = kind(datastore)
        recorder.create_table()
        began = time.perf_counter()
        for first in range(0, EVENTS, size):
            recorder.insert_events(self._stored[first : first + size])
        took = time.perf_counter() - began
        datastore.close()
        remove(path)
        return EVENTS / took


class Disk:
    """Bytes on disk per event, including names, index and batches, and bytes of its payload. Nothing is timed."""

    COUNT = 100_000

    def __init__(self, stage: Stage) -> None:
        self._path: Path = stage.new_path()
        asyncio.run(make_store(self._path, "bench", self.COUNT, agents=1000))

    def ours(self) -> Values:
        files = (Path(f"{self._path}{ending}") for ending in ("", "-wal"))
        return {"bytes": sum(file.stat().st_size for file in files if file.exists()) / self.COUNT}

    def theirs(self) -> Values:
        return {"bytes": float(len(WIRE))}
