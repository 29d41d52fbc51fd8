"""One suite for all brokers: the in-memory one behaves as Redis does, and MQTT as far as it can."""

from __future__ import annotations

import asyncio
import random

import pytest

from messager import MemoryBroker, PublishError, RedisBroker, channels
from messager.brokers import Broker, MqttBroker, OutputLimits, PubSub
from messager.brokers.redis.server import Server
from messager.errors import BrokerUnavailable
from messager.testing import RedisServer, free_port
from tests.support import HOSTILE_CHANNELS, HOSTILE_PAYLOADS, carried, told


async def collect(pubsub: PubSub, count: int) -> list[tuple[bytes, bytes, bytes]]:
    found: list[tuple[bytes, bytes, bytes]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            message = await pubsub.get_message(timeout=60)
            if message is not None:
                assert message["type"] == "pmessage"
                found.append((message["pattern"], message["channel"], message["data"]))
    return found


async def test_a_subscription_is_active_when_psubscribe_returns(broker: Broker) -> None:
    pubsub = broker.pubsub()
    await pubsub.psubscribe("active:*")
    assert await broker.publish([(b"active:1", b"x")]) == told(broker, 1)
    assert await collect(pubsub, 1) == [(b"active:*", b"active:1", b"x")]
    await pubsub.aclose()


async def test_messages_arrive_in_order_and_byte_for_byte(broker: Broker) -> None:
    pubsub = broker.pubsub()
    await pubsub.psubscribe("*")
    sent = [(channel, payload) for channel in HOSTILE_CHANNELS for payload in HOSTILE_PAYLOADS]
    taken = carried(broker, sent)
    refused = [result for result in await broker.publish(sent) if isinstance(result, PublishError)]
    assert len(refused) == len(sent) - len(taken) and all(error.refused for error in refused)
    assert [(channel, data) for _, channel, data in await collect(pubsub, len(taken))] == taken
    await pubsub.aclose()


async def test_a_payload_of_tens_of_megabytes_arrives(broker: Broker) -> None:
    pubsub = broker.pubsub()
    await pubsub.psubscribe("big")
    payload = random.Random(1).randbytes(12 * 1024 * 1024)
    listening = asyncio.create_task(collect(pubsub, 1))
    assert await broker.publish([(b"big", payload)]) == told(broker, 1)
    assert (await listening)[0][2] == payload
    await pubsub.aclose()


async def test_overlapping_patterns_deliver_one_copy_each(broker: Broker) -> None:
    pubsub = broker.pubsub()
    await pubsub.psubscribe("o:*", "*:1", "other")
    assert await broker.publish([(b"o:1", b"x")]) == told(broker, 2)
    assert {pattern for pattern, _, _ in await collect(pubsub, 2)} == {b"o:*", b"*:1"}
    await pubsub.aclose()


async def test_nobody_listening_is_zero_receivers_where_it_is_known(broker: Broker) -> None:
    assert await broker.publish([(b"nobody", b"x")]) == told(broker, 0)
    assert await broker.publish([]) == []


async def test_more_patterns_can_be_added_while_another_task_reads(broker: Broker) -> None:
    pubsub = broker.pubsub()
    await pubsub.psubscribe("first")
    reading = asyncio.create_task(collect(pubsub, 2))
    await asyncio.sleep(0)
    for _ in range(3):
        await pubsub.psubscribe("second")  # again and again is once
    assert await broker.publish([(b"second", b"2"), (b"first", b"1")]) == told(broker, 1, 1)
    assert [data for _, _, data in await reading] == [b"2", b"1"]
    await pubsub.aclose()


async def test_patterns_that_change_between_messages_of_a_channel_hold_from_then_on(broker: Broker) -> None:
    pubsub = broker.pubsub()
    await pubsub.psubscribe("a")
    assert await broker.publish([(b"b", b"1")]) == told(broker, 0)
    await pubsub.psubscribe("b")
    assert await broker.publish([(b"b", b"2")]) == told(broker, 1)
    assert [data for _, _, data in await collect(pubsub, 1)] == [b"2"]
    await pubsub.aclose()
    await pubsub.aclose()


async def test_get_message_gives_up_after_its_timeout(broker: Broker) -> None:
    pubsub = broker.pubsub()
    await pubsub.psubscribe("silence")
    assert await pubsub.get_message(timeout=0.01) is None
    await pubsub.aclose()


async def test_it_tells_who_listens_and_how_much_waits(broker: Broker) -> None:
    if isinstance(broker, MqttBroker):  # nobody may ask one
        assert (await broker.subscriber_count([b"count"]), await broker.backlog(), await broker.clock_offset()) == (
            None,
        ) * 3
        assert await broker.output_limits() == OutputLimits(None, None)
        return
    before = await broker.subscriber_count([b"count"])
    assert before is not None
    pubsub = broker.pubsub()
    await pubsub.psubscribe("count")
    assert await broker.subscriber_count([b"count"]) == before + 1
    backlog = await broker.backlog()
    assert backlog is not None and backlog.waiting == 0 and backlog.subscriptions >= 1
    assert isinstance(await broker.clock_offset(), int)
    await pubsub.aclose()


async def test_connect_and_close_may_be_called_twice(broker: Broker) -> None:
    for _ in range(2):
        await broker.connect()
    for _ in range(2):
        await broker.close()


async def test_patterns_match_as_redis_matches_them(redis_broker: RedisBroker) -> None:
    """Random patterns over a small alphabet, compared with the server."""
    dice = random.Random(11)
    memory, real, imitation = MemoryBroker(), redis_broker.pubsub(), None
    words = ["".join(dice.choice("ab-]^\\") for _ in range(dice.randint(0, 4))) for _ in range(40)]
    for _ in range(150):
        pattern = "".join(dice.choice("ab*?[]^-\\") for _ in range(dice.randint(1, 7)))
        await real.psubscribe(pattern)
        imitation = memory.pubsub()
        await imitation.psubscribe(pattern)
        wire = [(word.encode(), b"") for word in words]
        there = await redis_broker.publish(wire)
        here = await memory.publish(wire)
        assert here == there, (pattern, [w for w, a, b in zip(words, here, there, strict=True) if a != b])
        await imitation.aclose()
        await real.aclose()
        real = redis_broker.pubsub()
    assert imitation is not None
    await real.aclose()


def test_a_pattern_matches_bytes_that_are_no_text() -> None:
    assert channels.matches(b"\xff*", b"\xff\x00")
    assert not channels.matches("a", "a\n")
    assert channels.matches("*", "new\nline")


async def test_a_redis_out_of_reach_is_told_without_its_password() -> None:
    broker = RedisBroker.from_url(f"redis://user:hunter2@127.0.0.1:{free_port()}/0")
    with pytest.raises(BrokerUnavailable, match="cannot reach the broker at redis://127") as caught:
        await broker.connect()
    assert "hunter2" not in str(caught.value) + repr(caught.value)
    outcome = await broker.publish([(b"c", b"p")])
    assert outcome[0].outcome == "not_sent"  # type: ignore[union-attr]


async def test_a_server_that_does_not_answer_is_told_within_five_seconds() -> None:
    ended = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    silent = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    broker = RedisBroker.from_url(f"redis://127.0.0.1:{port}/0?db=3")
    assert isinstance(broker._endpoint, Server) and broker._endpoint._timeout < 5
    broker._endpoint._timeout = 0.2
    with pytest.raises(BrokerUnavailable):
        await broker.connect()
    await ended.wait()
    silent.close()


def test_an_url_that_is_not_redis_is_refused() -> None:
    for url in ["http://x", "redis", "", "redis://h:port"]:
        with pytest.raises(ValueError, match="is not a Redis URL"):
            RedisBroker.from_url(url)


def test_an_url_that_could_be_read_in_two_ways_is_refused_with_the_way_to_write_it() -> None:
    """Read literally, a part of the password would be the host, and would be shown."""
    for url in [
        "redis://user:p@ss/wo#rd@host:1/0",
        "redis://:se@cret/x?y@h:1/0",
        "redis://h:1/0#x",
        "redis://:se@cret/x@h:1/0",
    ]:
        with pytest.raises(ValueError, match=r"/ @ : # \? % in a password are written as %2F") as caught:
            RedisBroker.from_url(url)
        assert not any(piece in str(caught.value) for piece in ("ss/", "wo#", "rd@", "cret", "user"))


async def test_a_password_that_is_wrong_is_told_and_not_shown(redis: RedisServer) -> None:
    broker = RedisBroker.from_url(redis.url.replace("redis://", "redis://:hunter2@"))
    with pytest.raises(BrokerUnavailable) as caught:
        await broker.connect()
    assert "hunter2" not in str(caught.value)


async def test_a_pattern_that_begins_with_a_wildcard_hears_nothing_that_a_server_publishes_by_itself(
    broker: Broker,
) -> None:
    if isinstance(broker, MqttBroker):
        pytest.skip("MQTT has this rule of its own: tests/messager/brokers/mqtt/test_topics.py")
    pubsub = broker.pubsub()
    await pubsub.psubscribe("*", "?*", "__keyevent@*")
    await broker.publish([(b"__sentinel__:hello", b"1"), (b"__keyevent@0__:del", b"2"), (b"a", b"3")])
    heard = await collect(pubsub, 3)
    assert sorted(heard) == [(b"*", b"a", b"3"), (b"?*", b"a", b"3"), (b"__keyevent@*", b"__keyevent@0__:del", b"2")]
    await pubsub.aclose()
