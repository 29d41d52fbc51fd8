"""A running replay: waiting for subscribers, progress, pauses, and errors."""

from __future__ import annotations

import asyncio

import pytest

from messager import MemoryBroker, RedisBroker
from messager.brokers import Broker
from messager.testing import RedisServer, free_port
from messager_store import EventLog, Replay
from messager_store.errors import ReplayFailed, StoreError
from tests.store.replay.test_replay import Heard
from tests.support import Proxy, until
from tests.support.logs import filled, sent


async def test_a_loop_without_end_ends_when_cancelled_and_says_how_far_it_came(log: EventLog) -> None:
    await filled(log, [sent(0, b"a")])
    broker = Heard()
    replay = Replay(log, "e1", broker, speed="max", loops=0)
    task = asyncio.create_task(replay.run())
    await until(lambda: len(broker.published) > 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert replay.report.published >= 5


async def test_it_waits_for_subscribers_and_says_how_many_there_were(broker: Broker, log: EventLog) -> None:
    await filled(log, [sent(1, b"x", "waited")])
    already = await broker.subscriber_count([b"waited"])
    if already is None:  # on MQTT nobody knows
        with pytest.raises(StoreError, match="cannot wait"):
            Replay(log, "e1", broker, wait_for_subscribers=1)
        return
    with pytest.raises(ReplayFailed, match=f"only {already} of {already + 1} subscribers"):
        await Replay(log, "e1", broker, wait_for_subscribers=already + 1, wait_timeout=0.05).run()
    task = asyncio.create_task(Replay(log, "e1", broker, wait_for_subscribers=already + 1).run())
    pubsub = broker.pubsub()
    await pubsub.psubscribe("waited")
    message = await pubsub.get_message(timeout=10)
    assert message is not None and message["data"] == b"x"
    assert (await task).no_subscriber == 0
    await pubsub.aclose()


async def test_a_broker_out_of_reach_is_told(log: EventLog) -> None:
    await filled(log, [sent(1)])
    broker = RedisBroker.from_url(f"redis://:hunter2@127.0.0.1:{free_port()}/0")
    with pytest.raises(ReplayFailed, match="cannot reach the broker") as caught:
        await Replay(log, "e1", broker).run()
    assert "hunter2" not in str(caught.value)


async def test_an_answer_lost_on_the_way_stops_the_replay_and_repeats_nothing(
    redis: RedisServer, log: EventLog
) -> None:
    await filled(log, [sent(at, b"n%d" % at, "replayed") for at in range(3000)])
    listener = RedisBroker.from_url(redis.url).pubsub()
    await listener.psubscribe("replayed")
    async with Proxy(redis.port).running() as proxy:
        broker = RedisBroker.from_url(f"redis://127.0.0.1:{proxy.port}/0", timeout=2)
        proxy.cut_answer_to = b"n700\r\n"
        replay = Replay(log, "e1", broker, speed="max")
        with pytest.raises(ReplayFailed, match=r"\d+ messages were published, up to \d+:1:\d+"):
            await replay.run()
        await broker.close()
    assert replay.report.published == 500
    seen = []
    while (message := await listener.get_message(timeout=0.2)) is not None:
        seen.append(message["data"])
    assert seen == [b"n%d" % at for at in range(len(seen))] and len(seen) >= 500
    await listener.aclose()


async def test_progress_is_told(log: EventLog) -> None:
    await filled(log, [sent(at) for at in range(1200)])
    seen: list[int] = []
    await Replay(log, "e1", MemoryBroker(), speed="max", progress=lambda report: seen.append(report.published)).run()
    assert seen == sorted(seen) and seen[-1] == 1200 and len(seen) > 2
