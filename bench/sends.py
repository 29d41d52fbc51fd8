"""Rows about sending over Redis."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

from messager import Messager, RedisConfig
from messager_store import EventLog, Recorder

from . import peers, raw
from .measure import Stage, Values
from .workload import BATCH, PAYLOAD, channel, events, remove

IN_FLIGHT = 1000
TOGETHER = 20_000
ALONE = 5000
WARM_UP = 200
"""Sends before the measurement."""
CHANNEL = channel(13)


async def _send(messager: Any, channel: str, count: int, in_flight: int) -> None:
    """Send `count` messages, `in_flight` of them at the same time."""
    send = messager.send_message
    if in_flight == 1:
        for _ in range(count):
            await send(channel, PAYLOAD, 12, 13)
        return
    for _ in range(0, count, in_flight):
        await asyncio.gather(*(send(channel, PAYLOAD, 12, 13) for _ in range(in_flight)))


async def timed(messager: Any, recorder: Recorder | None, count: int, in_flight: int, channel: str = CHANNEL) -> Values:
    """Return sends per second, the time (s) of committing the rest afterwards, and CPU (us) per send with that."""
    await _send(messager, channel, max(WARM_UP, in_flight), in_flight)
    if recorder is not None:
        await recorder.flush()
    cpu, began = time.process_time(), time.perf_counter()
    await _send(messager, channel, count, in_flight)
    sent = time.perf_counter()
    if recorder is not None:
        await recorder.flush()
    done, used = time.perf_counter(), time.process_time() - cpu
    if recorder is not None and recorder.dropped:
        raise RuntimeError(f"{recorder.dropped} of {count} sends were not recorded")
    return {"rate": count / (sent - began), "flush_s": done - sent, "cpu_us": used / count * 1e6}


class _Sends:
    """Sends through our Messager, with and without recording."""

    count, in_flight = TOGETHER, IN_FLIGHT

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.server.url  # noqa: B018  # starts the server before the measurement

    def recorded(self, durability: Literal["buffered", "strict"] = "buffered") -> Values:
        """Return figures with a Recorder and a new store."""
        return asyncio.run(self._recorded(durability))

    def unrecorded(self) -> Values:
        """Return figures without recording."""
        return asyncio.run(self._unrecorded())

    async def _recorded(self, durability: Literal["buffered", "strict"]) -> Values:
        path = self.stage.new_path()
        async with EventLog.open(str(path)) as log, Recorder(log, "bench", durability=durability) as recorder:
            async with Messager(self._config(), "bench") as messager:
                messager.add_log_hook(recorder)
                found = await timed(messager, recorder, self.count, self.in_flight)
        remove(path)
        return found

    async def _unrecorded(self) -> Values:
        async with Messager(self._config(), "bench") as messager:
            return await timed(messager, None, self.count, self.in_flight)

    def _config(self) -> RedisConfig:
        return RedisConfig(server="127.0.0.1", port=self.stage.server.port)


class Together(_Sends):
    """Sends per second, `IN_FLIGHT` at a time: recording on, and off."""

    def ours(self) -> Values:
        return self.recorded()

    def theirs(self) -> Values:
        return self.unrecorded()


class Alone(Together):
    """Sends per second, one after another: recording on, and off."""

    count, in_flight = ALONE, 1


class Strict(_Sends):
    """Sends per second, `IN_FLIGHT` at a time: strict, and buffered."""

    def ours(self) -> Values:
        return self.recorded("strict")

    def theirs(self) -> Values:
        return self.recorded()


class TogetherAgainstPeer(_Sends):
    """Sends per second, `IN_FLIGHT` at a time: ours with recording on, and AgentSociety's."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._peer = peers.agentsociety()

    def ours(self) -> Values:
        return self.recorded()

    def theirs(self) -> Values:
        return asyncio.run(self._theirs())

    async def _theirs(self) -> Values:
        config = self._peer.RedisConfig(server="127.0.0.1", port=self.stage.server.port)
        messager = self._peer.Messager(config, "bench")
        await messager.init()
        try:
            return await timed(messager, None, self.count, self.in_flight)
        finally:
            await messager.close()


class AloneAgainstPeer(TogetherAgainstPeer):
    """Sends per second, one after another: ours with recording on, and AgentSociety's."""

    count, in_flight = ALONE, 1


class RecordingCPU(_Sends):
    """CPU (us) of the process: the part that recording adds to a send, and one row of `sqlite3` executemany.

    With recording, a send includes its commit; a row includes making its tuple.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._turn = 0

    def ours(self) -> Values:
        self._turn += 1
        if self._turn % 2:
            on, off = self.recorded(), self.unrecorded()
        else:
            off, on = self.unrecorded(), self.recorded()
        return {"cpu": on["cpu_us"] - off["cpu_us"], "on_us": on["cpu_us"], "off_us": off["cpu_us"]}

    def theirs(self) -> Values:
        path = self.stage.new_path()
        connection = raw.open_table(path)
        given = events(0, self.count)
        cpu = time.process_time()
        for first in range(0, self.count, BATCH):
            raw.insert(connection, first + 1, given[first : first + BATCH])
        used = time.process_time() - cpu
        connection.close()
        remove(path)
        return {"cpu": used / self.count * 1e6}
