"""Flow control: a replay waits for slow subscribers, or requires a rate if it cannot measure their backlog."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from messager import MemoryBroker, RedisBroker
from messager.brokers import Backlog, OutputLimits
from messager.testing import RedisServer, redis_server
from messager_store import EventLog, Replay, ReplayReport
from messager_store.errors import ReplayFailed, ReplayRefused, StoreError
from messager_store.replay import ReplayClock, flow_control
from messager_store.replay.clock import Rate
from messager_store.replay.flow_control import FlowControl
from tests.store.replay.test_replay import Heard, Secretive, Time
from tests.support import forks, messager, until
from tests.support.forked_program import ForkedProgram
from tests.support.logs import filled, sent

SECOND = 1_000_000_000
MB = 1024 * 1024
_MESSAGE = b"message\r\n$"


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """Server for one test, with the default output limits of Redis."""
    with redis_server() as running:
        yield running


class RawReader:
    """Subscriber on a socket that reads only on request."""

    def __init__(self, port: int, *commands: bytes) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self._socket.connect(("127.0.0.1", port))
        self._socket.settimeout(20)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        for command in commands:
            self._socket.sendall(command + b"\r\n")
            answered = b""
            while b":" not in answered:
                answered += self._socket.recv(64 * 1024)
        self._socket.setblocking(False)
        self.data = bytearray()
        self.count = 0
        """Messages that came, of the last one perhaps only the beginning."""
        self._seen = 0
        self.cut_off = False

    async def read(self, most: int = 256 * 1024) -> None:
        """Read the available data, up to this number of bytes."""
        piece = await asyncio.get_running_loop().sock_recv(self._socket, most)
        self.cut_off = self.cut_off or not piece
        self.data += piece
        while (found := self.data.find(_MESSAGE, self._seen)) >= 0:
            self.count, self._seen = self.count + 1, found + len(_MESSAGE)
        self._seen = max(self._seen, len(self.data) - len(_MESSAGE))

    def payloads(self) -> list[bytes]:
        """Return the complete payloads in order of arrival."""
        found, at = [], 0
        while (start := self.data.find(_MESSAGE, at)) >= 0:
            pattern = self.data[start - 1 : start] == b"p"
            at = start + len(_MESSAGE) - 1
            for _ in range(3 if pattern else 2):  # (pattern,) channel, payload
                end = self.data.find(b"\r\n", at)
                first, last = end + 2, end + 2 + int(self.data[at + 1 : end] or b"0")
                at = last + 2
            if len(self.data) < at:
                break
            found.append(bytes(self.data[first:last]))
        return found

    def close(self) -> None:
        self._socket.close()


def digest(payloads: list[bytes]) -> list[str]:
    """Return a short form for messages of failed assertions."""
    return [f"{payload[:8]!r} {hashlib.sha256(payload).hexdigest()[:16]}" for payload in payloads]


@asynccontextmanager
async def replaying(
    log: EventLog, url: str, **options: Any
) -> AsyncIterator[tuple[Replay, asyncio.Task[ReplayReport]]]:
    broker = RedisBroker.from_url(url)
    replay = Replay(log, "e1", broker, **{"speed": "max", **options})
    task = asyncio.create_task(replay.run())
    try:
        yield replay, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await broker.close()


async def large(log: EventLog, sizes: list[int], channel: str = "c") -> list[bytes]:
    """Create an experiment with numbered payloads of these sizes."""
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="tap")
    wire = [b"%08d" % at + bytes(size - 8) for at, size in enumerate(sizes)]
    for at in range(0, len(wire), 200):
        await log.append(writer, [sent(at + n, data, channel) for n, data in enumerate(wire[at : at + 200])])
    return wire


async def subscribers(url: str) -> int:
    client = Redis.from_url(url)
    found = await client.client_list(_type="pubsub")
    await client.aclose()
    return len(found)


async def drained(reader: RawReader, task: asyncio.Task[ReplayReport], count: int) -> ReplayReport:
    """Read slowly until this number of payloads has arrived."""
    step = 0
    while reader.count < count or not task.done():
        assert not reader.cut_off, "the subscriber was cut off"
        reading = asyncio.create_task(reader.read())
        done, _ = await asyncio.wait({reading, task}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert done, "nothing comes"
        if reading not in done and reader.count >= count:
            reading.cancel()  # everything had come before the replay's end was seen
            break
        await asyncio.wait_for(reading, 60)
        step += 1
        if step % 16 == 0:
            await asyncio.sleep(0.001)
    while not reader.data.endswith(b"\0\r\n"):
        await asyncio.wait_for(reader.read(), 60)
    return await asyncio.wait_for(task, 60)


@pytest.mark.parametrize("speed", ["max", pytest.param(1e9, marks=pytest.mark.nightly)])
async def test_a_slow_reader_gets_everything_and_is_never_cut_off(
    log: EventLog, server: RedisServer, speed: Any
) -> None:
    """64 MB in payloads of 100 kB, twice the limit of Redis, through a socket that is read in small pieces."""
    wire = await large(log, [100_000] * 640)
    reader = RawReader(server.port, b"SUBSCRIBE c")
    async with replaying(log, server.url, speed=speed) as (replay, task):
        await until(lambda: replay.report.held_back_s > 0)
        assert replay.report.held_by is not None and replay.report.held_by.startswith("127.0.0.1:")
        report = await drained(reader, task, len(wire))
    assert digest(reader.payloads()) == digest(wire)
    assert report.held_back_s > 0 and report.flow_control and report.published == len(wire)
    assert await subscribers(server.url) == 1  # the same connection still
    reader.close()


async def test_the_slowest_of_many_counts_and_so_does_each_copy_it_gets(log: EventLog, server: RedisServer) -> None:
    """A client with 24 matching subscriptions gets each message 24 times."""
    wire = await large(log, [100_000] * 60)
    quick = [RawReader(server.port, b"PSUBSCRIBE *") for _ in range(10)]
    patterns = [b"SUBSCRIBE c", *(b"PSUBSCRIBE " + b"*" * stars + b"c" for stars in range(1, 24))]
    slow = RawReader(server.port, *patterns)

    async def keep_up(reader: RawReader) -> None:
        while reader.count < len(wire):
            await reader.read(4 * MB)

    async with replaying(log, server.url) as (replay, task):
        reading = [asyncio.create_task(keep_up(reader)) for reader in quick]
        await until(lambda: replay.report.held_back_s > 0)
        report = await drained(slow, task, len(wire) * 24)  # 144 MB
        await asyncio.wait_for(asyncio.gather(*reading), 60)
    assert report.published == len(wire) and not slow.cut_off
    assert digest(sorted(slow.payloads())) == digest(sorted(wire * 24))
    assert await subscribers(server.url) == 11
    for reader in (*quick, slow):
        reader.close()


async def test_copies_count_from_the_first_message_on(log: EventLog, server: RedisServer) -> None:
    """The first batch is 50 MB for a client that gets each message 200 times."""
    wire = await large(log, [2000] * 150)
    reader = RawReader(server.port, *(b"PSUBSCRIBE " + b"*" * stars + b"c" for stars in range(200)))
    async with replaying(log, server.url) as (replay, task):
        await until(lambda: replay.report.held_back_s > 0)
        await drained(reader, task, len(wire) * 200)
    assert replay.report.published == len(wire) and await subscribers(server.url) == 1
    reader.close()


async def test_a_payload_whose_copies_would_cut_a_subscriber_off_is_refused_unless_forced(
    log: EventLog, server: RedisServer
) -> None:
    await large(log, [20 * MB])
    reader = RawReader(server.port, b"PSUBSCRIBE *", b"PSUBSCRIBE c*")
    async with replaying(log, server.url) as (replay, task):
        with pytest.raises(ReplayRefused, match=r"1:1 has 20,971,520 bytes, .* get it 2 times: above .*--force"):
            await task
    assert replay.report.published == 0 and await subscribers(server.url) == 1
    async with replaying(log, server.url, force=True) as (replay, task):
        assert (await task).published == 1
    reader.close()


async def test_patterns_that_do_not_fit_a_channel_are_no_copies_once_that_is_known(log: EventLog) -> None:
    class Limited(Heard):
        async def output_limits(self) -> OutputLimits:
            return OutputLimits(16_000, None)

    await filled(log, [sent(1, b"small"), sent(2, b"x" * 10_000), sent(3, b"small", "d"), sent(4, b"y" * 10_000, "d")])
    broker = Limited()
    listener = broker.pubsub()
    await listener.psubscribe("c", "[d]", "d")

    async def read() -> None:
        while True:
            await listener.get_message(timeout=1)

    reading = asyncio.create_task(read())
    with pytest.raises(ReplayFailed, match=r"4:1:4 has 10,000 bytes.* get it 2 times.*; 3 messages were published"):
        await Replay(log, "e1", broker, speed="max").run()
    reading.cancel()
    assert broker.payloads() == [b"small", b"x" * 10_000, b"small"]


@pytest.mark.parametrize(
    ("hard", "most"),
    [(32 * MB, 28 * MB), (33 * MB, 32 * MB), (40 * MB, 32 * MB), (41 * MB, 40 * MB), (MB, MB * 7 // 8)],
)
async def test_a_payload_for_which_redis_allocates_more_than_its_limit_is_too_large(hard: int, most: int) -> None:
    """A payload of 29 MB counts as 32 MB in a Redis with jemalloc, which disconnects the subscriber."""

    class Limited(MemoryBroker):
        async def output_limits(self) -> OutputLimits:
            return OutputLimits(hard, None)

    found = flow_control.FlowControl(Limited())
    await found.begin()
    assert found.largest_payload == most - flow_control.BLOCK


async def test_large_payloads_go_alone_and_wait_until_what_was_before_is_read(
    log: EventLog, server: RedisServer
) -> None:
    limit = 28 * MB - flow_control.BLOCK
    wire = await large(log, [*[100_000] * 80, 60_000, 27 * MB, 100_000, 5 * MB, 60_000, limit, 90_000])
    reader = RawReader(server.port, b"SUBSCRIBE c")
    async with replaying(log, server.url) as (replay, task):
        await until(lambda: replay.report.held_back_s > 0)
        await drained(reader, task, len(wire))
    assert digest(reader.payloads()) == digest(wire)
    reader.close()


async def test_a_subscriber_that_comes_while_it_runs_is_waited_for_too(log: EventLog, server: RedisServer) -> None:
    wire = await large(log, [100_000] * 640)
    first = RawReader(server.port, b"SUBSCRIBE c")
    async with replaying(log, server.url) as (replay, task):
        await until(lambda: replay.report.held_back_s > 0)
        late = RawReader(server.port, b"SUBSCRIBE c")

        async def keep_up() -> None:
            while first.count < len(wire):
                await first.read(4 * MB)

        reading = asyncio.create_task(keep_up())
        await until(lambda: late.address == replay.report.held_by)
        await drained(late, task, 1)
        await asyncio.wait_for(reading, 60)
        while late.data.find(wire[-1][:8], max(len(late.data) - 200_000, 0)) < 0 or not late.data.endswith(b"\0\r\n"):
            await asyncio.wait_for(late.read(), 60)
    heard = late.payloads()
    assert len(heard) > 300 and digest(heard) == digest(wire[-len(heard) :])
    first.close()
    late.close()


async def test_a_server_with_tighter_limits_is_asked_for_them(log: EventLog) -> None:
    wire = await large(log, [50_000] * 200)
    with redis_server("--client-output-buffer-limit", "pubsub", "1mb", "512kb", "60") as tight:
        broker = RedisBroker.from_url(tight.url)
        assert (await broker.output_limits())[:2] == (MB, MB // 2)
        await broker.close()
        reader = RawReader(tight.port, b"SUBSCRIBE c")
        async with replaying(log, tight.url) as (replay, task):
            await until(lambda: replay.report.held_back_s > 0)
            await drained(reader, task, len(wire))
        assert digest(reader.payloads()) == digest(wire)
        reader.close()
        await log.create_experiment("big")
        writer = await log.register(await log.experiment("big"), role="tap")
        await log.append(writer, [sent(1, bytes(MB))])
        broker = RedisBroker.from_url(tight.url)
        with pytest.raises(ReplayRefused, match=r"1:1:1 has 1,048,576 bytes: above 917,376"):
            await Replay(log, "big", broker).run()
        await broker.close()
    with redis_server("--client-output-buffer-limit", "pubsub", "0", "0", "0") as loose:
        broker = RedisBroker.from_url(loose.url)
        assert (await broker.output_limits())[:2] == (None, None)
        assert (await Replay(log, "big", broker).run()).published == 1
        await broker.close()


async def test_a_subscriber_that_stopped_reading_is_named_and_given_up_only_where_that_was_asked_for(
    log: EventLog, server: RedisServer
) -> None:
    await large(log, [100_000] * 200)
    reader = RawReader(server.port, b"SUBSCRIBE c")
    async with replaying(log, server.url, max_hold=0.2) as (replay, task):
        with pytest.raises(ReplayFailed, match=r"subscriber 127.0.0.1:\d+ has read nothing for 0.2 s.*--max-hold"):
            await task
    assert 0 < replay.report.published < 200
    seen: list[ReplayReport] = []
    async with replaying(log, server.url, progress=seen.append) as (replay, task):
        await until(lambda: replay.report.stalled_s > 0.3)
        assert not task.done() and replay.report.held_by is not None
        told = len(seen)
        await until(lambda: len(seen) > told + 5)  # progress goes on while it is held back
    assert task.cancelled()
    reader.close()


async def test_payloads_that_a_server_does_not_count_are_waited_for_until_all_is_read() -> None:
    """Valkey 9 counts 160 bytes for a payload of 16 kB or more, whatever its size."""

    class Referring(MemoryBroker):
        """Broker whose subscriber takes `taken` bytes between two looks, and has everything at each tenth."""

        looks = 0
        taken = MB

        async def output_limits(self) -> OutputLimits:
            return OutputLimits(None, None, counted_below=16_384)

        async def backlog(self) -> Backlog:
            self.looks += 1
            return Backlog(0 if self.looks % 10 == 0 and self.taken else 160, "a", 1, self.looks * self.taken)

    async def publish(broker: Referring, size: int, max_hold: float | None = None) -> list[int]:
        """Publish 32 MB. Return for each look while holding back how long nothing had been read, ns."""
        stalled: list[int] = []
        flow = FlowControl(broker, max_hold=max_hold, holding=lambda: stalled.append(flow.stalled_ns))
        await flow.begin()
        for _ in range(32 * MB // size):
            await flow.spend(wire := [(b"c", bytes(size))])
            flow.spent(wire, [1])
        return stalled

    stalled = await publish(Referring(), 100_000)
    assert stalled.count(0) > len(stalled) / 2  # something was read between most looks
    assert not await publish(Referring(), 16_000)
    stuck = Referring()
    stuck.taken = 0
    with pytest.raises(
        ReplayFailed, match=r"the subscriber a has read nothing for .* s, with 6,\d{3},\d{3} bytes waiting"
    ):
        await publish(stuck, 100_000, max_hold=1e-9)


def test_the_command_says_whom_it_waits_for_and_ctrl_c_ends_it(tmp_path: Path, server: RedisServer) -> None:
    line = '{"ts": %d, "channel": "c", "payload": "' + "x" * 100_000 + '"}\n'
    (tmp_path / "a.jsonl").write_text("".join(line % at for at in range(200)))
    assert messager("import", "a.jsonl", "--exp", "e1", cwd=tmp_path).returncode == 0
    reader = RawReader(server.port, b"SUBSCRIBE c")
    line = ["--redis", server.url, "replay", "e1", "--speed", "max"]
    process = ForkedProgram(forks.COMMAND_LINE, line, tmp_path)
    assert process.stderr is not None
    said = process.stderr.readline()
    assert "has read nothing" in said and "127.0.0.1:" in said
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped after" in rest
    reader.close()


async def test_full_speed_asks_for_a_rate_where_the_broker_does_not_tell_its_backlog(log: EventLog) -> None:
    await filled(log, [sent(at) for at in range(10)])
    with pytest.raises(ReplayRefused, match=r"does not report what its subscribers.*--rate"):
        await Replay(log, "e1", (broker := Secretive()), speed="max").run()
    assert broker.published == []
    report = await Replay(log, "e1", broker, speed="max", rate=1e6).run()
    assert (report.published, report.flow_control, report.requested_rate) == (10, False, 1e6)
    assert (await Replay(log, "e1", broker, speed=1.0).run()).flow_control is False


async def test_where_the_broker_stops_telling_a_replay_at_full_speed_ends(log: EventLog) -> None:
    class Closing(MemoryBroker):
        looks = 0

        async def backlog(self) -> Backlog | None:
            self.looks += 1
            return await super().backlog() if self.looks < 4 else None

    await large(log, [MB] * 10)
    replay = Replay(log, "e1", Closing(), speed="max")
    with pytest.raises(ReplayFailed, match=r"does not report what its subscribers.*\d messages were published"):
        await replay.run()
    assert 0 < replay.report.published < 10


async def test_redis_whose_acl_hides_the_clients_wants_a_rate(
    log: EventLog, server: RedisServer, tmp_path: Path
) -> None:
    await filled(log, [sent(at) for at in range(10)])
    admin = Redis.from_url(server.url)
    await admin.acl_setuser(
        "bob", enabled=True, nopass=True, channels=["*"], categories=["+@all"], commands=["-client"]
    )
    await admin.aclose()
    url = server.url.replace("//", "//bob:any@")
    broker = RedisBroker.from_url(url)
    with pytest.raises(ReplayRefused, match="--rate"):
        await Replay(log, "e1", broker, speed="max").run()
    await broker.close()
    where = ["--store", log.location, "--redis", url]
    done = await asyncio.to_thread(messager, *where, "replay", "e1", "--speed", "max", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "--rate" in done.stderr
    done = await asyncio.to_thread(messager, *where, "replay", "e1", "--speed", "max", "--rate", "5000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "flow control" in done.stdout and "off" in done.stdout and "at most 5,000 messages a second" in done.stdout


@pytest.mark.parametrize("speed", ["max", 1000.0])
async def test_a_rate_bounds_any_speed(log: EventLog, speed: Any) -> None:
    await filled(log, [sent(at * SECOND // 1000, b"%d" % at) for at in range(300)])
    broker = Heard()
    clock = ReplayClock(1.0 if speed == "max" else speed, now=broker.time.now, sleep=broker.time.sleep)
    await Replay(log, "e1", broker, speed=speed, rate=100, clock=clock).run()
    times = [at for at, _, _ in broker.published]
    assert times[-1] == pytest.approx(2.99, abs=0.05)
    for at, time in enumerate(times):
        assert sum(1 for other in times[at:] if other < time + 1.0) <= 102
    assert broker.payloads() == [b"%d" % at for at in range(300)]
    broker = Heard()
    clock = ReplayClock(now=broker.time.now, sleep=broker.time.sleep)
    await Replay(log, "e1", broker, speed=1.0, rate=100_000, clock=clock).run()
    assert broker.published[-1][0] == pytest.approx(0.299, abs=0.03)  # a rate hurries nothing


async def test_a_rate_does_not_drift_and_makes_no_burst_of_a_stall() -> None:
    class Late(Time):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds + 0.004)

    time = Late()
    rate = Rate(1000, ReplayClock(now=time.now, sleep=time.sleep))
    for _ in range(500):
        await rate.take(20)
    assert time.now_ns / SECOND == pytest.approx(9.999, abs=0.01)
    time.now_ns += 60 * SECOND
    since = time.now_ns
    for _ in range(50):
        await rate.take(20)
    assert (time.now_ns - since) / SECOND == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "fast", 5e-324, pytest.param(10**400, id="huge")])
def test_a_rate_that_is_none_is_refused(rate: Any) -> None:
    with pytest.raises(StoreError, match="is not a rate"):
        Replay(None, "e1", MemoryBroker(), rate=rate)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="not a time to hold back"):
        Replay(None, "e1", MemoryBroker(), max_hold=0)  # type: ignore[arg-type]
