"""Streams of Redis from outside: recorded by another process, and put back entry by entry."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from messager import open_broker
from messager.testing import RedisServer, redis_server
from messager_store import EventLog, Recorder, Replay
from messager_store.log.event import Event
from messager_store.recording.tap import Tap

WRITER = """
import sys, redis
client = redis.Redis.from_url(sys.argv[1])
for number in range(200):
    client.xadd("x:one", {"data": b"\\xff\\x00 %d" % number})
    client.xadd("x:two", {"b": "2", "a": number, "": "", b"\\xfe": b"\\xfd\\r\\n"})
    if number % 3 == 0:
        client.xadd("x:three", {"text": "caf\\u00e9 %d" % number, "kind": "{}"})
    client.execute_command("XADD", "x:one", "*", "a", "1", "a", "2")
    client.publish("news", number)
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    with redis_server() as here, redis_server() as there:
        yield here, there


@pytest.fixture
def here(servers: tuple[RedisServer, RedisServer]) -> RedisServer:
    client(servers[0]).flushall()
    return servers[0]


@pytest.fixture
def there(servers: tuple[RedisServer, RedisServer]) -> RedisServer:
    client(servers[1]).flushall()
    return servers[1]


def client(server: RedisServer) -> redis_py.Redis:
    return redis_py.Redis.from_url(server.url, protocol=2)


def entries(server: RedisServer) -> dict[bytes, list[Any]]:
    """Return the fields of all entries of all streams, read without the tested code."""
    asking = client(server)
    asking.set_response_callback("XRANGE", lambda reply, **_: [words for _, words in reply])
    return {key: asking.execute_command("XRANGE", key, "-", "+") for key in asking.scan_iter(_type="stream")}


@contextlib.asynccontextmanager
async def recording(
    store: Path, server: RedisServer, patterns: Any = (), streams: Any = ("x:*",), **options: Any
) -> AsyncIterator[Tap]:
    """Context with an active tap; it has ended, and its events are in the store, behind it."""
    active = asyncio.Event()
    async with EventLog.open(str(store)) as log, contextlib.AsyncExitStack() as stack:
        recorder = await stack.enter_async_context(Recorder(log, "e1", role="tap", patterns=[*patterns, *streams]))
        broker = open_broker(server.url)
        stack.push_async_callback(broker.close)
        tap = Tap(broker, recorder, patterns, streams=streams, active=active.set, **options)
        running = asyncio.create_task(tap.run())
        started = asyncio.create_task(active.wait())
        await asyncio.wait([running, started], return_when=asyncio.FIRST_COMPLETED)
        try:
            if active.is_set():
                yield tap
            else:
                await running
        finally:
            running.cancel()
            await asyncio.gather(running, started, return_exceptions=True)


async def events(store: Path, *kinds: str) -> list[Event]:
    async with EventLog.open(str(store)) as log:
        return [entry async for entry in log.read("e1", kinds=kinds or None)]


async def replayed(store: Path, server: RedisServer, **options: Any) -> Any:
    async with EventLog.open(str(store)) as log:
        target = open_broker(server.url)
        try:
            return await Replay(log, "e1", target, speed="max", **options).run()
        finally:
            await target.close()


async def test_streams_of_another_process_come_back_entry_by_entry(
    tmp_path: Path, here: RedisServer, there: RedisServer
) -> None:
    store = tmp_path / "log.db"
    async with recording(store, here, ["news"]) as tap:
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", WRITER, here.url], check=True)
    assert (tap.messages, tap.gaps) == (200 * 4 + 67, 0)
    report = await replayed(store, there)
    assert (report.published, report.failed, report.no_subscriber) == (867, 0, 200)
    assert entries(there) == entries(here)
    assert len(entries(there)[b"x:one"]) == 400
