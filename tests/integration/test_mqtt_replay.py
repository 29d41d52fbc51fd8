"""Recording over MQTT, and replaying from one kind of broker to the other."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from messager import MemoryBroker, MessageRecord, RedisBroker
from messager.brokers import Broker, MqttBroker
from messager.testing import MqttServer, RedisServer
from messager_store import EventLog, Recorder, Replay
from messager_store.errors import ReplayFailed, ReplayRefused
from messager_store.repair import close
from messager_store.tap import Tap
from tests.integration.test_log import filled, sent
from tests.support import MESSAGER, messager, until


@pytest.fixture
async def mqtt_broker(mqtt: MqttServer) -> AsyncIterator[MqttBroker]:
    made = MqttBroker.from_url(mqtt.url)
    yield made
    await made.close()


async def recorded(log: EventLog, exp_id: str, broker: Broker, messages: list[tuple[bytes, bytes]]) -> None:
    """A recording of these, made by a tap."""
    active = asyncio.Event()
    async with Recorder(log, exp_id, role="tap", patterns=["exps*"]) as recorder:
        tap = Tap(broker, recorder, ["exps*"], active=active.set)
        task = asyncio.create_task(tap.run(max_events=len(messages)))
        await active.wait()
        await broker.publish(messages)
        await asyncio.wait_for(task, 20)


async def arriving(broker: Broker, pattern: str, replay: Replay, count: int) -> list[tuple[bytes, bytes]]:
    """What a subscriber hears of a replay."""
    pubsub = broker.pubsub()
    await pubsub.psubscribe(pattern)
    await replay.run()
    found: list[tuple[bytes, bytes]] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            message = await pubsub.get_message(timeout=1)
            if message is not None:
                found.append((message["channel"], message["data"]))
    await pubsub.aclose()
    return found


ON_REDIS = [(b"exps:e1:agents:7:chat", b"1"), (b"exps:e1:user-payback", b"2"), (b"exps:a/b:agents:x:y", b"3")]
ON_MQTT = [(b"exps/e1/agents/7/chat", b"1"), (b"exps/e1/user-payback", b"2"), (b"exps/a:b/agents/x/y", b"3")]


async def test_a_recording_of_redis_is_replayed_on_mqtt_under_the_names_it_has_there(
    redis_broker: RedisBroker, mqtt_broker: MqttBroker, log: EventLog
) -> None:
    await recorded(log, "e1", redis_broker, ON_REDIS)
    assert await arriving(mqtt_broker, "#", Replay(log, "e1", mqtt_broker), 3) == ON_MQTT
    kept = Replay(log, "e1", mqtt_broker, keep_names=True)
    assert await arriving(mqtt_broker, "*", kept, 3) == ON_REDIS


async def test_a_recording_of_mqtt_is_replayed_on_redis_and_on_mqtt_itself(
    redis_broker: RedisBroker, mqtt_broker: MqttBroker, log: EventLog
) -> None:
    await recorded(log, "e1", mqtt_broker, ON_MQTT)
    assert await arriving(redis_broker, "*", Replay(log, "e1", redis_broker), 3) == ON_REDIS
    assert await arriving(mqtt_broker, "#", Replay(log, "e1", mqtt_broker, to_exp="e2"), 3) == [
        (b"exps/e2/agents/7/chat", b"1"),
        (b"exps/e2/user-payback", b"2"),
        (b"exps/e2/agents/x/y", b"3"),
    ]
    mapped = Replay(log, "e1", redis_broker, mapping={"exps/e1/*": "exps/there/*"}, to_exp="e3")
    assert (await arriving(redis_broker, "*", mapped, 3))[1:] == [
        (b"exps/there/user-payback", b"2"),  # as it was asked for
        (b"exps:e3:agents:x:y", b"3"),
    ]


async def test_names_that_mqtt_has_itself_stay_where_it_was_recorded(mqtt_broker: MqttBroker, log: EventLog) -> None:
    await recorded(log, "e1", mqtt_broker, ON_REDIS[:1])
    assert await arriving(mqtt_broker, "*", Replay(log, "e1", mqtt_broker), 1) == ON_REDIS[:1]


async def test_a_message_on_what_is_no_topic_is_counted_as_refused(mqtt_broker: MqttBroker, log: EventLog) -> None:
    await filled(log, [sent(1, b"a", "exps:e1:a"), sent(2, b"b", "irc:#rust"), sent(3, b"c", "exps:e1:b")])
    replay = Replay(log, "e1", mqtt_broker)
    assert await arriving(mqtt_broker, "exps/#", replay, 2) == [(b"exps/e1/a", b"a"), (b"exps/e1/b", b"c")]
    assert (replay.report.published, replay.report.failed) == (2, 1)


async def test_full_speed_needs_a_rate_and_the_report_says_that_flow_control_was_off(
    mqtt_broker: MqttBroker, log: EventLog
) -> None:
    await filled(log, [sent(number, b"x", "exps:e1:a") for number in range(20)])
    with pytest.raises(ReplayRefused, match="--rate"):
        await Replay(log, "e1", mqtt_broker, speed="max").run()
    report = await Replay(log, "e1", mqtt_broker, speed="max", rate=100_000).run()
    assert (report.published, report.flow_control, report.no_subscriber) == (20, False, 0)
    with pytest.raises(ReplayFailed, match="does not tell who is subscribed"):
        await Replay(log, "e1", mqtt_broker, wait_for_subscribers=1).run()


async def test_what_was_retained_is_recorded_so_and_is_retained_again_by_a_replay(
    mqtt: MqttServer, mqtt_broker: MqttBroker, log: EventLog
) -> None:
    state, live = b"exps/r/state", b"exps/r/live"
    await mqtt_broker.publish_as([(state, b"old")], [{"retained": True}])
    async with Recorder(log, "e1", role="tap") as recorder:
        tap = Tap(mqtt_broker, recorder, ["exps/r/#"])
        task = asyncio.create_task(tap.run())
        await until(lambda: tap.messages >= 1)
        await mqtt_broker.publish_as([(live, b"new"), (live, b"low")], [None, {"qos": 0}])

        async def heard_all() -> bool:
            return {b"new", b"low"} <= {entry.payload async for entry in log.read("e1")}

        await until(heard_all)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await mqtt_broker.publish_as([(state, b"")], [{"retained": True}])  # forgotten
    events = [(entry.channel, entry.payload, entry.meta) async for entry in log.read("e1")]
    retained = [meta for channel, _, meta in events if channel == "exps/r/state"]
    assert retained and all(meta is not None and meta["retained"] for meta in retained)
    assert ("exps/r/live", b"new", None) in events
    assert await arriving(mqtt_broker, "exps/r/#", Replay(log, "e1", mqtt_broker), 3)
    late = mqtt_broker.pubsub()
    await late.psubscribe("exps/r/#")
    async with asyncio.timeout(20):
        while (message := await late.get_message(timeout=1)) is None:
            pass
    assert (message["channel"], message["data"], message["meta"]["retained"]) == (state, b"old", True)
    while (message := await late.get_message(timeout=0.05)) is not None:
        assert message["channel"] == state  # what was not retained is not
    await late.aclose()
    await mqtt_broker.publish_as([(state, b"")], [{"retained": True}])
    assert len(await arriving(MemoryBroker(), "*", Replay(log, "e1", MemoryBroker()), 0)) == 0


async def test_a_replay_publishes_in_the_quality_that_was_recorded(log: EventLog) -> None:
    published: list[Any] = []

    class Retaining(MemoryBroker):
        def publish_as(self, messages: Any, how: Any) -> Any:
            published.extend(zip(messages, how, strict=True))
            return super().publish(messages)

    await filled(log, [sent(1, b"a", meta={"qos": 0}), sent(2, b"b"), sent(3, b"c", meta={"retained": True})])
    await Replay(log, "e1", Retaining(), speed=1e9).run()
    assert [how for _, how in published] == [{"qos": 0}, None, {"retained": True}]


async def test_a_retained_copy_is_no_delivery_of_what_was_sent(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder:
        now = recorder.clock.now()
        recorder.after(MessageRecord("sent", now, "c", b"x"))
        recorder.after(MessageRecord("received", now + 1_000, "c", b"x", meta={"retained": True}))
        recorder.after(MessageRecord("received", now + 2_000, "c", b"x"))
    await close(log, await log.experiment("e1"))
    async with log.database.reading() as connection:
        rows = (await connection.execute(text("SELECT received_at FROM delivery"))).scalars().all()
    assert rows == [now + 2_000]


async def test_a_replay_into_what_is_recorded_by_a_filter_is_refused(mqtt_broker: MqttBroker, log: EventLog) -> None:
    async with Recorder(log, "e1", role="tap", patterns=["exps/+/a"]) as recorder:
        recorder.after(MessageRecord("received", recorder.clock.now(), "exps/e1/a", b"x"))
        recorder.connected(mqtt_broker.url, recorder.clock, None)
        await recorder.flush()

        async def refused() -> bool:
            try:
                await Replay(log, "e1", mqtt_broker, dry_run=True).run()
            except ReplayRefused as error:
                return "exps/e1/a" in str(error)
            return False

        await until(refused)
        await Replay(log, "e1", mqtt_broker, to_exp="e2", mapping={"exps/e1/a": "b"}).run()
        await Replay(log, "e1", MemoryBroker()).run()  # nobody listens there


def test_the_command_line_records_from_mqtt_and_replays_to_redis_and_back(
    mqtt: MqttServer, redis: RedisServer, tmp_path: Path
) -> None:
    environment = {**os.environ, "MESSAGER_BROKER": mqtt.url}

    def recording(exp: str, pattern: str, broker: str) -> subprocess.Popen[str]:
        words = ["record", pattern, "--exp", exp, "--max-events", "3", "--broker", broker]
        tap = subprocess.Popen([*MESSAGER, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert tap.stderr is not None
        lines = [tap.stderr.readline()]
        while "recording" not in lines[-1]:
            assert tap.poll() is None, lines
            lines.append(tap.stderr.readline())
        assert "127.0.0.1" in lines[-1]
        if pattern.startswith("exps:") and broker == mqtt.url:
            assert "on MQTT exps:* is exps/*" in lines[0]
        return tap

    def run(*words: str) -> Any:
        done = messager(*words, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done

    lines = [{"ts": at, "channel": f"exps:cli:agents:{at}:chat", "payload": f"p{at}"} for at in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("import", "a.jsonl", "--exp", "there")
    first = recording("over-mqtt", "exps:*", mqtt.url)
    report = json.loads(run("replay", "there", "--speed", "max", "--rate", "1000", "--json").stdout)
    assert (report["published"], report["flow_control"]) == (3, False)
    assert first.wait(20) == 0
    second = recording("over-redis", "exps:*", redis.url)
    run("replay", "over-mqtt", "--broker", redis.url)
    assert second.wait(20) == 0
    for tap in (first, second):
        assert tap.stderr is not None
        tap.stderr.close()
    for exp, channel in (("over-mqtt", "exps/cli/agents/2/chat"), ("over-redis", "exps:cli:agents:2:chat")):
        lines = [json.loads(line) for line in run("events", exp, "--json").stdout.splitlines()]
        assert [line["payload"] for line in lines] == ["p0", "p1", "p2"] and lines[2]["channel"] == channel
        assert lines[2]["to_id"] == 2
    refused = messager("replay", "there", "--speed", "max", cwd=tmp_path, env=environment)
    assert refused.returncode != 0 and "--rate" in refused.stderr and len(refused.stderr.splitlines()) == 1
