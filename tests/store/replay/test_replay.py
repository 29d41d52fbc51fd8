"""Replay: recorded messages are published again, in order, at the requested pace."""

from __future__ import annotations

import asyncio
import math
import random
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from messager import MemoryBroker, MessageRecord, RedisBroker, channels
from messager.brokers import Backlog
from messager.testing import RedisServer
from messager_store import EventLog, NewEvent, Recorder, Replay
from messager_store.errors import BadCursor, ExperimentNotFound, ReplayFailed, StoreError
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.replay import ChannelMap, ReplayClock, ReplayReport
from tests.support import HOSTILE_CHANNELS, HOSTILE_PAYLOADS
from tests.support.logs import filled, sent

SECOND = 1_000_000_000


class Time:
    """Monotonic clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now_ns = 0

    def now(self) -> int:
        return self.now_ns

    async def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND) + 1
        await asyncio.sleep(0)


class Heard(MemoryBroker):
    """Broker that keeps the time of each published message."""

    def __init__(self, time: Time | None = None) -> None:
        super().__init__()
        self.time = time or Time()
        self.published: list[tuple[float, bytes, bytes]] = []
        self.batches: list[int] = []

    async def publish(self, messages: Any) -> Any:
        self.batches.append(len(messages))
        self.published += [(self.time.now_ns / SECOND, channel, payload) for channel, payload in messages]
        return await super().publish(messages)

    def payloads(self) -> list[bytes]:
        return [payload for _, _, payload in self.published]


class Secretive(Heard):
    """Broker that does not report the backlog of its subscribers."""

    async def backlog(self) -> Backlog | None:
        return None


async def replayed(log: EventLog, exp_id: str = "e1", speed: Any = "max", **options: Any) -> Heard:
    broker = Heard()
    clock = ReplayClock(1.0 if speed == "max" else speed, now=broker.time.now, sleep=broker.time.sleep)
    await Replay(log, exp_id, broker, speed=speed, clock=clock, **options).run()
    return broker


async def test_every_byte_comes_back_in_replay_order_to_a_plain_subscriber(redis: RedisServer, log: EventLog) -> None:
    """Replay at full speed, with a subscriber of redis-py."""
    dice = random.Random(5)
    wire = [(channel, payload) for channel in HOSTILE_CHANNELS for payload in HOSTILE_PAYLOADS] * 20
    events = [sent(dice.randrange(50), payload, channels.decode(channel)) for channel, payload in wire]
    await filled(log, events)
    expected = [wire[at] for at in sorted(range(len(wire)), key=lambda at: (events[at].ts, at))]
    client = Redis(port=redis.port)
    pubsub = client.pubsub()
    await pubsub.psubscribe("*")
    found: list[tuple[bytes, bytes]] = []

    async def listen() -> None:
        async for message in pubsub.listen():
            if message["type"] == "pmessage":
                found.append((message["channel"], message["data"]))
                if len(found) == len(expected):
                    return

    listening = asyncio.create_task(listen())
    broker = RedisBroker.from_url(redis.url)
    report = await Replay(log, "e1", broker, speed="max", wait_for_subscribers=1).run()
    await asyncio.wait_for(listening, 60)
    assert found == expected
    assert (report.published, report.skipped, report.no_subscriber) == (len(wire), 0, 0)
    await broker.close()
    await pubsub.aclose()  # type: ignore[no-untyped-call]
    await client.aclose()


async def test_messages_keep_their_distances_divided_by_the_speed(log: EventLog) -> None:
    await filled(log, [sent(100 * SECOND + at * SECOND // 4, b"%d" % at) for at in (0, 1, 1, 2, 40)])
    for speed in (0.5, 1.0, 10.0):
        broker = await replayed(log, speed=speed)
        times = [at for at, _, _ in broker.published]
        assert times == pytest.approx([0, 0.25 / speed, 0.25 / speed, 0.5 / speed, 10 / speed], abs=1e-6)
        assert broker.payloads() == [b"0", b"1", b"1", b"2", b"40"]
        assert broker.batches == [1, 2, 1, 1]  # due together, out together


async def test_full_speed_waits_for_nothing(log: EventLog) -> None:
    await filled(log, [sent(at * SECOND * 1000) for at in range(10)])
    broker = await replayed(log, speed="max")
    assert broker.time.now_ns == 0 and broker.batches == [10]


async def test_silences_are_shortened_and_nothing_else(log: EventLog) -> None:
    await filled(log, [sent(at * SECOND) for at in (0, 1, 61, 62, 122)])
    broker = await replayed(log, speed=1.0, max_gap=5)
    assert [at for at, _, _ in broker.published] == pytest.approx([0, 1, 6, 7, 12], abs=1e-6)


async def test_it_loops(log: EventLog) -> None:
    await filled(log, [sent(0, b"a"), sent(SECOND, b"b")])
    broker = await replayed(log, speed=1.0, loops=3)
    assert broker.payloads() == [b"a", b"b"] * 3
    assert broker.time.now_ns / SECOND == pytest.approx(3, abs=1e-6)


@pytest.mark.parametrize("into_live", [True, False])
async def test_a_recorder_that_joins_between_two_passes_neither_adds_to_them_nor_is_overlooked(
    log: EventLog, into_live: bool
) -> None:
    of = await filled(log, [sent(0, b"a"), sent(1, b"b")])
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE recorder SET ended_at = 5")

    class Joined(Heard):
        async def publish(self, messages: Any) -> Any:
            if not self.published:
                tap = await log.register(of, role="tap", patterns=["*"])
                await log.append(tap, [sent(2, b"of the replay")])
            return await super().publish(messages)

    broker = Joined()
    replay = Replay(log, "e1", broker, speed="max", loops=3, into_live=into_live)
    if into_live:
        assert (await replay.run()).planned == 2
    else:
        with pytest.raises(ReplayFailed, match=r"recorder 2 of 'e1'.*--into-live; 2 messages were published"):
            await replay.run()
    assert broker.payloads() == [b"a", b"b"] * (3 if into_live else 1)


async def test_it_starts_and_ends_where_it_is_told(log: EventLog) -> None:
    of = await filled(
        log,
        [
            *(sent(at * SECOND, b"%d" % at) for at in range(3)),
            NewEvent("mark", 3 * SECOND, None, b"", meta={"name": "go", "fields": {}}),
            *(sent(at * SECOND, b"%d" % at) for at in range(3, 6)),
        ],
    )
    assert (await replayed(log, since="1s", until="2s")).payloads() == [b"1"]
    assert (await replayed(log, since="mark:go")).payloads() == [b"3", b"4", b"5"]
    assert (await replayed(log, until="mark:go")).payloads() == [b"0", b"1", b"2"]
    assert (await replayed(log, since=f"{SECOND}:1:3", until="1970-01-01T00:00:04Z")).payloads() == [b"2", b"3"]
    with pytest.raises(BadCursor):
        await replayed(log, since="whenever")
    with pytest.raises(ExperimentNotFound):
        await replayed(log, "nowhere")
    assert of.exp_id == "e1"


async def test_channels_agents_and_kinds_choose(log: EventLog) -> None:
    await filled(
        log,
        [
            sent(1, b"1", "exps:e:a", from_id=1),
            sent(2, b"2", "exps:e:b", from_id=2),
            NewEvent("blocked", 3, "exps:e:a", b"3"),
            NewEvent("failed", 4, "exps:e:a", b"4"),
        ],
    )
    assert (await replayed(log)).payloads() == [b"1", b"2"]
    assert (await replayed(log, channels=["*:a"])).payloads() == [b"1"]
    assert (await replayed(log, exclude=["*:a"])).payloads() == [b"2"]
    assert (await replayed(log, agents=[2])).payloads() == [b"2"]
    assert (await replayed(log, kinds=["blocked", "sent"])).payloads() == [b"1", b"2", b"3"]


async def test_what_is_planned_is_what_is_published(log: EventLog, tmp_path: Path) -> None:
    """Planned from the counters of recorders if possible, else by counting."""
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    await log.append(writer, [sent(at, b"secret" if at == 1 else b"plain", from_id=at) for at in range(4)])
    await log.append(
        writer, [NewEvent("blocked", 9, "c", b"plain"), NewEvent("mark", 9, None, b"", meta={"name": "m"})]
    )
    await log.touch(writer, ended_at=1)

    async def both(exp_id: str = "e1", **options: Any) -> tuple[int, int]:
        report = await Replay(log, exp_id, MemoryBroker(), speed="max", **options).run()
        return report.planned, report.published

    assert await both() == (4, 4)
    assert await both(kinds=["blocked", "sent"]) == (5, 5)
    assert await both(since=2) == (2, 2)
    assert await both(agents=[3]) == (1, 1)
    await redact(log, "e1", RedactionFilter(contains=("secret",)), who="me", why="asked to")
    assert await both() == (3, 3)
    await export_jsonl(log, "e1", tmp_path / "e1.jsonl")
    await import_jsonl(log, tmp_path / "e1.jsonl", "again")
    assert await both("again") == (3, 3)


async def test_what_is_planned_grows_with_the_messages_of_unrecorded_senders(log: EventLog) -> None:
    of, number = await log.create_experiment("e1"), 600
    said = [sent(at * SECOND, b"%d" % at) for at in range(number)]
    heard = [entry._replace(kind="received", ts=entry.ts + 1) for entry in said]
    heard[-1] = heard[-1]._replace(payload=b"unrecorded")
    await log.append(
        await log.register(of, role="messager"), [one for pair in zip(said, heard, strict=True) for one in pair]
    )
    seen: dict[int, tuple[int, bool]] = {}

    def note(report: ReplayReport) -> None:
        seen.setdefault(report.published, (report.planned, report.at_least))

    report = await Replay(log, "e1", MemoryBroker(), speed="max", progress=note).run()
    first = min(published for published in seen if published)
    assert seen[first] == (number, True)
    assert (report.planned, report.at_least, report.published, report.skipped) == (
        number + 1,
        False,
        number + 1,
        number - 1,
    )


async def test_a_message_is_published_once_whoever_recorded_it(log: EventLog) -> None:
    """What was sent; and the first reception of what nobody was recorded to send."""
    of = await log.create_experiment("e1")
    member, group, tap = [await log.register(of, role=role) for role in ("messager", "messager", "tap")]

    def heard(ts: int, payload: bytes, channel: str) -> NewEvent:
        return NewEvent("received", ts, channel, payload)

    await log.append(member, [sent(1, b"said", "both"), heard(2, b"said", "both"), heard(9, b"a", "heard")])
    await log.append(group, [heard(3, b"said", "both"), heard(8, b"a", "heard"), heard(10, b"b", "heard")])
    await log.append(tap, [heard(4, b"said", "both"), heard(5, b"unrecorded sender", "both"), heard(7, b"a", "heard")])
    everything = [b"said", b"unrecorded sender", b"a", b"b"]
    assert (await replayed(log)).payloads() == everything
    report = await Replay(log, "e1", MemoryBroker(), speed="max").run()
    assert (report.planned, report.published, report.skipped) == (4, 4, 5)
    assert (await replayed(log, kinds=["received"])).payloads() == everything
    assert (await replayed(log, kinds=["sent"])).payloads() == [b"said"]
    without_tap = await log.create_experiment("e2")
    first, second = [await log.register(without_tap, role="messager") for _ in range(2)]
    await log.append(first, [heard(1, b"a", "c")])
    await log.append(second, [heard(2, b"a", "c"), heard(3, b"b", "c")])
    assert (await replayed(log, "e2")).payloads() == [b"a", b"b"]


async def test_a_sending_that_failed_after_all_is_not_published(log: EventLog) -> None:
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    await log.append(writer, [sent(1, b"gone"), sent(2, b"came through")])
    await log.append(writer, [NewEvent("failed", 3, "c", b"gone", cause=(1, 1))])
    broker = await replayed(log)
    assert broker.payloads() == [b"came through"]
    assert (await Replay(log, "e1", MemoryBroker(), dry_run=True).run()).planned == 1


def test_channels_are_renamed_by_the_first_pair_that_fits() -> None:
    mapped = ChannelMap({"exact": "other", "a:*": "b:*", "a:x*": "never*", "st*r": "plain"}, "e2")
    assert mapped("exact") == b"other"
    assert mapped("a:xyz") == b"b:xyz"
    assert mapped("st*r") == b"plain"
    assert mapped("star") == b"star"
    assert mapped("exps:e1:agents:1:chat") == b"exps:e2:agents:1:chat"
    assert ChannelMap({"*": "copy:*"})("x") == b"copy:x"
    assert ChannelMap()(channels.decode(b"\xff\x00")) == b"\xff\x00"


async def test_it_publishes_into_another_experiment(log: EventLog) -> None:
    await filled(log, [sent(1, b'{"exp": "e1"}', "exps:e1:agents:1:chat"), sent(2, b"y", "plain")])
    broker = await replayed(log, to_exp="e2", mapping={"plain": "fancy"})
    assert [channel for _, channel, _ in broker.published] == [b"exps:e2:agents:1:chat", b"fancy"]
    assert broker.payloads()[0] == b'{"exp": "e1"}'  # payloads are never rewritten


async def test_a_dry_run_publishes_nothing_and_says_what_it_would(log: EventLog) -> None:
    await filled(log, [sent(1, channel="a"), sent(2, channel="a"), sent(3, channel="b"), NewEvent("gap", 4, None, b"")])
    broker = Heard()
    broker.interrupt()  # not even a broker is needed
    report = await Replay(log, "e1", broker, dry_run=True, mapping={"b": "c"}).run()
    assert broker.published == []
    assert (report.planned, report.published, report.skipped, report.channels) == (3, 0, 1, {"a": 2, "c": 1})
    assert report.to_dict()["achieved_speed"] is None


async def test_an_empty_experiment_replays_to_nothing(log: EventLog) -> None:
    await log.create_experiment("e1")
    report = await Replay(log, "e1", MemoryBroker(), loops=0).run()
    assert (report.planned, report.published) == (0, 0)


@pytest.mark.parametrize(
    "speed",
    [0, -1, math.nan, "fast", "", "-inf", "nan", True, 5e-324, "5e-324", 1e308, pytest.param(10**400, id="huge")],
)
def test_a_speed_that_is_none_is_refused(speed: Any) -> None:
    with pytest.raises(StoreError, match="is not a speed"):
        Replay(None, "e1", MemoryBroker(), speed=speed)  # type: ignore[arg-type]


def test_gaps_and_loops_that_are_none_are_refused() -> None:
    for gap in (-1, math.nan, math.inf):
        with pytest.raises(StoreError, match="is not a gap"):
            Replay(None, "e1", MemoryBroker(), max_gap=gap)  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="loops"):
        Replay(None, "e1", MemoryBroker(), loops=-1)  # type: ignore[arg-type]


async def test_sessions_of_one_experiment_that_follow_each_other_are_all_replayed(
    log: EventLog, tmp_path: Path
) -> None:
    for session in range(3):
        async with Recorder(log, "e1", role="tap") as recorder:
            for number in range(2):
                recorder.after(MessageRecord("received", session * 10 + number, "c", b"%d-%d" % (session, number)))
    expected = [b"%d-%d" % (session, number) for session in range(3) for number in range(2)]
    assert (await replayed(log)).payloads() == expected
    # and so after an export and an import, when all of them were made at once
    await export_jsonl(log, "e1", tmp_path / "e1.jsonl")
    await import_jsonl(log, tmp_path / "e1.jsonl", "copy")
    assert (await replayed(log, "copy")).payloads() == expected


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_message_that_did_not_travel_on_a_channel_is_refused(log: EventLog, dry_run: bool) -> None:
    carriers = (None, "stream", None, "queue")
    await filled(log, [NewEvent("sent", at, f"c{at}", b"x", carrier=carrier) for at, carrier in enumerate(carriers)])
    broker = MemoryBroker()
    heard = broker.pubsub()
    await heard.psubscribe("*")
    report = await Replay(log, "e1", broker, speed="max", dry_run=dry_run).run()
    assert [(one.channel, one.outcome) for one in report.failures] == [("c1", "refused"), ("c3", "refused")]
    assert "travelled through a stream" in report.failures[0].reason
    assert (report.planned, report.failed, report.published) == (4, 2, 0 if dry_run else 2)
    arrived = [await heard.get_message(timeout=1) for _ in range(report.published)]
    assert [message and message["channel"] for message in arrived] == [b"c0", b"c2"][: report.published]


@pytest.mark.parametrize("kind", ["gap", "mark"])
def test_what_was_never_on_the_wire_is_not_replayed(kind: str) -> None:
    with pytest.raises(StoreError, match="never on the wire"):
        Replay(None, "e1", MemoryBroker(), kinds=["sent", kind])  # type: ignore[arg-type]
