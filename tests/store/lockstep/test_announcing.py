"""Live programs that find their part by MESSAGER_REPLAY, and a replay that plays the other agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from messager import MemoryBroker, Messager, PublishError, RedisBroker
from messager.brokers import Broker, PubSub, kind_of
from messager.testing import RedisServer
from messager_store import EventLog, LiveReplay, Recorder
from messager_store.lockstep import announcing
from messager_store.lockstep.announcing import Announcing
from messager_store.lockstep.presence import Presence
from messager_store.lockstep.signing import RunKey, Signer
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
        replay = LiveReplay(log, "exp-1", publishing, live=[3], to_exp="exp-2", patience=8)
        begins = [program(), replay.run()]
        tasks = [asyncio.create_task(each) for each in (begins if first == "program" else reversed(begins))]
        await asyncio.gather(*tasks)
    await publishing.close()
    await broker.close()
    assert replay.report.equal and replay.report.pace == "lockstep"


class Known:
    """What one program knows of the others."""

    def __init__(self, broker: Broker) -> None:
        self.presence = Presence([])
        self.failures: list[str] = []
        self.stops: list[str] = []
        self.notes: list[str] = []
        self.announcing = Announcing(
            *(broker, "e", self.presence, kind_of(broker.url)),
            failed=lambda error: self.failures.append(str(error)),
            note=self.notes.append,
            stopped=lambda notice: self.stops.append(notice["stopped"]),
        )


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
    """Another broker, but the first announcement is refused."""

    other: MemoryBroker
    refused = False

    def pubsub(self) -> PubSub:
        return self.other.pubsub()

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
    first.announcing.stop({"stopped": "one"})
    await until(lambda: bool(second.stops))
    second.announcing.stop({"stopped": "another"})
    await late.announcing.start()
    await until(lambda: bool(late.stops))
    for one in (first, second, late):
        await one.announcing.close()
    assert (first.stops, second.stops, late.stops) == ([], ["one"], ["one"])


class Stranger:
    """Somebody on the broker who hears everything, has no key, and says what it likes."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.heard: list[bytes] = []
        self._pubsub = broker.pubsub()

    async def hear(self, part: str) -> None:
        """Listen until a part is announced to somebody."""
        await self._pubsub.psubscribe("messager-replay:e")
        while not self.heard or json.loads(self.heard[-1][65:])["content"].get("part") != part:
            message = await self._pubsub.get_message(timeout=1)
            if message is not None and message["type"] == "pmessage":
                self.heard.append(message["data"])

    def forged(self, content: dict[str, Any]) -> bytes:
        """Return an announcement to all whose names were heard, with a seal that is not of the key."""
        names = [json.loads(payload[65:])["from"] for payload in self.heard]
        fields = {"run": "e", "from": "f" * 16, "number": 1_000, "at": 2**62, "to": names, "content": content}
        signer = Signer("e", b"another key" * 6)
        return signer.sign(content)[:65] + json.dumps(fields).encode()

    async def say(self, *payloads: bytes) -> None:
        await self.broker.publish([(b"messager-replay:e", payload) for payload in payloads])

    async def close(self) -> None:
        await self._pubsub.aclose()


FORGED = [
    *({"stopped": "\x1b[31manything"}, {"live": []}, {"part": "1", "patterns": []}, {"part": "x", "patterns": ["*"]}),
    *({}, {"part": "\ud800", "patterns": ["\ud800"]}, {"part": "1", "patterns": [5]}),
]


@pytest.mark.sqlite
async def test_a_stranger_can_neither_stop_nor_join_nor_remove_a_program(broker: Broker) -> None:
    stranger = Stranger(broker)
    spying = asyncio.create_task(stranger.hear("1"))
    earlier, one, other = Known(broker), Known(broker), Known(broker)
    await earlier.announcing.announce("0", ["z"])
    await earlier.announcing.close()
    await one.announcing.start()
    await other.announcing.announce("1", ["c"])
    await until(lambda: "1" in one.presence.remote)
    await spying
    key = RunKey("e").file.read_bytes().strip()
    assert not any(key in payload for payload in stranger.heard)
    said = [*(json.dumps(content).encode() for content in FORGED), *map(stranger.forged, FORGED), *stranger.heard]
    await stranger.say(*said, *said)
    await other.announcing.announce("2", ["c"])
    await until(lambda: "2" in one.presence.remote)
    assert (one.stops, one.failures, one.announcing.replayed) == ([], [], False)
    assert {part: hears(b"c") for part, hears in one.presence.remote.items()} == {"1": True, "2": True}
    for known in (one, other, stranger):
        await (known.announcing if isinstance(known, Known) else known).close()
    [note] = one.notes
    assert " announcements of e refused: forged, repeated, or without the key; live programs of other users" in note


@pytest.mark.sqlite
async def test_a_program_that_has_ended_does_not_come_back_by_what_it_had_announced() -> None:
    broker = MemoryBroker()
    stranger, stays, gone, late = Stranger(broker), Known(broker), Known(broker), Known(broker)
    spying = asyncio.create_task(stranger.hear("1"))
    await stays.announcing.start()  # so that it is the same run, with the same key
    await gone.announcing.announce("1", ["c"])
    await until(lambda: "1" in stays.presence.remote)
    await spying
    await gone.announcing.close()
    await late.announcing.start()
    await stranger.say(*stranger.heard)
    await stays.announcing.announce("2", ["c"])
    await until(lambda: "2" in late.presence.remote)
    assert "1" not in late.presence.remote
    for known in (stays, late):
        await known.announcing.close()
    await stranger.close()


@pytest.mark.sqlite
@pytest.mark.parametrize("content", [{"stopped": 5}, {"live": 5}, {"live": [5]}, *FORGED[-2:], {"other": 5}])
async def test_what_a_program_with_the_key_says_is_looked_at_as_well(content: dict[str, Any]) -> None:
    broker = MemoryBroker()
    one, other = Known(broker), Known(broker)
    await one.announcing.start()
    await other.announcing.announce("1", ["c"])
    await until(lambda: "1" in one.presence.remote)
    await other.announcing._tell(content)
    await other.announcing.announce("2", ["c"])
    await until(lambda: "2" in one.presence.remote)
    for known in (one, other):
        await known.announcing.close()
    assert (one.stops, one.failures, one.announcing.replayed) == ([], [], False)
    assert one.notes[0].startswith("1 announcement of e refused")


@pytest.mark.nightly
@pytest.mark.sqlite
@pytest.mark.parametrize(("times", "size"), [(100_000, 200), (5, 100_000_000)])
async def test_a_flood_of_announcements_ends_nothing(redis: RedisServer, times: int, size: int) -> None:
    """Redis ends the connections of subscribers that lag by 32 MB: they come back."""
    brokers = [RedisBroker.from_url(redis.url) for _ in range(3)]
    one, other, stranger = Known(brokers[0]), Known(brokers[1]), Stranger(brokers[2])
    await one.announcing.start()
    await other.announcing.announce("1", ["c"])
    flooding = asyncio.create_task(asyncio.to_thread(asyncio.run, flood(redis.url, times, size)))
    await until(lambda: "1" in one.presence.remote)
    await flooding
    await other.announcing.announce("2", ["c"])
    await until(lambda: "2" in one.presence.remote)
    assert (one.stops, one.failures, set(one.presence.remote)) == ([], [], {"1", "2"})
    for known in (one, other):
        await known.announcing.close()
    await stranger.close()
    for broker in brokers:
        await broker.close()


async def flood(url: str, times: int, size: int) -> None:
    broker = RedisBroker.from_url(url)
    together = max(1, min(times, 1_000_000 // size))
    for _ in range(0, times, together):
        await broker.publish([(b"messager-replay:e", b"x" * size)] * together)
    await broker.close()


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
