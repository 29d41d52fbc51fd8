"""Streams of Redis from outside: recorded by another process, and put back entry by entry."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from messager import MemoryBroker, open_broker
from messager.errors import BrokerUnavailable
from messager.testing import RedisServer, redis_server
from messager_store import Event, EventLog, Fork, LiveReplay, NewEvent, Recorder, Replay
from messager_store.errors import ReplayRefused
from messager_store.recording.tap import Tap
from tests.support import messager, until
from tests.support.fake_redis import FakeRedis, bulk
from tests.support.logs import filled

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


async def test_streams_that_appear_later_are_read_whole(tmp_path: Path, here: RedisServer) -> None:
    store, asking = tmp_path / "log.db", client(here)
    asking.xadd("x:old", {"data": "before"})
    async with recording(store, here) as tap:
        for number in range(3):
            asking.xadd(f"x:{number}", {"data": "first"})
            asking.xadd("y:other", {"data": "not recorded"})
        await until(lambda: tap.messages == 3)
        asking.xadd("x:old", {"data": "second"})
        asking.xadd("x:late", {"data": "at the end"})
    logged = await events(store)
    found = [(one.kind, one.carrier, one.channel, one.payload) for one in logged]
    assert sorted(found) == [
        ("received", "stream", "x:0", b"first"),
        ("received", "stream", "x:1", b"first"),
        ("received", "stream", "x:2", b"first"),
        ("received", "stream", "x:late", b"at the end"),
        ("received", "stream", "x:old", b"second"),
    ]
    ids = {entry_id.decode() for key in asking.scan_iter("x:*") for entry_id, _ in asking.xrange(key)}
    assert all(one.meta == {"id": one.meta["id"], "field": "data"} and one.meta["id"] in ids for one in logged)


async def test_from_start_reads_what_is_there_in_the_order_in_which_it_was_added(
    tmp_path: Path, here: RedisServer
) -> None:
    asking = client(here)
    for number in range(30):
        asking.xadd(f"x:{number % 2}", {"n": number}, id=f"{number + 1}-0")
    asking.xtrim("x:0", maxlen=10, approximate=False)
    async with recording(tmp_path / "log.db", here, from_start=True) as tap:
        await until(lambda: tap.messages == 25)
    logged = await events(tmp_path / "log.db")
    assert [int(one.payload) for one in logged if one.channel == "x:0"] == list(range(10, 30, 2))
    assert [int(one.payload) for one in logged][:10] == sorted(int(one.payload) for one in logged[:10])
    assert {one.kind for one in logged} == {"received"}  # what was trimmed before is no gap


async def test_entries_that_were_removed_before_they_were_read_are_counted(tmp_path: Path, here: RedisServer) -> None:
    asking, told = client(here), list[str]()
    async with recording(tmp_path / "log.db", here, notice=told.append) as tap:
        with asking.pipeline(transaction=True) as together:
            for number in range(50):
                together.xadd("x:queue", {"n": number}, maxlen=7, approximate=False)
            together.execute()
        await until(lambda: tap.gaps == 1)
    gaps = [one.meta for one in await events(tmp_path / "log.db", "gap")]
    assert [(gap["count"], gap["reason"]) for gap in gaps] == [
        (43, "entries of 'x:queue': they were removed before they were read")
    ]
    assert tap.messages == 7
    assert [text for text in told if "use the adapter" in text or "adapter of its framework" in text] == told[-1:]


async def test_a_stream_that_came_and_went_between_two_looks_leaves_a_gap(tmp_path: Path, here: RedisServer) -> None:
    asking = client(here)
    async with recording(tmp_path / "log.db", here) as tap:
        with asking.pipeline(transaction=True) as together:
            together.xadd("x:short", {"n": 1})
            together.delete("x:short")
            together.execute()
        await until(lambda: tap.gaps == 1)
    assert [one.meta["count"] for one in await events(tmp_path / "log.db")] == [None]


async def test_deleted_streams_leave_no_gap_if_all_of_them_was_read(tmp_path: Path, here: RedisServer) -> None:
    asking = client(here)
    asking.xadd("x:again", {"n": 0})
    async with recording(tmp_path / "log.db", here) as tap:
        for number in range(2):
            asking.delete("x:again")
            await asyncio.to_thread(until_looked, asking)
            asking.xadd("x:again", {"n": number})
            await until(lambda number=number: tap.messages == number + 1)
        asking.set("x:again", "a key of another type")
        await asyncio.to_thread(until_looked, asking)
        asking.delete("x:again")
        await asyncio.to_thread(until_looked, asking)
        asking.xadd("x:again", {"n": 2})
        await until(lambda: tap.messages == 3)
    assert tap.gaps == 0


def until_looked(asking: redis_py.Redis) -> None:
    """Return once the tap has looked at the counters of the server again, twice."""
    looked = asking.info("commandstats")["cmdstat_xinfo|stream"]["calls"]
    while asking.info("commandstats")["cmdstat_xinfo|stream"]["calls"] < looked + 2:
        time.sleep(0.01)


async def test_more_streams_than_one_look_takes_at_once_are_proved_too(tmp_path: Path, here: RedisServer) -> None:
    asking = client(here)
    with asking.pipeline() as together:
        for number in range(450):
            together.xadd(f"x:{number}", {"n": 0})
        together.execute()
    async with recording(tmp_path / "log.db", here) as tap:
        for _ in range(4):
            with asking.pipeline(transaction=True) as together:
                for number in range(450):
                    together.xadd(f"x:{number}", {"n": 1}, maxlen=1, approximate=False)
                together.xadd("x:7", {"n": 2}, maxlen=1, approximate=False)
                together.execute()
            await asyncio.sleep(0)
        await until(lambda: tap.gaps >= 1)
    counts = [one.meta["count"] for one in await events(tmp_path / "log.db", "gap")]
    assert tap.messages + sum(counts) == 4 * 451


async def test_keyspace_notifications_tell_of_new_streams_and_are_never_turned_on(
    tmp_path: Path, here: RedisServer
) -> None:
    asking = client(here)
    async with recording(tmp_path / "log.db", here):
        pass
    assert asking.config_get("notify-keyspace-events") == {"notify-keyspace-events": ""}
    asking.config_set("notify-keyspace-events", "Kt")
    try:
        async with recording(tmp_path / "log.db", here) as tap:
            asking.xadd("x:first", {"n": 1})  # now listings are rare
            await until(lambda: tap.messages == 1)
            scans = asking.info("commandstats")["cmdstat_scan"]["calls"]
            asking.xadd("x:second", {"n": 1})
            await until(lambda: tap.messages == 2)
            assert asking.info("commandstats")["cmdstat_scan"]["calls"] <= scans + 1
    finally:
        asking.config_set("notify-keyspace-events", "")


async def test_a_server_that_lost_its_streams_leaves_a_gap_and_is_read_again(tmp_path: Path) -> None:
    told: list[str] = []
    with redis_server() as server:
        async with recording(tmp_path / "log.db", server, notice=told.append) as tap:
            client(server).xadd("x:1", {"n": 1})
            await until(lambda: tap.messages == 1)
            await asyncio.to_thread(server.stop, kill=True)
            await until(lambda: any("is lost" in text for text in told))
            await asyncio.to_thread(server.start)
            client(server).xadd("x:1", {"n": 2})
            await until(lambda: tap.messages == 2)
    logged = await events(tmp_path / "log.db")
    assert [one.payload for one in logged if one.kind == "received"] == [b"1", b"2"]
    assert [one.meta["count"] for one in logged if one.kind == "gap"] == [None]
    assert any("again" in text for text in told)


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        (["+@all", "-xread"], "+xread"),
        (["+@all", "-info"], "+info"),
        (["+@all", "-xinfo|stream"], "+xinfo|stream"),
        (["+@all", "-scan"], "+scan"),
        (["+@all", "resetkeys", "~other:*"], "'~KEY'"),
    ],
)
async def test_a_missing_right_is_named(tmp_path: Path, here: RedisServer, rights: list[str], missing: str) -> None:
    asking = client(here)
    asking.execute_command("ACL", "SETUSER", "tap", "reset", "on", ">secret", "~*", "&*", *rights)
    asking.xadd("x:1", {"n": 1})
    async with EventLog.open(str(tmp_path / "log.db")) as log, Recorder(log, "e1", role="tap") as recorder:
        broker = open_broker(here.url.replace("redis://", "redis://tap:secret@"))
        with pytest.raises(BrokerUnavailable, match=re.escape(f"ACL SETUSER USER {missing}")):
            await Tap(broker, recorder, (), streams=["x:*"]).run(duration=5)
        await broker.close()


async def test_entries_that_cannot_be_put_back_are_refused_with_what_to_do(
    tmp_path: Path, here: RedisServer, there: RedisServer
) -> None:
    store = tmp_path / "log.db"
    async with EventLog.open(str(store)) as log:
        await filled(
            log,
            [
                NewEvent("sent", 1, "x", b"1", carrier="stream", meta={"field": "f"}),
                NewEvent("sent", 2, "x", b"2", carrier="stream"),
                NewEvent("sent", 3, "x", b'{"a": "b"}', carrier="stream", meta={"fields": 2}),
                NewEvent("sent", 4, "x", b"4", carrier="queue"),
                NewEvent("sent", 5, "x", b"5", carrier="call"),
            ],
        )
    for dry_run in (True, False):
        report = await replayed(store, there, dry_run=dry_run)
        reasons = [failure.reason for failure in report.failures]
        assert report.failed == len(reasons) == 4
        assert all(remedy in reason for remedy, reason in zip(REMEDIES, reasons, strict=True))
    assert entries(there) == {b"x": [[b"f", b"1"]]}


REMEDIES = ["messager record --streams", "is not the 2 fields", "docs/transports.md", "a call inside its programs"]


async def test_live_agents_are_refused_where_streams_were_recorded_from_outside(
    tmp_path: Path, here: RedisServer
) -> None:
    async with recording(tmp_path / "log.db", here):
        client(here).xadd("x:1", {"n": 1})
    broker = MemoryBroker()
    async with EventLog.open(str(tmp_path / "log.db")) as log:
        with pytest.raises(ReplayRefused, match=r"1 entries of streams .* no live agent can be held"):
            await LiveReplay(log, "e1", broker, live=["a"]).run()
        with pytest.raises(ReplayRefused, match="no live agent can be held"):
            async with Fork(log, "e1", "e2", broker, live=["a"]) as fork:
                await fork.run()


async def test_large_entries_are_put_back(tmp_path: Path, here: RedisServer, there: RedisServer) -> None:
    payload = b"x" * (33 << 20)  # above what a subscriber of a channel may have
    async with recording(tmp_path / "log.db", here) as tap:
        client(here).xadd("x:1", {"data": payload})
        await until(lambda: tap.messages == 1)
    assert (await replayed(tmp_path / "log.db", there)).published == 1
    assert entries(there) == entries(here)


async def test_a_server_that_does_not_count_entries_is_refused(tmp_path: Path) -> None:
    async with FakeRedis({"INFO": bulk(b"redis_version:6.2.14\r\n")}).running() as old:
        reader = open_broker(f"redis://127.0.0.1:{old.port}").stream_reader(["x:*"])
        with pytest.raises(BrokerUnavailable, match=r"losses would pass unnoticed; Redis 7\.0"):
            await reader.start()
        await reader.aclose()


@pytest.mark.parametrize("url", ["memory", "mqtt://127.0.0.1", "redis+cluster://127.0.0.1"])
def test_brokers_without_streams_say_so(url: str) -> None:
    broker = MemoryBroker() if url == "memory" else open_broker(url)
    with pytest.raises(BrokerUnavailable, match="streams"):
        broker.stream_reader(["x:*"])


def test_the_command_line_records_streams_beside_channels(
    here: RedisServer, there: RedisServer, tmp_path: Path
) -> None:
    asking = client(here)
    for number in range(5):
        asking.xadd("x:1", {"number": number})
    options = ["--streams", "x:*", "--from-start", "--exp", "e1", "--broker", here.url]
    done = messager("record", "chan*", *options, "--max-events", "5", cwd=tmp_path)
    assert (done.returncode, "recorded 5 messages of e1" in done.stderr) == (0, True), done.stderr
    assert "not recorded" not in done.stderr
    done = messager("replay", "e1", "--broker", there.url, "--speed", "max", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert entries(there) == entries(here)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--streams", "x:*", "--broker", "mqtt://127.0.0.1"], "MQTT has no streams: leave out --streams"),
        (["--from-start"], "add --streams PATTERN"),
    ],
)
def test_streams_that_cannot_be_recorded_are_wrong_use(words: list[str], told: str, tmp_path: Path) -> None:
    done = messager("record", "--exp", "e1", *words, cwd=tmp_path)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
