"""A replay counts and waits for the subscribers that match its messages."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from messager import MemoryBroker, RedisBroker
from messager.testing import RedisServer, redis_server
from messager_store import EventLog, Replay
from messager_store.errors import ReplayFailed
from tests.messager.brokers.redis.test_rights import user
from tests.support import messager, until
from tests.support.logs import filled, sent
from tests.support.redis_topologies import FOREVER, SentinelServer, ask, cluster, cluster_url


@pytest.fixture
async def broker() -> AsyncIterator[RedisBroker]:
    """Broker on a Redis without other subscribers."""
    with redis_server() as server:
        made = RedisBroker.from_url(server.url)
        yield made
        await made.close()


def port_of(broker: RedisBroker) -> int:
    return int(broker.url.rpartition(":")[2].partition("/")[0])


@contextlib.asynccontextmanager
async def subscribed(port: int, *channels: str, patterns: tuple[str, ...] = ()) -> AsyncIterator[None]:
    """Subscribed client of another library."""
    client = Redis(port=port)
    pubsub = client.pubsub()
    if channels:
        await pubsub.subscribe(*channels)
    if patterns:
        await pubsub.psubscribe(*patterns)
    for _ in (*channels, *patterns):
        assert await pubsub.get_message(timeout=10) is not None
    try:
        yield
    finally:
        await pubsub.aclose()  # type: ignore[no-untyped-call]
        await client.aclose()


async def test_clients_count_that_are_subscribed_to_one_of_the_channels_or_to_a_pattern(broker: RedisBroker) -> None:
    port = port_of(broker)
    channels = [b"c:%d" % number for number in range(2500)]
    async with contextlib.AsyncExitStack() as stack:
        for expected, names, patterns in (
            (0, ["__sentinel__:hello"], ()),
            (0, ["other"], ()),
            (1, ["c:1", "c:2", "c:3"], ()),  # one client, whatever it is subscribed to
            (2, ["c:2499", "c:1"], ()),
            (3, [], ("c:*",)),
            (4, ["c:1"], ("c:*", "d:*")),  # and once here too
            (4, ["other", "more"], ()),
        ):
            await stack.enter_async_context(subscribed(port, *names, patterns=patterns))
            assert await broker.subscriber_count(channels) == expected
        assert await broker.subscriber_count([]) == 2


async def test_in_memory_a_pattern_counts_where_it_fits_one_of_the_channels() -> None:
    broker = MemoryBroker()
    pubsub = broker.pubsub()
    await pubsub.psubscribe("other:*", "c:1?")
    assert await broker.subscriber_count([b"c:1", b"c:2"]) == 0
    assert await broker.subscriber_count([b"c:1", b"c:12"]) == 1


async def test_clients_of_every_node_of_a_cluster_count() -> None:
    async with cluster() as nodes:
        broker = RedisBroker.from_url(cluster_url(nodes[0]))
        async with contextlib.AsyncExitStack() as stack:
            for expected, node, name in ((0, 1, "other"), (1, 1, "c"), (2, 2, "c")):
                await stack.enter_async_context(subscribed(nodes[node].port, name))
                assert await broker.subscriber_count([b"c", b"d"]) == expected
        await broker.close()


async def test_a_sentinel_is_no_subscriber_to_wait_for(broker: RedisBroker, log: EventLog) -> None:
    await filled(log, [sent(1, b"x", "c")])
    port = port_of(broker)
    sentinel = SentinelServer(port)
    try:
        await sentinel.start()

        async def listens() -> bool:
            return bool((await ask(port, "PUBSUB", "NUMSUB", "__sentinel__:hello"))[1])

        await until(listens, FOREVER)
        with pytest.raises(ReplayFailed, match=r"only 0 of 1 subscribers.* after 0\.05 s"):
            await Replay(log, "e1", broker, wait_for_subscribers=1, wait_timeout=0.05).run()
        async with subscribed(port, "c"):
            assert (await Replay(log, "e1", broker, wait_for_subscribers=1).run()).published == 1
    finally:
        sentinel.remove()


@pytest.mark.parametrize(
    ("names", "patterns", "enough"),
    [
        (["exps:e1:news"], (), False),  # where it was recorded, and not where it goes
        (["exps:e2:left-out"], (), False),
        (["exps:e2:news"], (), True),
        ([], ("exps:e2:*",), True),
    ],
)
async def test_a_replay_waits_for_subscribers_of_the_channels_that_it_publishes_on(
    names: list[str], patterns: tuple[str, ...], enough: bool, broker: RedisBroker, log: EventLog
) -> None:
    await filled(log, [sent(1, b"x", "exps:e1:news"), sent(2, b"y", "exps:e1:left-out")])
    replay = Replay(
        log,
        "e1",
        broker,
        to_exp="e2",
        exclude="*:left-out",
        wait_for_subscribers=1,
        wait_timeout=10 if enough else 0.05,
    )
    async with subscribed(port_of(broker), *names, patterns=patterns):
        if enough:
            assert (await replay.run()).no_subscriber == 0
        else:
            with pytest.raises(ReplayFailed, match="only 0 of 1 subscribers"):
                await replay.run()


async def test_a_replay_without_messages_waits_for_nobody(broker: RedisBroker, log: EventLog) -> None:
    await filled(log, [])
    assert (await Replay(log, "e1", broker, wait_for_subscribers=1).run()).published == 0


async def test_where_names_may_not_be_asked_for_patterns_count_and_without_any_the_right_is_named() -> None:
    with redis_server("--requirepass", "hunter2") as server:
        async with user(server, "allchannels", "+client|list", "+psubscribe", "+subscribe") as limited:
            listener = Redis(port=server.port, password="hunter2").pubsub()
            await listener.subscribe("c")
            await listener.get_message(timeout=10)
            assert await limited.subscriber_count([b"c"]) is None
            assert limited.refused is not None and "+pubsub|numsub" in limited.refused
            pubsub = limited.pubsub()
            await pubsub.psubscribe("c")
            assert await limited.subscriber_count([b"c"]) == 1
            await pubsub.aclose()
            await listener.aclose()  # type: ignore[no-untyped-call]


def test_the_help_tells_for_how_long_it_waits(redis: RedisServer, tmp_path: object) -> None:
    helped = " ".join(messager("replay", "--help", cwd=tmp_path).stdout.split())  # type: ignore[arg-type]
    assert "Fails after 60 s" in helped
