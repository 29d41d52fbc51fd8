"""Received messages that wait to be fetched: one warning, or with `queue_bytes` a listener that stops reading."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from messager import MemoryBroker, Messager, RedisBroker, RedisConfig
from messager import mqtt as over_mqtt
from messager.brokers import Broker
from messager.testing import MqttServer, RedisServer, redis_server
from tests.messager.test_messager import fetched
from tests.support import Listed, Proxy, until
from tests.support.redis_topologies import ask

SMALL = [b"%03d" % number + bytes(97) for number in range(50)]


async def publish(broker: Broker, channel: bytes, payloads: list[bytes]) -> None:
    for payload in payloads:
        await broker.publish([(channel, payload)])


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return caplog.text.count("wait to be fetched")


async def test_one_warning_is_logged_when_more_than_100_mb_wait_and_again_after_the_queue_was_empty(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, hook, payload = MemoryBroker(), Listed(), bytes(1_000_000)
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        for round_ in (1, 2):
            await publish(broker, b"c", [payload] * 99)
            await until(lambda round_=round_: len(hook.records) == 102 * (round_ - 1) + 99)  # type: ignore[misc]
            assert warnings(caplog) == round_ - 1
            await publish(broker, b"c", [payload] * 3)
            await until(lambda round_=round_: len(hook.records) == 102 * round_)  # type: ignore[misc]
            assert warnings(caplog) == round_
            assert len(await messager.fetch_messages()) == 102
    assert "experiment e1" in caplog.text and "queue_bytes" in caplog.text


async def test_above_queue_bytes_the_listener_stops_reading_until_the_queue_was_fetched(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    hook, heard = Listed(), []
    async with Messager(broker, "e1", queue_bytes=1000) as messager, Messager(broker, "e1") as other:
        messager.add_log_hook(hook)
        for one in (messager, other):
            await one.subscribe_and_start_listening(["c"])
        await publish(broker, b"c", SMALL)
        await fetched(other, 50)
        await until(lambda: len(hook.records) == 10)
        while len(heard) < 50:
            some = await fetched(messager, 1)
            assert len(some) <= 10, "1010 bytes are more than 1000"
            heard += some
        assert messager.message_queue.waiting_bytes == 0
    assert [message["data"] for message in heard] == SMALL
    assert hook.kinds() == ["received"] * 50
    assert not caplog.records


async def test_a_message_larger_than_queue_bytes_is_received(broker: Broker) -> None:
    async with Messager(broker, "e1", queue_bytes=0) as messager:
        await messager.subscribe_and_start_listening(["c"])
        await publish(broker, b"c", SMALL[:3])
        assert [message["data"] for message in await fetched(messager, 3)] == SMALL[:3]


async def test_reading_goes_on_for_a_caller_that_takes_messages_from_the_queue_itself() -> None:
    broker = MemoryBroker()
    async with Messager(broker, "e1", queue_bytes=1000) as messager:
        await messager.subscribe_and_start_listening(["c"])
        await publish(broker, b"c", SMALL)
        assert [(await messager.message_queue.get())["data"] for _ in SMALL] == SMALL


async def test_a_listener_that_has_stopped_reading_can_be_closed_and_logs_what_it_did_not_read_as_a_gap(
    broker: Broker,
) -> None:
    hook, sender = Listed(), Listed()
    messager = Messager(broker, "e1", queue_bytes=1000)
    async with Messager(broker, "e1") as talker:
        await messager.init()
        messager.add_log_hook(hook)
        talker.add_log_hook(sender)
        await messager.subscribe_and_start_listening(["c"])
        for number in range(100):
            await talker.send_message("c", {"n": number, "text": "x" * 90})
        pubsub: Any = messager._pubsub
        await until(lambda: len(hook.records) > 0 and pubsub.unread_since() is not None)
        await until(lambda: messager.message_queue.waiting_bytes > 1000)
        await messager.close()
    heard = [record.payload for record in hook.records if record.kind == "received"]
    assert 0 < len(heard) < 100
    [gap] = [record.meta for record in hook.records if record.kind == "gap"]
    assert gap is not None and "queue_bytes" in gap["reason"]
    for record in sender.records[len(heard) :]:
        assert gap["since"] <= record.ts <= gap["until"]


async def test_what_redis_drops_while_reading_is_stopped_lies_in_a_gap() -> None:
    hook, sender = Listed(), Listed()
    with redis_server() as server:
        await ask(server.port, "CONFIG", "SET", "client-output-buffer-limit", "pubsub 1000000 0 0")
        config = RedisConfig(server="127.0.0.1", port=server.port)
        async with Messager(config, "e1", queue_bytes=200_000) as messager, Messager(config, "e1") as talker:
            messager.add_log_hook(hook)
            talker.add_log_hook(sender)
            await messager.subscribe_and_start_listening(["c"])
            for number in range(1500):  # 22 MB; Valkey 9 does not count payloads of 16 kB or more
                await talker.send_message("c", f"{number}{'x' * 15_000}")
            assert sender.records[-1].receivers == 0, "Redis has cut the subscriber off"
            assert len(hook.records) < 20
            heard = []

            async def gap_is_logged() -> bool:
                heard.extend(await messager.fetch_messages())
                return "gap" in hook.kinds()

            await until(gap_is_logged)
            await talker.send_message("c", "after")
            heard += await fetched(messager, 1)
    assert heard[-1]["data"] == b'"after"'
    payloads = {message["data"] for message in heard}
    [gap] = [record.meta for record in hook.records if record.kind == "gap"]
    missed = [record for record in sender.records if record.payload not in payloads]
    assert missed and gap is not None
    assert all(gap["since"] <= record.ts <= gap["until"] for record in missed)


async def test_a_subscriber_that_was_not_read_for_long_is_not_taken_for_dead(redis: RedisServer) -> None:
    hook = Listed()
    times = {"ping_interval": 0.05, "ping_timeout": 1.0}
    async with Proxy(redis.port).running() as proxy:
        broker = RedisBroker.from_url(redis.url, **times)
        quiet = RedisBroker.from_url(f"redis://127.0.0.1:{proxy.port}/0", **times)
        async with Messager(broker, "e1", queue_bytes=1000) as messager, Messager(quiet, "e1") as other:
            messager.add_log_hook(hook)
            await messager.subscribe_and_start_listening(["c"])
            await other.subscribe_and_start_listening(["quiet"])
            for payloads in ([SMALL[0]] * 20, [bytes(100_000)] * 100):  # the socket is still read, and it is not
                await publish(broker, b"c", payloads)
                await until(lambda: messager.message_queue.waiting_bytes > 1000)
                pings = proxy.requests.count(b"PING")
                await until(lambda pings=pings: proxy.requests.count(b"PING") > pings + 25)  # type: ignore[misc]
                await fetched(messager, len(payloads))
        await broker.close()
        await quiet.close()
    assert hook.kinds() == ["received"] * 120


async def test_a_connection_lost_while_reading_is_stopped_is_logged_as_a_gap_afterwards(redis: RedisServer) -> None:
    hook = Listed()
    async with Proxy(redis.port).running() as proxy:
        broker = RedisBroker.from_url(f"redis://127.0.0.1:{proxy.port}/0")
        outside = RedisBroker.from_url(redis.url)
        async with Messager(broker, "e1", queue_bytes=1000) as messager:
            messager.add_log_hook(hook)
            await messager.subscribe_and_start_listening(["lost"])
            await publish(outside, b"lost", SMALL)
            await until(lambda: messager.message_queue.waiting_bytes > 1000)
            proxy.cut()
            await until(lambda: not proxy._writers)
            heard = 0

            async def gap_is_logged() -> bool:
                nonlocal heard
                heard += len(await messager.fetch_messages())
                return "gap" in hook.kinds()

            await until(gap_is_logged)
            assert heard <= 50
            await publish(outside, b"lost", [b"after"])
            assert (await fetched(messager, 1))[-1]["data"] == b"after"
        await broker.close()
        await outside.close()


async def test_more_can_be_subscribed_to_while_reading_is_stopped(broker: Broker) -> None:
    """The answer to a subscription is behind the waiting messages."""
    async with Messager(broker, "e1", queue_bytes=1000) as messager:
        await messager.subscribe_and_start_listening(["c"])
        await publish(broker, b"c", [bytes(100_000)] * 100)
        await until(lambda: messager.message_queue.waiting_bytes > 1000)
        await messager.subscribe_and_start_listening(["more"])
        await publish(broker, b"more", [b"x"])
        assert [message["channel"] for message in await fetched(messager, 101)] == [b"c"] * 100 + [b"more"]


async def test_a_messager_takes_queue_bytes_along_to_another_process(redis: RedisServer, mqtt: MqttServer) -> None:
    for made in (
        Messager(RedisConfig(server="127.0.0.1", port=redis.port), "e1", queue_bytes=0),
        over_mqtt.Messager("127.0.0.1", mqtt.port, exp_id="e1", queue_bytes=0),
    ):
        async with pickle.loads(pickle.dumps(made)) as there:
            await there.subscribe_and_start_listening(["c"])
            await publish(there.broker, b"c", SMALL[:3])
            await until(lambda there=there: there.message_queue.qsize() == 1)  # type: ignore[misc]
            assert there.message_queue.stops_reading


def test_a_negative_queue_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"invalid queue_bytes: -1\. Give a number of bytes"):
        Messager(MemoryBroker(), "e1", queue_bytes=-1)
