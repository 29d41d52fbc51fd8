"""Subscribers on MQTT: received messages, their form, and gaps."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiomqtt
import pytest

from messager import Messager
from messager.brokers import MqttBroker
from messager.brokers.mqtt.pubsub import MqttPubSub
from messager.brokers.mqtt.session import Session
from messager.errors import BrokerUnavailable
from messager.testing import MqttServer
from tests.support import Proxy, until
from tests.support.mqtt import heard, through

PUBLISH = b"\x05\x00\x01w\x00\x01"


async def test_a_lost_subscriber_comes_back_with_its_subscriptions_and_tells_a_gap(
    mqtt: MqttServer, mqtt_broker: MqttBroker
) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        pubsub = through(proxy).pubsub()
        await pubsub.psubscribe("g/*", "exps/+/x")
        before = time.monotonic_ns()
        proxy.cut()
        await until(lambda: pubsub.lost_since() is not None)
        with pytest.raises(BrokerUnavailable):
            await pubsub.psubscribe("more")
        gap = await heard(pubsub)
        assert gap["type"] == "gap" and gap["reason"]
        assert gap["since"] <= before <= gap["until"] <= time.monotonic_ns()
        assert pubsub.lost_since() is None
        await mqtt_broker.publish([(b"g/1", b"a"), (b"exps/1/x", b"b"), (b"more", b"c")])
        assert [(await heard(pubsub))["data"] for _ in range(2)] == [b"a", b"b"]
        await pubsub.aclose()


async def test_a_network_that_fell_silent_is_noticed_by_pings(
    mqtt: MqttServer, mqtt_broker: MqttBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager.brokers.mqtt.session.CONNECT_TIMEOUT", 3.0)  # for each try while it is silent
    async with Proxy(mqtt.port).running() as proxy:
        pubsub = through(proxy).pubsub()
        await pubsub.psubscribe("s")
        proven = pubsub._proven
        while pubsub._proven == proven:  # pings that are answered prove that nothing is missing
            assert await pubsub.get_message(timeout=0.05) is None
        assert pubsub.lost_since() is None
        fell = time.monotonic_ns()
        proxy.silent = True
        await mqtt_broker.publish([(b"s", b"lost")])
        async with asyncio.timeout(60):
            while pubsub.lost_since() is None:
                assert await pubsub.get_message(timeout=0.05) is None
        proxy.cut()
        proxy.silent = False
        gap = await heard(pubsub)
        assert gap["type"] == "gap" and "no answer to a ping" in gap["reason"]
        assert proven < gap["since"] <= fell
        await mqtt_broker.publish([(b"s", b"back")])
        assert (await heard(pubsub))["data"] == b"back"
        await pubsub.aclose()


async def test_a_large_message_on_a_slow_link_is_no_silence(mqtt: MqttServer, mqtt_broker: MqttBroker) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        pubsub = through(proxy, ping_timeout=1.0).pubsub()
        await pubsub.psubscribe("slow")
        proxy.answer_delay = 0.02  # 64 kB every 20 ms: 2 s for what follows, five times the patience
        payload = b"x" * (6 * 1024 * 1024)
        assert await mqtt_broker.publish([(b"slow", payload)]) == [None]
        async with asyncio.timeout(60):
            while (message := await pubsub.get_message(timeout=0.1)) is None:
                assert pubsub.lost_since() is None
        assert message["data"] == payload
        await pubsub.aclose()


async def test_a_gap_begins_before_the_messages_that_were_still_on_their_way(
    mqtt: MqttServer, mqtt_broker: MqttBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gap does not begin at the last message read. Pings are delayed, as amqtt answers them
    before it delivers the messages that it has accepted.
    """
    monkeypatch.setattr("messager.brokers.mqtt.pubsub.PROVE_NS", 60_000_000_000)
    async with Proxy(mqtt.port).running() as proxy:
        pubsub = through(proxy, ping_interval=30.0).pubsub()
        await pubsub.psubscribe("held")
        proxy.answer_delay = 0.02
        sent_at = time.monotonic_ns()
        assert await mqtt_broker.publish([(b"held", bytes(6000))] * 200) == [None] * 200
        received = 0
        while received < 40:
            received += await pubsub.get_message(timeout=0.1) is not None
        proxy.cut()
        proxy.answer_delay = 0.0
        while (message := await heard(pubsub))["type"] != "gap":
            received += 1
        assert received < 200
        assert message["since"] <= sent_at
        await pubsub.aclose()


@pytest.mark.parametrize(
    ("first", "before_the_answer", "count"),
    [
        # A broker sends some ahead of their acknowledgements, and answers at once: the others come behind it.
        (b"\x32" + PUBLISH, (b"\x32" + PUBLISH) * 15, 17),
        (b"\x34" + PUBLISH, b"", 1),  # of quality 2, and not released
    ],
)
async def test_an_answer_to_a_ping_that_overtook_messages_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, first: bytes, before_the_answer: bytes, count: int
) -> None:
    monkeypatch.setattr("messager.brokers.mqtt.pubsub.PROVE_NS", 1)
    answers = {1: b"\x20\x02\x00\x00", 8: b"\x90\x03%b\x01" + first, 10: before_the_answer + b"\xb0\x02%b"}
    ended: list[bool] = []
    published: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pings = 0
        while pings < 2 and (head := await reader.read(2)):  # the second is not answered
            packet = await reader.readexactly(head[1])
            pings += head[0] >> 4 == 10 and not ended
            if head[0] >> 4 == 8:
                published.append(time.monotonic_ns())
            if pings < 2:
                writer.write(answers.get(head[0] >> 4, b"").replace(b"%b", packet[:2]))
        writer.close()
        await writer.wait_closed()
        ended.append(True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pubsub = MqttBroker("127.0.0.1", server.sockets[0].getsockname()[1], ping_interval=0.05).pubsub()
    await pubsub.psubscribe("w")
    kinds = [message := await heard(pubsub)]
    while message["type"] != "gap":
        kinds.append(message := await heard(pubsub))
    assert len(kinds) == count
    assert message["since"] <= published[0]
    await pubsub.aclose()
    await until(lambda: len(ended) == 2)
    server.close()


async def test_who_leaves_too_much_unfetched_is_told_a_gap(
    mqtt_broker: MqttBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager.brokers.mqtt.pubsub.INBOX_BYTES", 5000)
    pubsub = mqtt_broker.pubsub()
    await pubsub.psubscribe("full")
    await mqtt_broker.publish([(b"full", bytes(1000))] * 10)
    await until(lambda: pubsub.lost_since() is not None)
    kinds = [(await heard(pubsub))["type"]]
    while kinds[-1] != "gap":
        kinds.append((await heard(pubsub))["type"])
    assert 5 <= len(kinds) <= 11
    await pubsub.aclose()


async def test_a_message_comes_once_for_each_pattern_whatever_the_broker_makes_of_overlapping_subscriptions(
    mqtt_broker: MqttBroker,
) -> None:
    pubsub = mqtt_broker.pubsub()
    await pubsub.psubscribe("a/+", "+/b", "a/b")
    await mqtt_broker.publish([(b"a/b", b"1"), (b"a/c", b"2"), (b"x/b", b"3"), (b"x/y", b"no"), (b"a/c", b"end")])
    found = []
    while not found or found[-1][1] != b"end":
        message = await heard(pubsub)
        found.append((message["pattern"], message["data"]))
    assert found == [
        *((pattern, b"1") for pattern in (b"a/+", b"+/b", b"a/b")),
        (b"a/+", b"2"),
        (b"+/b", b"3"),
        (b"a/+", b"end"),
    ]
    await pubsub.psubscribe("a/#")  # covers what is there
    await mqtt_broker.publish([(b"a/c", b"4"), (b"a/c/d", b"5")])
    assert [(await heard(pubsub))["data"] for _ in range(3)] == [b"4", b"4", b"5"]
    await pubsub.aclose()


async def test_a_pattern_that_no_topic_fits_is_refused_before_anything_is_sent(mqtt: MqttServer) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        broker = through(proxy)
        pubsub = broker.pubsub()
        for pattern in ("a/#/b", "a+/b", "", "irc:#rust"):
            with pytest.raises(ValueError, match="cannot subscribe to"):
                await pubsub.psubscribe("first/#", pattern)
        assert proxy.requests == b""
        async with Messager(broker, "e1") as messager:
            with pytest.raises(ValueError, match=r"cannot subscribe to .*4\.7"):
                await messager.subscribe_and_start_listening(["first/#", "a/#/b"])
            assert b"first" not in proxy.requests
            await messager.subscribe_and_start_listening(["first/#"])
            with pytest.raises(ValueError, match=r"cannot subscribe to .*4\.7"):
                await messager.subscribe_and_start_listening(["a+/b"])
        await pubsub.aclose()
        await broker.close()


async def test_a_subscription_that_is_shared_is_refused(mqtt_broker: MqttBroker) -> None:
    pubsub = mqtt_broker.pubsub()
    with pytest.raises(ValueError, match="leave out"):
        await pubsub.psubscribe("$share/group/t/#")
    await pubsub.aclose()


async def test_retained_messages_and_qualities_of_service_are_told(mqtt: MqttServer, mqtt_broker: MqttBroker) -> None:
    how: list[dict[str, Any] | None] = [{"retained": True}, {"qos": 0}, None, {"qos": 2, "retained": False}]
    listening = MqttBroker.from_url(mqtt_broker.url + "?qos=2").pubsub()
    await listening.psubscribe("q/*")
    async with aiomqtt.Client("127.0.0.1", mqtt.port) as witness:  # brokers differ in what they make of a quality
        await witness.subscribe("q/#", 2)
        assert await mqtt_broker.publish_as([(b"q/%d" % n, b"x") for n in range(4)], how) == [None] * 4
        seen = [await anext(aiter(witness.messages)) for _ in range(4)]
    live = {message["channel"]: message.get("meta") for message in [await heard(listening) for _ in range(4)]}
    assert not any(message.retain for message in seen)
    assert live == {m.topic.value.encode(): None if m.qos == 1 else {"qos": m.qos} for m in seen}
    assert live[b"q/3"] == {"qos": 2}
    late = mqtt_broker.pubsub()
    await late.psubscribe("q/*")
    message = await heard(late)
    assert (message["channel"], message["data"], message["meta"]["retained"]) == (b"q/0", b"x", True)
    await mqtt_broker.publish([(b"q/0", b"y")])
    while (message := await heard(late))["data"] != b"y":  # amqtt sends what it retained twice
        assert message["meta"]["retained"]
    assert "meta" not in message
    await mqtt_broker.publish_as([(b"q/0", b"")], [{"retained": True}])  # forget it again
    for pubsub in (listening, late):
        await pubsub.aclose()


async def test_a_subscription_may_ask_for_another_quality_of_service(mqtt_broker: MqttBroker) -> None:
    pubsub = mqtt_broker.pubsub()
    await pubsub.psubscribe("z/1", qos=0)
    await pubsub.psubscribe("z/2")
    await mqtt_broker.publish([(b"z/1", b"x"), (b"z/2", b"x")])
    assert [(await heard(pubsub)).get("meta") for _ in range(2)] == [{"qos": 0}, None]
    await pubsub.aclose()


async def test_retained_messages_of_a_failed_try_to_subscribe_again_are_dropped(
    mqtt_broker: MqttBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mqtt_broker.publish_as([(b"kept/1", b"x")], [{"retained": True, "qos": 1}])
    pubsub = mqtt_broker.pubsub()
    await pubsub.psubscribe("kept/*")
    while await pubsub.get_message(timeout=0.5):  # amqtt may bring it twice
        pass
    subscribe, tries = MqttPubSub._subscribe, 0

    async def late(self: MqttPubSub, session: Session) -> None:
        nonlocal tries
        tries += 1
        await subscribe(self, session)
        if tries < 3:
            await until(lambda: len(self._inbox) > 0)
            raise BrokerUnavailable("mqtt://", "it answers too late")

    monkeypatch.setattr(MqttPubSub, "_subscribe", late)
    assert pubsub._connection is not None
    pubsub._connection.abort("cut")
    async with asyncio.timeout(60):
        while (first := await pubsub.get_message(timeout=0.1)) is None:
            pass
    assert first["type"] == "gap" and tries == 3
    again = await pubsub.get_message(timeout=60)
    assert again is not None and again["data"] == b"x"
    await pubsub.aclose()
    await mqtt_broker.publish_as([(b"kept/1", b"")], [{"retained": True, "qos": 1}])
