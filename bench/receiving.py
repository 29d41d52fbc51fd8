"""Rows about receiving: a listening and recording Messager."""

from __future__ import annotations

import asyncio
import time

from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from messager import Messager, RedisConfig
from messager_store import EventLog, Recorder

from .measure import Stage, Values
from .workload import WIRE, channel, remove

MESSAGES = 50_000
"""About 15 MB, which Redis keeps for a subscriber."""
POLL_SECONDS = 0.005
"""Time between two calls of `fetch_messages`."""


class Receive:
    """Messages per second of a Messager with a Recorder, read by `fetch_messages`, and of redis-py's `listen`.

    All messages are published before the measurement and wait in Redis, so that no publisher runs meanwhile.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._port = stage.server.port

    def ours(self) -> Values:
        return asyncio.run(self._ours())

    def theirs(self) -> Values:
        return asyncio.run(self._theirs())

    async def _ours(self) -> Values:
        path = self.stage.new_path()
        config = RedisConfig(server="127.0.0.1", port=self._port)
        async with EventLog.open(str(path)) as log, Recorder(log, "bench") as recorder:
            async with Messager(config, "bench") as messager:
                messager.add_log_hook(recorder)
                await messager.subscribe_and_start_listening(["exps:bench:*"])
                self._publish()
                received = 0
                began = time.perf_counter()
                while received < MESSAGES:
                    received += len(await messager.fetch_messages())
                    await asyncio.sleep(POLL_SECONDS)
                took = time.perf_counter() - began
                await recorder.flush()
                flushed = time.perf_counter() - began - took
                if recorder.accepted < MESSAGES or recorder.dropped:
                    raise RuntimeError(f"{recorder.accepted} of {MESSAGES} receptions were recorded")
        remove(path)
        return {"rate": MESSAGES / took, "flush_s": flushed}

    async def _theirs(self) -> Values:
        client = Redis(port=self._port)
        pubsub = client.pubsub()
        await pubsub.psubscribe("exps:bench:*")
        await pubsub.get_message(timeout=5)
        self._publish()
        received = 0
        began = time.perf_counter()
        async for message in pubsub.listen():
            if message["type"] == "pmessage":
                received += 1
                if received == MESSAGES:
                    break
        took = time.perf_counter() - began
        await pubsub.aclose()  # type: ignore[no-untyped-call]
        await client.aclose()
        return {"rate": MESSAGES / took}

    def _publish(self) -> None:
        """Publish all messages, blocking the event loop."""
        with BlockingRedis(port=self._port) as client:
            for first in range(0, MESSAGES, 1000):
                pipeline = client.pipeline(transaction=False)
                for at in range(first, first + 1000):
                    pipeline.publish(channel(at % 10), WIRE)
                pipeline.execute()
