"""Ordinary channels on Redis Cluster: any node serves them, and another one after a failure."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
import trustme

from messager import BrokerUnavailable, Messager, PublishError, RedisBroker
from messager.brokers.redis.subscribed_connection import SubscribedConnection
from messager.testing import RedisServer, free_port
from messager_store.replay.flow_control import FlowControl
from tests.support import Listed, Proxy, messager, until
from tests.support.redis_topologies import FOREVER, ask, cluster, cluster_url


async def test_what_is_published_at_one_node_is_heard_at_another(redis_cluster: list[RedisServer]) -> None:
    nodes = redis_cluster
    listener = RedisBroker.from_url(cluster_url(nodes[2]))
    pubsub = listener.pubsub()
    await pubsub.psubscribe("exps:*")
    talker = RedisBroker.from_url(cluster_url(nodes[0]))
    sends = [(b"exps:%d" % number, b"%d" % number) for number in range(200)]
    assert await talker.publish(sends) == [None] * 200  # a node counts its own subscribers only
    heard = []
    while len(heard) < 200:
        message = await pubsub.get_message(timeout=60)
        assert message is not None
        heard.append((message["channel"], message["data"]))
    assert heard == sends
    assert await talker.subscriber_count([b"exps:1"]) == 1
    await pubsub.aclose()
    await talker.close()
    await listener.close()


async def test_when_a_node_dies_another_one_takes_over_and_the_listener_tells_a_gap() -> None:
    async with cluster() as nodes:
        hook = Listed()
        async with Messager(
            RedisBroker.from_url(cluster_url(nodes[0])), "e1"
        ) as talker:  # the other nodes it learns from this one
            talker.add_log_hook(hook)
            await talker.subscribe_and_start_listening(["c:*"])
            await talker.send_message("c:1", {"n": 1})
            await until(lambda: "received" in hook.kinds())
            nodes[0].stop(kill=True)
            await until(lambda: "gap" in hook.kinds(), FOREVER)
            async with asyncio.timeout(FOREVER):
                while True:
                    try:
                        await talker.send_message("c:1", {"n": 2})
                        break
                    except PublishError:
                        continue
            await until(lambda: hook.kinds().count("received") == 2)
            await talker.broker.close()
        heard = [record.payload for record in hook.records if record.kind == "received"]
        assert heard == [b'{"n": 1}', b'{"n": 2}']
        assert all(record.receivers is None for record in hook.records if record.kind == "sent")


async def test_a_node_behind_tls_is_a_node(
    tmp_path: Path, redis_cluster: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager.brokers.redis.cluster.TRY_TIMEOUT", 60.0)
    monkeypatch.setattr("messager.brokers.redis.cluster.CONNECT_TIMEOUT", 60.0)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    nodes = redis_cluster
    async with Proxy(nodes[0].port, tls=context).running() as proxy:
        broker = RedisBroker.from_url(f"rediss+cluster://127.0.0.1:{proxy.port}?ssl_ca_certs={tmp_path / 'ca.pem'}")
        assert await broker.publish([(b"c", b"")]) == [None]
        await broker.close()


async def test_of_several_hosts_one_that_answers_is_enough(redis_cluster: list[RedisServer]) -> None:
    nodes = redis_cluster
    async with Proxy(nodes[0].port).running() as hung:
        hung.silent = True
        url = f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{hung.port},127.0.0.1:{nodes[1].port}"
        broker = RedisBroker.from_url(url)
        await broker.connect()
        assert await broker.publish([(b"c", b"")]) == [None]
        await broker.close()


async def test_the_slowest_subscriber_counts_at_whichever_node_it_is(redis_cluster: list[RedisServer]) -> None:
    nodes = redis_cluster
    for node in nodes:
        await ask(node.port, "CONFIG", "SET", "client-output-buffer-limit", "pubsub 64mb 32mb 60")
    await ask(nodes[1].port, "CONFIG", "SET", "client-output-buffer-limit", "pubsub 48mb 0 0")
    talker = RedisBroker.from_url(cluster_url(nodes[0]))
    assert (await talker.output_limits())[:2] == (48 * 1024 * 1024, 32 * 1024 * 1024)
    slow = RedisBroker.from_url(cluster_url(nodes[2])).pubsub()
    await slow.psubscribe("a*", "*a")
    assert (await talker.backlog()) is not None
    for _ in range(8):
        await talker.publish([(b"aa", bytes(10_000))] * 200)  # Valkey 9 does not count larger ones

    async def waits() -> bool:
        backlog = await talker.backlog()
        return backlog is not None and backlog.waiting > 1_000_000 and backlog.subscriptions == 2

    await until(waits)
    await slow.aclose()
    await talker.close()


async def test_each_pattern_of_a_subscriber_counts_where_no_node_says_who_got_a_message(
    redis_cluster: list[RedisServer],
) -> None:
    nodes = redis_cluster
    pubsub = RedisBroker.from_url(cluster_url(nodes[2])).pubsub()
    await pubsub.psubscribe("c", "c*", "*c")
    broker = RedisBroker.from_url(cluster_url(nodes[0]))
    flow = FlowControl(broker)
    await flow.begin()
    wire = [(b"c", b"payload")]
    await flow.spend(wire)
    flow.spent(wire, await broker.publish(wire))
    assert flow.copies(b"c") == 3
    await pubsub.aclose()
    await broker.close()


async def test_where_the_nodes_may_not_be_asked_it_talks_and_tells_nothing_of_subscribers(
    redis_cluster: list[RedisServer],
) -> None:
    nodes = redis_cluster
    for node in nodes:
        await ask(node.port, "ACL", "SETUSER", "limited", "on", ">secret", "allchannels", "+@pubsub", "+ping")
    place = cluster_url(*nodes).replace("://", "://limited:secret@")
    broker = RedisBroker.from_url(place)
    pubsub = broker.pubsub()
    await pubsub.psubscribe("c")
    assert await broker.publish([(b"c", b"")]) == [None]
    message = await pubsub.get_message(timeout=60)
    assert message is not None and message["channel"] == b"c"
    assert await broker.backlog() is None
    assert "+cluster|nodes" in str(broker.refused)
    await pubsub.aclose()
    await broker.close()


async def test_what_is_no_cluster_is_told_with_the_scheme_to_write(redis: RedisServer, tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="cluster support disabled; write redis where the URL says"):
        await RedisBroker.from_url(cluster_url(redis)).connect()
    url = f"redis+cluster://bob:hunter2@127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    done = await asyncio.to_thread(messager, "--redis", url, "record", "--exp", "e1", cwd=tmp_path)
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr and "bob" not in done.stderr


@pytest.mark.parametrize("how", ["forgotten", pytest.param("reset", marks=pytest.mark.nightly)])
async def test_who_is_connected_to_a_node_that_leaves_the_cluster_goes_to_another_and_tells_a_gap(how: str) -> None:
    """The node continues to answer alone, after `redis-cli --cluster del-node` or only CLUSTER FORGET."""
    async with cluster() as nodes:
        leaver, *others = nodes
        broker = RedisBroker.from_url(cluster_url(leaver))
        pubsub = broker.pubsub()
        await pubsub.psubscribe("c:*")
        await broker.connect()
        number = await ask(leaver.port, "CLUSTER", "MYID")
        for node in others:
            await ask(node.port, "CLUSTER", "FORGET", number)
        if how == "reset":
            await ask(leaver.port, "CLUSTER", "RESET", "HARD")
        async with asyncio.timeout(FOREVER):
            while (gap := await pubsub.get_message(timeout=0.1)) is None:
                pass
        assert gap["type"] == "gap" and f"127.0.0.1:{leaver.port} has left its cluster" in gap["reason"]
        assert await ask(others[0].port, "PUBLISH", "c:1", "from another") in (0, 1)
        message = await pubsub.get_message(timeout=60)
        assert message is not None and message["data"] == b"from another"

        async def publishes_elsewhere() -> bool:
            await broker.publish([(b"c:2", b"ours")])
            heard = await pubsub.get_message(timeout=0.1)
            return heard is not None and heard["data"] == b"ours"

        await until(publishes_elsewhere, FOREVER)
        await pubsub.aclose()
        await broker.close()


@pytest.mark.nightly
async def test_a_node_that_the_others_call_failed_is_left() -> None:
    async with cluster(node_timeout=1000) as nodes:
        hung, *others = nodes
        broker = RedisBroker.from_url(cluster_url(hung), ping_interval=60)
        pubsub = broker.pubsub()
        await pubsub.psubscribe("c:*")
        hung.suspend()
        try:
            async with asyncio.timeout(FOREVER):
                while (gap := await pubsub.get_message(timeout=0.1)) is None:
                    pass
            assert gap["type"] == "gap" and "reported as failed" in gap["reason"]

            async def hears() -> bool:  # on a busy machine, the others lose sight of each other too
                await ask(others[0].port, "PUBLISH", "c:1", "x")
                message = await pubsub.get_message(timeout=0.1)
                return message is not None and message.get("data") == b"x"

            await until(hears, FOREVER)
        finally:
            hung.resume()
        await pubsub.aclose()
        await broker.close()


@pytest.mark.nightly
async def test_a_lone_node_and_one_whose_others_are_out_of_reach_are_kept() -> None:
    async with cluster() as nodes:
        broker = RedisBroker.from_url(cluster_url(nodes[0]))
        pubsub = broker.pubsub()
        await pubsub.psubscribe("c:*")
        for node in nodes[1:]:
            node.stop(kill=True)
        check = pubsub._endpoint.check()
        assert check is not None and pubsub._connection is not None
        await check.confirm(pubsub._connection._wire.connection)
        await check.aclose()
        assert pubsub.lost_since() is None
        await pubsub.aclose()
        await broker.close()


@pytest.mark.nightly
async def test_nodes_that_do_not_agree_confirm_nobody() -> None:
    """One node has forgotten the node and does not forward messages to it; the other one has not."""
    async with cluster() as nodes:
        leaver, first, _ = nodes
        broker = RedisBroker.from_url(cluster_url(leaver))
        pubsub = broker.pubsub()
        await pubsub.psubscribe("c:*")
        check = pubsub._endpoint.check()
        assert check is not None and pubsub._connection is not None
        connection = pubsub._connection._wire.connection
        await check.confirm(connection)
        await ask(first.port, "CLUSTER", "FORGET", await ask(leaver.port, "CLUSTER", "MYID"))
        with pytest.raises(BrokerUnavailable, match="do not agree"):
            await check.confirm(connection)
        await check.aclose()
        await pubsub.aclose()
        await broker.close()


@pytest.mark.nightly
async def test_a_node_that_leaves_while_it_is_subscribed_to_again_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster() as nodes:
        leaver, *others = nodes
        broker = RedisBroker.from_url(cluster_url(*nodes))
        pubsub = broker.pubsub()
        await pubsub.psubscribe("c:*")
        subscribe = SubscribedConnection.subscribe

        async def held(self: SubscribedConnection, patterns: Sequence[bytes]) -> None:
            monkeypatch.undo()
            number = await ask(leaver.port, "CLUSTER", "MYID")
            for node in others:
                await ask(node.port, "CLUSTER", "FORGET", number)
            await until(lambda: self._superseded is not None)
            await subscribe(self, patterns)

        monkeypatch.setattr(SubscribedConnection, "subscribe", held)
        await ask(leaver.port, "CLIENT", "KILL", "TYPE", "pubsub")
        async with asyncio.timeout(FOREVER):
            while (gap := await pubsub.get_message(timeout=0.1)) is None:
                pass
        assert gap["type"] == "gap"
        await ask(others[0].port, "PUBLISH", "c:1", "x")
        message = await pubsub.get_message(timeout=60)
        assert message is not None and message["data"] == b"x"
        await pubsub.aclose()
        await broker.close()


@pytest.mark.nightly
async def test_a_host_of_the_url_that_left_the_cluster_has_no_say() -> None:
    async with cluster() as nodes:
        leaver, member, other = nodes
        number = await ask(leaver.port, "CLUSTER", "MYID")
        for node in (member, other):
            await ask(node.port, "CLUSTER", "FORGET", number)
            await ask(leaver.port, "CLUSTER", "FORGET", await ask(node.port, "CLUSTER", "MYID"))
        broker = RedisBroker.from_url(cluster_url(member, leaver))
        pubsub = broker.pubsub()
        await pubsub.psubscribe("c:*")
        check = pubsub._endpoint.check()
        assert check is not None and pubsub._connection is not None
        await check.confirm(pubsub._connection._wire.connection)
        await check.aclose()
        await pubsub.aclose()
        await broker.close()
