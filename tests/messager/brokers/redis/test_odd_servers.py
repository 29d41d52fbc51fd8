"""Servers that answer what Redis does not: their effect ends at the connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from messager import BrokerUnavailable, PublishError, RedisBroker
from messager.brokers import OutputLimits, PubSub
from messager.brokers.redis import wire
from tests.support.fake_redis import FakeRedis, array, bulk, push

ODD = [
    *(b":5\r\n", b":-99\r\n", b"+OK\r\n", b"*0\r\n", b"*-1\r\n", b"$-1\r\n", b"*1\r\n*1\r\n:1\r\n"),
    *(bulk(b"\xff"), bulk(b"9" * 5000), array(bulk(b"1"), bulk(b"9" * 5000)), array(bulk(b"soon"), bulk(b"1"))),
    *(array(b":1\r\n", b"$-1\r\n"), array(bulk(b"a"), bulk(b"-1")), array(bulk(b"a"), b"*0\r\n")),
    bulk(b"id=1 sub=%b psub=1 x obl=1 x omem=1 tot-net-out=x\n" % (b"9" * 5000)),
    bulk(b"id=1 sub=1 psub=1 x obl=1 x omem=1 tot-net-out=%b\n" % (b"9" * 5000)),
    bulk(b"cmdstat_xadd:calls=%b\n" % (b"9" * 5000)),
    array(bulk(b"client-output-buffer-limit"), bulk(b"pubsub %b 1 60" % (b"9" * 5000))),
]


async def test_an_answer_of_another_type_counts_as_none() -> None:
    async with FakeRedis().running() as fake:
        broker = RedisBroker.from_url(f"redis://127.0.0.1:{fake.port}/0")
        asked: list[Callable[[], Awaitable[Any]]] = [
            *(broker.clock_offset, broker.unheard, broker.backlog, broker.output_limits),
            *(lambda: broker.subscriber_count([]), lambda: broker.subscriber_count([b"c"])),
        ]
        for odd in ODD:
            fake.answers |= dict.fromkeys(("TIME", "INFO", "CLIENT", "CONFIG", "PUBSUB"), odd)
            for ask in asked:
                answer = await ask()
                assert answer is None or isinstance(answer, int | dict | tuple | OutputLimits), (odd[:60], answer)
        assert "which is no answer of Redis" in str(broker.refused)
        fake.answers["PUBLISH"] = bulk(b"yes")
        [result] = await broker.publish([(b"c", b"x")])
        assert isinstance(result, PublishError) and result.outcome == "unknown"
        await broker.close()


async def test_a_cluster_that_lists_its_nodes_in_another_form_is_used_as_one_node() -> None:
    async with FakeRedis().running() as fake:
        for odd in ODD:
            fake.answers["CLUSTER"] = odd
            broker = RedisBroker.from_url(f"redis+cluster://127.0.0.1:{fake.port}")
            await broker.connect()
            assert await broker.clock_offset() is not None, odd
            await broker.unheard()
            await broker.close()


async def test_sentinels_that_answer_in_another_form_are_unreachable() -> None:
    unnamed = array(array(bulk(b"name"), bulk(b"mymaster"), bulk(b"flags"), bulk(b"master")))
    async with FakeRedis().running() as fake:
        for odd in (*ODD, unnamed):
            fake.answers["SENTINEL"] = odd
            with pytest.raises(BrokerUnavailable):
                await RedisBroker.from_url(f"redis+sentinel://127.0.0.1:{fake.port}").connect()


@contextlib.asynccontextmanager
async def subscribed(seconds: float = 60.0) -> AsyncIterator[tuple[FakeRedis, PubSub]]:
    async with FakeRedis().running() as fake:
        broker = RedisBroker.from_url(
            f"redis://127.0.0.1:{fake.port}/0", ping_interval=min(seconds, 0.05), ping_timeout=seconds
        )
        pubsub = broker.pubsub()
        await pubsub.psubscribe("*")
        yield fake, pubsub
        await pubsub.aclose()


async def heard(pubsub: PubSub) -> dict[str, Any]:
    """Return the next message, or gap."""
    async with asyncio.timeout(20):
        while (message := await pubsub.get_message(timeout=0.1)) is None:
            pass
    return message


NO_MESSAGES = [
    *(array(bulk(b"pmessage")), array(bulk(b"pmessage"), bulk(b"*"), bulk(b"c"))),
    *(array(bulk(b"pmessage"), bulk(b"*"), bulk(b"c"), odd) for odd in (b":1\r\n", b"$-1\r\n", b"*0\r\n", b"*-1\r\n")),
    array(bulk(b"pmessage"), bulk(b"*"), b":1\r\n", bulk(b"x")),
    array(bulk(b"pmessage"), b"*0\r\n", bulk(b"c"), bulk(b"x")),
    b"?what\r\n",
]


@pytest.mark.parametrize("bad", NO_MESSAGES)
async def test_what_is_no_message_costs_no_other_and_is_in_a_gap(bad: bytes) -> None:
    async with subscribed() as (fake, pubsub):
        ignored = b"*0\r\n*-1\r\n" + array(bulk(b"psubscribe")) + array(bulk(b"psubscribe"), b"*0\r\n") + b":7\r\n"
        fake.send(push(b"*", b"c", b"1") + ignored + push(b"*", b"c", b"2") + bad + push(b"*", b"c", b"3"))
        found = [await heard(pubsub) for _ in range(4 if bad[:1] == b"*" else 3)]
        assert [message["data"] for message in found[:-1]] == [b"1", b"2", b"3"][: len(found) - 1]
        assert found[-1]["type"] == "gap" and "Redis" in found[-1]["reason"]
        fake.send(push(b"*", b"c", b"4"))
        assert (await heard(pubsub))["data"] == b"4"


@pytest.mark.parametrize("sent", [b"+x\r\n", b"x"], ids=["answers to nothing", "one byte of a message"])
async def test_a_server_that_does_not_answer_pings_is_lost_whatever_it_sends(sent: bytes) -> None:
    async with subscribed(0.2) as (fake, pubsub):
        fake.answers["PING"] = b""
        if sent == b"x":
            fake.send(b"*4\r\n$8\r\npmessage\r\n$100000\r\n")

        async def dribble() -> None:
            while True:
                fake.send(sent)
                await asyncio.sleep(0.01)

        dribbling = asyncio.create_task(dribble())
        async with asyncio.timeout(20):
            while pubsub.lost_since() is None:
                await pubsub.get_message(timeout=0.01)
        dribbling.cancel()


async def test_an_answer_that_does_not_end_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_REPLY", 1_000_000)
    async with subscribed() as (fake, pubsub):
        fake.send(push(b"*", b"c", b"1") + b"*4\r\n$8\r\npmessage\r\n$2000000\r\n" + bytes(1_500_000))
        assert (await heard(pubsub))["data"] == b"1"
        gap = await heard(pubsub)
        assert gap["type"] == "gap" and "an answer of more than 1,000,000 bytes" in gap["reason"]
