"""Rows about reading a recording in replay order."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

from messager_store import EventLog

from . import peers, raw
from .measure import Stage, Values
from .workload import BATCH, batches, make_store

EVENTS = 100_000


class _SharedStore:
    """A store with an experiment of `count` events, shared by all rows with this count."""

    count = EVENTS

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        name = f"recording of {self.count}"
        if name not in stage.shared:
            stage.shared[name] = stage.new_path()
            asyncio.run(make_store(stage.shared[name], "bench", self.count))
        self._path: Path = stage.shared[name]

    def ours(self) -> Values:
        """Return events per second of `async for event in log.read(...)`."""
        return asyncio.run(self._ours())

    async def _ours(self) -> Values:
        async with EventLog.open(str(self._path)) as log:
            count = 0
            began = time.perf_counter()
            async for _ in log.read("bench"):
                count += 1
            took = time.perf_counter() - began
        return self._rate(count, took)

    def _rate(self, count: int, took: float) -> Values:
        if count != self.count:
            raise RuntimeError(f"{count} of {self.count} were read")
        return {"rate": count / took}


class Cursor(_SharedStore):
    """Events per second of `log.read`, and rows per second of a `sqlite3` cursor on the same file."""

    def theirs(self) -> Values:
        connection = sqlite3.connect(self._path)
        count = 0
        began = time.perf_counter()
        cursor = connection.execute(f"SELECT {raw.COLUMNS} FROM event WHERE experiment_id = 1 ORDER BY ts, id")
        while rows := cursor.fetchmany(BATCH):
            for _ in rows:
                count += 1
        took = time.perf_counter() - began
        connection.close()
        return self._rate(count, took)


class Rosbags(_SharedStore):
    """Messages per second of `log.read`, and of `rosbags` on its SQLite bag of the same messages, not deserialised."""

    def __init__(self, stage: Stage) -> None:
        rosbag2 = peers.import_peer("rosbags.rosbag2")
        typesys = peers.import_peer("rosbags.typesys")
        super().__init__(stage)
        self._reader = rosbag2.Reader
        self._types = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
        name = f"bag of {self.count}"
        if name not in stage.shared:
            stage.shared[name] = stage.new_path("-bag")
            self._write(rosbag2, stage.shared[name])
        self._bag: Path = stage.shared[name]

    def _write(self, rosbag2: Any, bag: Path) -> None:
        text = self._types.types["std_msgs/msg/String"]
        with rosbag2.Writer(bag, version=9, storage_plugin=rosbag2.StoragePlugin.SQLITE3) as writer:
            topics = {}
            for batch in batches(self.count):
                for entry in batch:
                    if entry.channel not in topics:
                        topic = "/" + str(entry.channel).replace(":", "/")
                        topics[entry.channel] = writer.add_connection(topic, text.__msgtype__, typestore=self._types)
                    message = self._types.serialize_cdr(text(data=entry.payload.decode()), text.__msgtype__)
                    writer.write(topics[entry.channel], entry.ts, message)

    def theirs(self) -> Values:
        with self._reader(self._bag) as reader:
            count = 0
            began = time.perf_counter()
            for _ in reader.messages():
                count += 1
            took = time.perf_counter() - began
        return self._rate(count, took)


class RosbagsText(Rosbags):
    """Messages per second, with the text of each: `log.read`, and `rosbags` with deserialised messages."""

    async def _ours(self) -> Values:
        async with EventLog.open(str(self._path)) as log:
            count = length = 0
            began = time.perf_counter()
            async for event in log.read("bench"):
                length += len(event.payload.decode())
                count += 1
            took = time.perf_counter() - began
        return self._rate(count, took)

    def theirs(self) -> Values:
        with self._reader(self._bag) as reader:
            count = length = 0
            began = time.perf_counter()
            for connection, _, data in reader.messages():
                length += len(self._types.deserialize_cdr(data, connection.msgtype).data)
                count += 1
            took = time.perf_counter() - began
        return self._rate(count, took)
