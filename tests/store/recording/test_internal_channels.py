"""Internal channels of the server are not recorded by `*` and never replayed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from messager import MemoryBroker, MessageRecord, RedisBroker
from messager.brokers import Broker, MqttBroker
from messager.testing import RedisServer, redis_server
from messager_store import EventLog, Recorder, Replay
from messager_store.errors import StoreError
from messager_store.recording.tap import Tap
from tests.support import messager, nightly_after, until
from tests.support.logs import filled, sent
from tests.support.redis_topologies import ask

HELLO = b"127.0.0.1,26379,0000000000000000000000000000000000000000,9,mymaster,127.0.0.1,6379,9"
RECORDED = [
    sent(1, b"1", "exps:e1:a"),
    sent(2, HELLO, "__sentinel__:hello"),
    sent(3, b"expired", "__keyspace@0__:a"),
    sent(4, b"a", "__keyevent@0__:expired"),
    sent(5, HELLO, "__sentinel__:hello"),
    sent(6, b"2", "exps:e1:a"),
]
LEFT_OUT = {"__sentinel__:hello": 2, "__keyspace@0__:a": 1, "__keyevent@0__:expired": 1}


async def tapped(log: EventLog, server: RedisServer, exp_id: str, pattern: str, last: str) -> set[str]:
    """Return the channels that a tap on `pattern` records while a key is set and expires, up to a message on `last`."""
    broker = RedisBroker.from_url(server.url)
    async with Recorder(log, exp_id, role="tap", patterns=[pattern]) as recorder:
        listening = asyncio.Event()
        tap = Tap(broker, recorder, [pattern], active=listening.set)
        task = asyncio.create_task(tap.run())
        await listening.wait()
        await ask(server.port, "SET", "key", "value", "PX", 1)

        async def expired() -> bool:
            return await ask(server.port, "GET", "key") is None

        await until(expired)
        await ask(server.port, "PUBLISH", last, "x")
        heard: set[str] = set()

        async def came() -> bool:
            heard.update([entry.channel or "" async for entry in log.read(exp_id, kinds=["received"])])
            return last in heard

        await until(came)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await broker.close()
    return heard


async def test_a_tap_records_notifications_of_keys_only_for_a_pattern_that_names_them(log: EventLog) -> None:
    with redis_server("--notify-keyspace-events", "KEA") as server:
        assert await tapped(log, server, "all", "*", "exps:e1:a") == {"exps:e1:a"}
        named = await tapped(log, server, "named", "__key*", "__keyother")
        assert {"__keyspace@0__:key", "__keyevent@0__:expired"} <= named


async def test_a_replay_leaves_out_counts_and_names_what_the_server_once_published_by_itself(
    redis: RedisServer, redis_broker: RedisBroker, log: EventLog
) -> None:
    await filled(log, RECORDED)
    witness = RedisBroker.from_url(redis.url).pubsub()
    await witness.psubscribe("exps:*", "__*")
    dry = await Replay(log, "e1", redis_broker, dry_run=True).run()
    assert dry.internal == LEFT_OUT and dry.channels == {"exps:e1:a": 2}
    report = await Replay(log, "e1", redis_broker, speed="max").run()
    assert (report.planned, report.published, report.skipped, report.failed) == (2, 2, 4, 0)
    assert report.internal == report.to_dict()["internal"] == LEFT_OUT
    await redis_broker.publish([(b"exps:e1:end", b"")])
    heard = []
    while not heard or heard[-1][0] != b"exps:e1:end":
        message = await witness.get_message(timeout=60)
        assert message is not None
        heard.append((message["channel"], message["data"]))
    assert heard[:-1] == [(b"exps:e1:a", b"1"), (b"exps:e1:a", b"2")]
    await witness.aclose()


async def test_a_filter_bounds_what_is_counted_as_left_out(log: EventLog) -> None:
    await filled(log, RECORDED)
    report = await Replay(log, "e1", MemoryBroker(), speed="max", channels=["__key*"]).run()
    assert (report.planned, report.internal) == (0, {"__keyspace@0__:a": 1, "__keyevent@0__:expired": 1})
    report = await Replay(log, "e1", MemoryBroker(), speed="max", since="5:1:5").run()
    assert (report.planned, report.internal) == (1, {"__sentinel__:hello": 1})


@pytest.mark.parametrize(
    ("old", "new"),
    nightly_after(
        1, [("exps:*", "__keyspace@0__:*"), ("exps:e1:a", "__sentinel__:hello"), ("exps:e1:*", "__redis__:*")]
    ),
)
async def test_a_mapping_onto_a_channel_of_the_server_is_refused(log: EventLog, old: str, new: str) -> None:
    await filled(log, [sent(1, b"1", "exps:e1:a"), sent(2, b"2", "exps:e1:invalidate")])
    with pytest.raises(StoreError, match="the server itself publishes") as caught:
        await Replay(log, "e1", MemoryBroker(), mapping={old: new}, dry_run=True).run()
    assert len(str(caught.value).splitlines()) == 1


async def test_what_the_server_published_may_be_replayed_under_another_name(log: EventLog) -> None:
    await filled(log, RECORDED)
    report = await Replay(log, "e1", MemoryBroker(), speed="max", mapping={"__sentinel__:*": "hellos:*"}).run()
    assert report.published == 4 and "__sentinel__:hello" not in report.internal


@pytest.mark.parametrize("kind", ["redis", "mqtt"])
async def test_what_one_kind_of_server_published_is_not_replayed_on_the_other(
    kind: str, mqtt_broker: MqttBroker, redis_broker: RedisBroker, log: EventLog
) -> None:
    source: Broker = redis_broker if kind == "redis" else mqtt_broker
    target: Broker = mqtt_broker if kind == "redis" else redis_broker
    name = "__keyspace@0__:a" if kind == "redis" else "$SYS/broker/uptime"
    async with Recorder(log, "e1", role="tap") as recorder:
        recorder.connected(source.url, recorder.clock, None)
        for channel in (name, "exps:e1:a"):
            recorder.after(MessageRecord("received", recorder.clock.now(), channel, b"x"))
    report = await Replay(log, "e1", target, dry_run=True).run()
    assert report.internal == {name: 1} and len(report.channels) == 1


async def test_the_verb_says_what_it_left_out(redis: RedisServer, log: EventLog, store: str, tmp_path: Path) -> None:
    await filled(log, RECORDED)
    options = ("replay", "e1", "--store", store, "--broker", redis.url, "--speed", "max")
    done = await asyncio.to_thread(messager, *options, cwd=tmp_path)
    assert done.returncode == 0
    assert "4 messages left out, on __sentinel__:hello and 2 other channels" in done.stderr
    done = await asyncio.to_thread(messager, *options, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0
    assert all(f"{name} ({n} message" in done.stdout for name, n in LEFT_OUT.items())
    done = await asyncio.to_thread(messager, *options, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["internal"] == LEFT_OUT
    done = await asyncio.to_thread(messager, *options, "--map", "exps:e1:a=__sentinel__:hello", cwd=tmp_path)
    assert done.returncode != 0 and len(done.stderr.splitlines()) == 1 and "--map" in done.stderr
