"""Live programs that find their part by MESSAGER_REPLAY, and a replay that plays the other agents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from messager import MemoryBroker, Messager, PublishError, RedisBroker
from messager.brokers import Broker, kind_of
from messager.testing import RedisServer
from messager_store import EventLog, Recorder, Replay
from messager_store.replay.lockstep import announcing
from messager_store.replay.lockstep.announcing import Announcing
from messager_store.replay.lockstep.presence import Presence
from tests.support import until
from tests.support.redis_topologies import ask

Program = Callable[[Messager], Awaitable[None]]


async def seller(messager: Messager) -> None:
    """Answer three questions; speak to the buyer before hearing anything."""
    await messager.send_message(messager.get_agent_chat_channel(7), "open", 3, 7)
    answered = 0
    while answered < 3:
        for _ in await messager.fetch_messages():
            answered += 1
            await messager.send_message(messager.get_agent_chat_channel(7), f"answer {answered}", 3, 7)
        await asyncio.sleep(0.01)


async def buyer(messager: Messager) -> None:
    for number in range(3):
        heard: list[Any] = []
        while not heard:
            heard = await messager.fetch_messages()
            await asyncio.sleep(0.01)
        await messager.send_message(messager.get_agent_chat_channel(3), f"question {number}", 7, 3)


async def recorded(store: str, broker: RedisBroker) -> None:
    async with EventLog.open(store) as log, Recorder(log, "exp-1") as recorder:
        async with Messager(broker, "exp-1") as one, Messager(broker, "exp-1") as other:
            for messager, agent in ((one, 3), (other, 7)):
                messager.add_log_hook(recorder)
                await messager.subscribe_and_start_listening([messager.get_subtopic_channel(agent, "*")])
            await asyncio.gather(seller(one), buyer(other))


@pytest.mark.parametrize("first", ["program", "replay"])
async def test_a_live_program_does_not_wait_for_agents_that_the_replay_plays(
    store: str, redis: RedisServer, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The program does not know who else is live: only the replay does."""
    broker = RedisBroker.from_url(redis.url)
    await recorded(store, broker)

    async def program() -> None:
        async with Messager(broker, "exp-2") as messager:
            await messager.subscribe_and_start_listening([messager.get_subtopic_channel(3, "*")])
            await seller(messager)

    publishing = RedisBroker.from_url(redis.url)
    async with EventLog.open(store, create=False) as log:
        monkeypatch.setenv("MESSAGER_STORE", store)
        monkeypatch.setenv("MESSAGER_REPLAY", "exp-1")
        replay = Replay(log, "exp-1", publishing, live=[3], to_exp="exp-2", patience=8)
        begins = [program(), replay.run()]
        tasks = [asyncio.create_task(each) for each in (begins if first == "program" else reversed(begins))]
        await asyncio.gather(*tasks)
    await publishing.close()
    await broker.close()
    assert replay.report.cast is not None
    assert replay.report.cast.equal and replay.report.cast.pace == "lockstep"


class Known:
    """What one program knows of the others."""

    def __init__(self, broker: Broker) -> None:
        self.presence = Presence([])
        self.failures: list[str] = []
        self.stops: list[str] = []
        self.announcing = Announcing(
            broker, "e", self.presence, kind_of(broker.url), failed=lambda error: self.failures.append(str(error))
        )
        self.announcing.on_stopped = lambda notice: self.stops.append(notice["stopped"])


@pytest.mark.sqlite
async def test_all_messagers_of_a_program_are_announced_to_those_that_ask_meanwhile_and_later() -> None:
    broker = MemoryBroker()
    program, others = Known(broker), [Known(broker) for _ in range(20)]

    async def announce() -> None:
        for number in range(20):
            await program.announcing.announce(str(number), ["c"])

    async def ask() -> None:
        for other in others:
            await other.announcing.start()

    await asyncio.gather(announce(), ask())
    late = Known(broker)
    await late.announcing.start()
    for one in (*others, late):
        await until(lambda one=one: len(one.presence.remote) == 20)  # type: ignore[misc]
    for one in (program, *others, late):
        await one.announcing.close()


@pytest.mark.sqlite
async def test_programs_find_each_other_again_after_an_outage() -> None:
    broker = MemoryBroker()
    first, second = Known(broker), Known(broker)
    await first.announcing.announce("1", ["c"])
    await second.announcing.start()
    await until(lambda: "1" in second.presence.remote)
    broker.interrupt()
    await first.announcing.announce("2", ["c"])
    broker.resume()
    await until(lambda: "2" in second.presence.remote)
    for one in (first, second):
        await one.announcing.close()


@pytest.mark.sqlite
async def test_an_announcement_that_was_not_published_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The subscription is intact, so no gap is reported."""
    monkeypatch.setattr(announcing, "POLL_S", 0.01)
    broker, refusing = MemoryBroker(), Refusing()
    refusing.other = broker
    first, second = Known(refusing), Known(broker)
    await second.announcing.start()
    await first.announcing.announce("1", ["c"])
    await until(lambda: "1" in second.presence.remote)
    for one in (first, second):
        await one.announcing.close()


class Refusing(MemoryBroker):
    """Publishes on another broker, but refuses the first announcement."""

    other: MemoryBroker
    refused = False

    async def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> list[int | PublishError | None]:
        if not self.refused and b"part" in messages[0][1]:
            self.refused = True
            return [PublishError("the connection is gone", "not_sent")]
        return await self.other.publish(messages)


@pytest.mark.sqlite
async def test_a_stop_is_told_once_to_all_and_to_those_that_ask_later() -> None:
    broker = MemoryBroker()
    first, second, late = Known(broker), Known(broker), Known(broker)
    for one in (first, second):
        await one.announcing.start()
    first.announcing.stopped({"stopped": "one"})
    await until(lambda: bool(second.stops))
    second.announcing.stopped({"stopped": "another"})
    await late.announcing.start()
    await until(lambda: bool(late.stops))
    for one in (first, second, late):
        await one.announcing.close()
    assert (first.stops, second.stops, late.stops) == ([], ["one"], ["one"])


@pytest.mark.sqlite
@pytest.mark.parametrize("payload", [b"[" * 100_000, b"{", b"5", b'{"part": 5, "patterns": 5}', b'{"stopped": 5}'])
async def test_announcements_that_are_none_are_left_out(payload: bytes) -> None:
    broker = MemoryBroker()
    one, other = Known(broker), Known(broker)
    await one.announcing.start()
    await broker.publish([(b"messager-replay:e", payload)])
    await other.announcing.announce("1", ["c"])
    await until(lambda: "1" in one.presence.remote)
    assert one.failures == one.stops == []
    for known in (one, other):
        await known.announcing.close()


@pytest.mark.sqlite
async def test_announcements_go_on_over_another_broker_and_leave_no_connection(redis: RedisServer) -> None:
    async def left() -> bool:
        return "messager-replay" not in str(await ask(redis.port, "PUBSUB", "CHANNELS")) and (
            str(await ask(redis.port, "CLIENT", "LIST")).count("name=") == before
        )

    before = str(await ask(redis.port, "CLIENT", "LIST")).count("name=")
    brokers = [RedisBroker.from_url(redis.url) for _ in range(3)]
    first, second = Known(brokers[0]), Known(brokers[2])
    await first.announcing.announce("1", ["c"])
    await first.announcing.use(brokers[1])
    await brokers[0].close()
    await second.announcing.announce("2", ["c"])
    await first.announcing.announce("3", ["c"])
    await until(lambda: "2" in first.presence.remote and {"1", "3"} <= second.presence.remote.keys())
    for one in (first, second):
        await one.announcing.close()
    for broker in brokers[1:]:
        await broker.close()
    await until(left)


@pytest.mark.sqlite
async def test_a_program_that_can_no_longer_hear_the_others_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    one, other = Known(broker), Known(broker)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(one.presence, "announced", fail)
    await one.announcing.start()
    await other.announcing.announce("1", ["c"])
    await until(lambda: bool(one.failures))
    assert one.failures == ["the other live programs can no longer be heard: RuntimeError: out of memory"]
    for known in (one, other):
        await known.announcing.close()
