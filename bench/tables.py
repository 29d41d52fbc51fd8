"""Rows about tables: an experiment with a projection as record batches of pyarrow, with names, texts and receptions.

`import pyarrow` is not measured.
"""

from __future__ import annotations

import asyncio
import time

from messager_store import EventLog
from messager_store.projection.query import brought_up
from messager_store.projection.tables import batches

from . import reading
from .measure import Stage, Values

EVENTS = 1_000_000


class _Table(reading._SharedStore):
    """Events per second of all columns of docs/analysis.md, batch by batch."""

    count = EVENTS

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        asyncio.run(self._project())

    async def _project(self) -> None:
        async with EventLog.open(str(self._path)) as log:
            await brought_up(log, await log.experiment("bench"))

    async def _ours(self) -> Values:
        async with EventLog.open(str(self._path)) as log:
            count = 0
            began = time.perf_counter()
            async for batch in batches(log, await log.experiment("bench"), events=True):
                count += batch.num_rows
            took = time.perf_counter() - began
        return self._rate(count, took)


class Cursor(_Table, reading.Cursor):
    """A table, and rows per second of a `sqlite3` cursor over the event table."""


class Rosbags(_Table, reading.Rosbags):
    """A table, and raw messages per second of `rosbags`."""


class RosbagsText(_Table, reading.RosbagsText):
    """A table, and deserialised messages per second of `rosbags`."""
