"""Recording over MQTT, and replaying from one kind of broker to the other."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager, MessageRecord, RedisBroker
from messager.brokers import Broker, MqttBroker
from messager.mqtt import Messager as MqttMessager
from messager.testing import MqttServer, free_port
from messager_store import EventLog, Recorder, Replay
from messager_store.errors import ReplayFailed, ReplayRefused, StoreError
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.log.selection import Selection
from messager_store.projection.tables import table
from messager_store.queries.comparison.compare import compare
from messager_store.recording.tap import Tap
from messager_store.replay import ChannelMap
from tests.support import MESSAGER, Proxy, messager, until
from tests.support.logs import filled, sent

SECOND = 1_000_000_000


async def recorded(log: EventLog, exp_id: str, broker: Broker, messages: list[tuple[bytes, bytes]]) -> None:
    """Record these messages with a tap."""
    active = asyncio.Event()
    async with Recorder(log, exp_id, role="tap", patterns=["exps*"]) as recorder:
        tap = Tap(broker, recorder, ["exps*"], active=active.set)
        task = asyncio.create_task(tap.run(max_events=len(messages)))
        await active.wait()
        await broker.publish(messages)
        await asyncio.wait_for(task, 60)


async def arriving(broker: Broker, pattern: str, replay: Replay, count: int) -> list[tuple[bytes, bytes]]:
    """Return the messages that a subscriber receives from a replay."""
    pubsub = broker.pubsub()
    await pubsub.psubscribe(pattern)
    await replay.run()
    found: list[tuple[bytes, bytes]] = []
    async with asyncio.timeout(60):
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


async def test_a_recording_of_redis_and_its_replay_recorded_on_mqtt_are_equal_unless_names_are_kept(
    redis_broker: RedisBroker, mqtt_broker: MqttBroker, log: EventLog, tmp_path: Path
) -> None:
    await recorded(log, "a", redis_broker, ON_REDIS)
    replay = Replay(log, "a", mqtt_broker, to_exp="e2", mapping={"exps:e1:user-payback": "exps/e3/user-payback"})
    active = asyncio.Event()
    async with Recorder(log, "b", role="tap", patterns=["exps/*"]) as recorder:
        task = asyncio.create_task(Tap(mqtt_broker, recorder, ["exps/*"], active=active.set).run(max_events=3))
        await active.wait()
        await replay.run()
        await asyncio.wait_for(task, 60)

    async def compared(a: str = "a", b: str = "b", **options: Any) -> tuple[bool, int, int]:
        renamed = ChannelMap({"exps:e1:user-payback": "exps/e3/user-payback"}, "e2") if a == "a" else None
        result = await compare(log, a, b, mapping=renamed, **options)
        return result.equal, result.channels, result.messages_b

    assert await compared() == (True, 3, 3)
    assert await compared(keep_names=True) == (False, 5, 3)
    for pattern in ("exps:e*:user-payback", "exps/e*/user-payback", "*:user-payback", "*/user-payback"):
        assert await compared(selection=Selection(None, [pattern])) == (True, 1, 1)
        assert await compared(selection=Selection(None, None, [pattern])) == (True, 2, 2)
    difference = (await compare(log, "a", "b")).differences[0]
    assert difference.channel.startswith("exps:") and difference.a is not None and difference.b is None
    await export_jsonl(log, "a", tmp_path / "a.jsonl")  # which does not tell where it was recorded
    await import_jsonl(log, tmp_path / "a.jsonl", "imported")
    result = await compare(log, "b", "imported", mapping=ChannelMap({"exps/e3/*": "exps/e1/*"}, "e1"))
    assert result.translated and result.same == 2  # the third was of another experiment before
    both = [(b"exps/e1/x", b"1"), (b"exps:e1:x", b"2")]
    await recorded(log, "of both", redis_broker, both)
    await export_jsonl(log, "of both", tmp_path / "both.jsonl")
    await import_jsonl(log, tmp_path / "both.jsonl", "both")  # what has names of both kinds is taken as it is written
    await recorded(log, "d", mqtt_broker, both)
    assert not (await compare(log, "both", "d")).translated
    await recorded(log, "c", mqtt_broker, [*ON_MQTT, *ON_REDIS])  # one kind of broker: two names are two channels
    assert await compared("c", "c") == (True, 6, 6)


async def test_names_that_mqtt_has_itself_stay_where_it_was_recorded(mqtt_broker: MqttBroker, log: EventLog) -> None:
    await recorded(log, "e1", mqtt_broker, ON_REDIS[:1])
    assert await arriving(mqtt_broker, "*", Replay(log, "e1", mqtt_broker), 1) == ON_REDIS[:1]


NO_TOPICS = ["irc:#rust", "irc:#rust", "exps:e1:a+", "", "nul\x00", "x" * 65_536]


async def test_messages_on_what_is_no_topic_are_counted_and_named_as_refused_and_before_that_by_a_dry_run(
    mqtt_broker: MqttBroker, log: EventLog
) -> None:
    bad = [sent(at, b"b", channel) for at, channel in enumerate(NO_TOPICS, 2)]
    await filled(log, [sent(1, b"a", "exps:e1:a"), *bad, sent(9, b"c", "exps:e1:b")])
    told = [("irc:#rust", 2, "2:1:2"), ("exps/e1/a+", 1, "4:1:4"), ("", 1, "5:1:5"), ("nul\x00", 1, "6:1:6")]
    told.append((NO_TOPICS[-1], 1, "7:1:7"))
    replay = Replay(log, "e1", mqtt_broker)
    assert await arriving(mqtt_broker, "exps/#", replay, 2) == [(b"exps/e1/a", b"a"), (b"exps/e1/b", b"c")]
    dry = await Replay(log, "e1", mqtt_broker, dry_run=True).run()
    for report in (replay.report, dry):
        assert [(one.channel, one.messages, one.first) for one in report.failures] == told
        assert {one.outcome for one in report.failures} == {"refused"} and (report.failed, report.unknown) == (6, 0)
        for one, why in zip(report.failures, ("wildcards", "wildcards", "empty", "x00", "65,535"), strict=True):
            assert why in one.reason
    assert (replay.report.published, dry.published, dry.planned) == (2, 0, 8)
    assert (await Replay(log, "e1", MemoryBroker(), dry_run=True).run()).failures == []


async def test_what_a_broker_said_of_itself_is_left_out_of_a_replay_unless_it_gets_another_name(
    mqtt_broker: MqttBroker, log: EventLog
) -> None:
    await filled(
        log, [sent(1, b"a", "exps:e1:a"), sent(2, b"b", "$SYS/broker/uptime"), sent(3, b"c", "$SYS/broker/load")]
    )
    replay = Replay(log, "e1", mqtt_broker, mapping={"$SYS/broker/load": "load"})
    assert await arriving(mqtt_broker, "#", replay, 2) == [(b"exps/e1/a", b"a"), (b"load", b"c")]
    dry = await Replay(log, "e1", mqtt_broker, mapping={"$SYS/broker/load": "load"}, dry_run=True).run()
    for report in (replay.report, dry):
        assert (report.internal, report.failures) == ({"$SYS/broker/uptime": 1}, [])
    assert await mqtt_broker.publish([(b"$own/topic", b"x")]) == [None]  # a program may know better


async def chosen(log: EventLog, exp_id: str, pattern: str) -> tuple[list[str | None], list[str | None]]:
    """Return the channels that a pattern selects, and those that remain if it excludes."""
    taken = [entry.channel async for entry in log.read(exp_id, kinds=["received", "sent"], channels=[pattern])]
    return taken, [entry.channel async for entry in log.read(exp_id, kinds=["received", "sent"], exclude=[pattern])]


async def test_channels_of_a_recording_of_mqtt_may_be_chosen_by_a_filter_and_those_of_redis_by_their_names(
    mqtt_broker: MqttBroker, redis_broker: RedisBroker, log: EventLog
) -> None:
    a, b, deep = names = ["exps/a/x", "exps/b/x", "exps/a/x/y"]
    await recorded(log, "m", mqtt_broker, [(name.encode(), b"1") for name in names])
    await filled(log, [sent(at, b"1", name) for at, name in enumerate(names)], "imported")
    for exp_id in ("m", "imported"):
        assert await chosen(log, exp_id, "exps/+/x") == ([a, b], [deep])
        assert await chosen(log, exp_id, "exps/a/#") == ([a, deep], [b])
        assert await chosen(log, exp_id, "exps/*/x") == ([a, b], [deep])
    report = await Replay(log, "m", mqtt_broker, channels=["exps/+/x"], dry_run=True).run()
    assert report.channels == {a: 1, b: 1}
    literal = "exps/+/x"
    await recorded(log, "r", redis_broker, [(name.encode(), b"1") for name in (a, literal)])
    assert await chosen(log, "r", literal) == ([literal], [a])
    await filled(log, [sent(1, b"1", a), sent(2, b"1", literal)], "imported too")
    assert await chosen(log, "imported too", literal) == ([literal], [a])
    result = await compare(log, "m", "imported", selection=Selection(None, [literal]))
    assert (result.equal, result.channels) == (True, 2)
    await recorded(log, "s", redis_broker, [(name.replace("/", ":").encode(), b"1") for name in names])
    result = await compare(log, "s", "m", selection=Selection(None, [literal]))
    assert (result.translated, result.equal, result.messages_a, result.messages_b) == (True, True, 2, 2)


async def test_waiting_for_subscribers_that_nobody_can_count_is_wrong_use(log: EventLog) -> None:
    with pytest.raises(StoreError, match=r"MQTT.* start the subscribers first") as caught:
        Replay(log, "e1", MqttBroker("127.0.0.1", free_port()), wait_for_subscribers=1)
    assert caught.value.exit_code == 2


async def test_messages_whose_acknowledgement_was_lost_are_counted_and_named_as_unknown(
    mqtt: MqttServer, log: EventLog
) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        await filled(log, [sent(1, b"a", "one"), *(sent(SECOND, b"last", f"t{at}") for at in range(3))])
        broker = MqttBroker("127.0.0.1", proxy.port, timeout=2.0)
        proxy.cut_answer_to = b"last"
        replay = Replay(log, "e1", broker, speed=1000)
        with pytest.raises(ReplayFailed, match=r"; 1 messages were .*, up to \d+:1:2; the outcome of 3 is unknown"):
            await replay.run()
        await broker.close()
    report = replay.report
    assert (report.published, report.failed, report.unknown) == (1, 0, 3)
    assert [(one.channel, one.outcome) for one in report.failures] == [(f"t{at}", "unknown") for at in range(3)]
    assert all("the answer of mqtt://127.0.0.1" in one.reason for one in report.failures)


async def test_full_speed_needs_a_rate_and_the_report_says_that_flow_control_was_off(
    mqtt_broker: MqttBroker, log: EventLog
) -> None:
    await filled(log, [sent(number, b"x", "exps:e1:a") for number in range(20)])
    with pytest.raises(ReplayRefused, match="--rate"):
        await Replay(log, "e1", mqtt_broker, speed="max").run()
    report = await Replay(log, "e1", mqtt_broker, speed="max", rate=100_000).run()
    assert (report.published, report.flow_control, report.no_subscriber) == (20, False, None)


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
    assert ["retained" in (meta or {}) for _, payload, meta in events if payload == b"new"] == [False]
    assert await arriving(mqtt_broker, "exps/r/#", Replay(log, "e1", mqtt_broker), 3)
    late = mqtt_broker.pubsub()
    await late.psubscribe("exps/r/#")
    async with asyncio.timeout(60):
        while (message := await late.get_message(timeout=1)) is None:
            pass
    assert (message["channel"], message["data"], message["meta"]["retained"]) == (state, b"old", True)
    while (message := await late.get_message(timeout=0.05)) is not None:
        assert message["channel"] == state  # what was not retained is not
    await late.aclose()
    await mqtt_broker.publish_as([(state, b"")], [{"retained": True}])
    assert len(await arriving(MemoryBroker(), "*", Replay(log, "e1", MemoryBroker()), 0)) == 0


async def qualities(log: EventLog, exp_id: str, broker: MqttBroker, how: list[dict[str, Any] | None]) -> list[Any]:
    """Return the meta that a tap records for messages published with these options, on `q/0`, `q/1` and so on."""
    active = asyncio.Event()
    async with Recorder(log, exp_id, role="tap", patterns=["q/#"]) as recorder:
        task = asyncio.create_task(Tap(broker, recorder, ["q/#"], active=active.set).run(max_events=len(how)))
        await active.wait()
        await broker.publish_as([(b"q/%d" % at, b"x") for at in range(len(how))], how)
        await asyncio.wait_for(task, 60)
    return [meta for _, meta in sorted([(entry.channel, entry.meta) async for entry in log.read(exp_id)])]


async def test_a_tap_hears_each_message_in_the_quality_it_was_published_in_and_a_replay_publishes_it_in_that(
    mqtt: MqttServer, mqtt_broker: MqttBroker, redis_broker: RedisBroker, log: EventLog
) -> None:
    how: list[dict[str, Any] | None] = [{"qos": 0}, {"qos": 1}, {"qos": 2}]
    as_published = await qualities(log, "e0", mqtt_broker, how)
    assert as_published[2] == {"qos": 2}
    faithful = as_published != [{"qos": 2}] * 3  # amqtt hands everything on in the quality that was subscribed to
    assert not faithful or as_published[1] is None
    await recorded(log, "redis", redis_broker, ON_REDIS[:1])
    for given in (0, 1, 2):
        broker, witness = MqttBroker.from_url(f"{mqtt.url}?qos={given}"), MqttBroker.from_url(mqtt.url, qos=2).pubsub()
        await witness.psubscribe("#")
        await Replay(log, "e0", broker, to_exp="e1").run()
        await Replay(log, "redis", broker).run()
        found: dict[bytes, Any] = {}
        async with asyncio.timeout(60):
            while len(found) < 4:
                if (message := await witness.get_message(timeout=1)) is not None:
                    found[message["channel"]] = message.get("meta")
        assert [found[b"q/%d" % at] for at in (1, 2)] == as_published[1:], given
        # Redis knows no such thing, so there the broker's URL says it.
        assert not faithful or found[ON_MQTT[0][0]] == {0: {"qos": 0}, 1: None, 2: {"qos": 2}}[given]
        await witness.aclose()
        await broker.close()


async def test_a_tap_that_was_given_a_quality_of_service_subscribes_with_it(mqtt: MqttServer, log: EventLog) -> None:
    broker = MqttBroker.from_url(f"{mqtt.url}?qos=1")
    assert await qualities(log, "e0", broker, [{"qos": 1}, {"qos": 2}]) == [None, None]
    await broker.close()


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
    [row] = (await table(log, await log.experiment("e1"))).to_pylist()
    assert (row["copies"], row["received_at"].microsecond) == (1, (now + 2_000) // 1000 % 1_000_000)


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
        with pytest.raises(ReplayRefused, match="exps/e1/a"):
            await Replay(log, "e1", mqtt_broker, channels=["exps/+/a"], dry_run=True).run()
        await Replay(log, "e1", mqtt_broker, to_exp="e2", mapping={"exps/e1/a": "b"}).run()
        await Replay(log, "e1", MemoryBroker()).run()  # nobody listens there


async def test_what_a_messager_sends_on_mqtt_is_recorded_from_outside_with_the_names_it_has_there(
    mqtt: MqttServer, mqtt_broker: MqttBroker, tmp_path: Path
) -> None:
    def tap(exp: str, *words: str) -> tuple[subprocess.Popen[str], str]:
        line = [*MESSAGER, "record", "exps:out:*", "--exp", exp, "--broker", mqtt.url, "--max-events", "1", *words]
        process = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        said = process.stderr.readline()
        while "recording" not in said:
            assert process.poll() is None, said
            said += process.stderr.readline()
        return process, said

    kept, said = tap("kept", "--keep-names")
    assert "is exps/" not in said
    translated, said = tap("translated")
    assert "on MQTT exps:out:* is exps/out/*" in said and "--keep-names" in said
    async with Messager(mqtt_broker, "out") as agent:
        await agent.send_message(agent.get_agent_chat_channel(7), {"n": 1})
    async with MqttMessager(mqtt_broker, exp_id="out") as other:
        await other.send_message(other.get_agent_chat_channel(7), {"n": 2})
    for process in (kept, translated):
        assert await asyncio.to_thread(process.wait, 20) == 0
        assert process.stderr is not None
        process.stderr.close()
    expected = ("kept", "exps:out:agents:7:agent-chat", 1), ("translated", "exps/out/agents/7/agent-chat", 2)
    for exp, channel, number in expected:
        [line] = messager("events", exp, "--json", cwd=tmp_path).stdout.splitlines()
        found = json.loads(line)
        assert (found["channel"], found["to_id"], json.loads(found["payload"])) == (channel, 7, {"n": number})
    differ = messager("diff", "kept", "translated", "--json", cwd=tmp_path)
    assert differ.returncode == 1 and json.loads(differ.stdout)["channels"] == 2
