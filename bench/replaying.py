"""Rows about replaying: the rate at full speed, and the lag at the recorded pace."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from messager import PublishError, RedisBroker
from messager_store import EventLog, Replay

from .measure import Stage, Values
from .subscriber import Subscriber
from .workload import STEP, WIRE, channel, events, make_store

EVENTS = 50_000
PIPELINE = 1000
PACED = 10_000
"""Messages at the recorded pace, one per `STEP`: 10 s."""


class FullSpeed:
    """Messages per second until a redis-py subscriber has all: a replay from SQLite, and pipelines from memory.

    The subscriber is a separate process, as in real use.
    """

    def __init__(self, stage: Stage) -> None:
        self._server = stage.server
        self._path = stage.new_path()
        asyncio.run(make_store(self._path, "bench", EVENTS))
        self._messages = [(channel(at % 10), WIRE) for at in range(EVENTS)]

    def ours(self) -> Values:
        return asyncio.run(self._ours())

    def theirs(self) -> Values:
        return asyncio.run(self._theirs())

    async def _ours(self) -> Values:
        broker = RedisBroker.from_url(self._server.url)
        async with EventLog.open(str(self._path)) as log:
            async with Subscriber(self._server.port, "exps:bench:*", EVENTS) as subscriber:
                began = time.perf_counter()
                report = await Replay(log, "bench", broker, speed="max").run()
                published = time.perf_counter() - began
                await subscriber.done()
                took = time.perf_counter() - began
        await broker.close()
        return {"rate": EVENTS / took, "publish_s": published, "held_back_s": report.held_back_s}

    async def _theirs(self) -> Values:
        client = Redis(port=self._server.port)
        async with Subscriber(self._server.port, "exps:bench:*", EVENTS) as subscriber:
            began = time.perf_counter()
            for first in range(0, EVENTS, PIPELINE):
                pipeline = client.pipeline(transaction=False)
                for message in self._messages[first : first + PIPELINE]:
                    pipeline.publish(*message)
                await pipeline.execute()
            published = time.perf_counter() - began
            await subscriber.done()
            took = time.perf_counter() - began
        await client.aclose()
        return {"rate": EVENTS / took, "publish_s": published}


class _TimedBroker(RedisBroker):
    """Records the time at which each message was published, monotonic ns."""

    times: list[int]

    def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> asyncio.Future[list[int | PublishError | None]]:
        self.times += [time.monotonic_ns()] * len(messages)
        return super().publish(messages)


class Pace:
    """Lag (ms) of `PACED` messages at the recorded pace, one per millisecond: a replay, and one sleep per gap.

    The due time of a message is relative to the first message. Our p99 comes from the report of the replay, which uses
    the replay's clock. Drift is the absolute difference between the mean lags of the last and the first tenth.
    """

    def __init__(self, stage: Stage) -> None:
        self._server = stage.server
        self._path = stage.new_path()
        asyncio.run(make_store(self._path, "bench", PACED))

    def ours(self) -> Values:
        return asyncio.run(self._ours())

    def theirs(self) -> Values:
        return asyncio.run(self._theirs())

    async def _broker(self) -> _TimedBroker:
        broker: Any = _TimedBroker.from_url(self._server.url)
        assert isinstance(broker, _TimedBroker)
        broker.times = []
        await broker.connect()
        return broker

    async def _ours(self) -> Values:
        broker = await self._broker()
        async with EventLog.open(str(self._path)) as log:
            report = await Replay(log, "bench", broker).run()
        await broker.close()
        p99 = report.lag.percentile(0.99)
        assert p99 is not None
        noted = _lag(broker.times)
        return {**noted, "p99": max(p99 / 1e6, 0.001), "noted_p99": noted["p99"], "max": report.lag.max / 1e6}

    async def _theirs(self) -> Values:
        broker = await self._broker()
        previous = None
        for entry in events(0, PACED):
            if previous is not None:
                await asyncio.sleep((entry.ts - previous) / 1e9)
            previous = entry.ts
            assert entry.channel is not None
            await broker.publish([(entry.channel.encode(), entry.payload)])
        await broker.close()
        return _lag(broker.times)


def _lag(times: Sequence[int]) -> dict[str, float]:
    """Return p99, maximum and drift of the lags (ms), relative to the first message."""
    if len(times) != PACED:
        raise RuntimeError(f"{len(times)} of {PACED} messages were published")
    lags = [(at - times[0] - number * STEP) / 1e6 for number, at in enumerate(times)]
    tenth = PACED // 10
    drift = statistics.fmean(lags[-tenth:]) - statistics.fmean(lags[:tenth])
    ordered = sorted(lags)
    return {"p99": ordered[PACED * 99 // 100], "drift": abs(drift), "max": ordered[-1]}
