"""Effects of lost and slow Redis connections on messages."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from messager import BrokerUnavailable, Messager, PublishError, RedisBroker
from messager.brokers.redis import server
from messager.brokers.redis.endpoint import endpoint_at
from messager.testing import RedisServer, redis_server
from tests.support import Listed, Proxy, until
from tests.support.redis_topologies import ask


def through(proxy: Proxy, patience: float = 0.2) -> RedisBroker:
    url = f"redis://127.0.0.1:{proxy.port}/0"
    return RedisBroker.from_url(url, timeout=30.0, ping_interval=patience, ping_timeout=patience)


async def test_a_lost_answer_is_unknown_and_the_message_is_not_sent_again(redis: RedisServer) -> None:
    """The client of redis-py sent it twice, and a pipeline of three six times, and reported success."""
    listener = RedisBroker.from_url(redis.url).pubsub()
    await listener.psubscribe("lost:*")
    hook = Listed()
    async with Proxy(redis.port).running() as proxy, Messager(through(proxy), "e1") as messager:
        messager.add_log_hook(hook)
        proxy.cut_answer_to = b"lost:"
        _, *results = await asyncio.gather(  # the first goes by itself, the others together behind it
            messager.send_message("first", {}),
            *(messager.send_message("lost:1", {"n": number}) for number in range(3)),
            return_exceptions=True,
        )
        assert [result.outcome for result in results if isinstance(result, PublishError)] == ["unknown"] * 3
        await messager.send_message("lost:2", {"n": 3})  # the next connection works
        await messager.broker.close()
    seen = []
    while (message := await listener.get_message(timeout=60)) is not None:
        seen.append(message["data"])
        if message["channel"] == b"lost:2":
            break
    assert len(seen) == len(set(seen)) == 4
    assert hook.kinds() == ["sent", "failed", "failed", "failed", "sent"]
    assert hook.records[1].meta is not None and hook.records[1].meta["outcome"] == "unknown"
    await listener.aclose()


async def test_a_network_that_falls_silent_is_noticed_and_told_as_a_gap(redis: RedisServer) -> None:
    hook = Listed()
    async with Proxy(redis.port).running() as proxy, Messager(through(proxy), "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["s"])
        before = messager.clock.now()
        proxy.silent = True
        await until(lambda: messager._pubsub is not None and messager._pubsub.lost_since() is not None)
        proxy.cut()
        proxy.silent = False
        await until(lambda: "gap" in hook.kinds())
        outside = RedisBroker.from_url(redis.url)
        assert await outside.publish([(b"s", b"after")]) == [1]
        await until(lambda: "received" in hook.kinds())
        await outside.close()
        await messager.broker.close()
    gap = next(record.meta for record in hook.records if record.kind == "gap")
    assert gap is not None
    assert gap["since"] <= before + 250_000_000  # the last moment proven alive
    assert gap["until"] > before
    assert "ping" in gap["reason"]


async def test_a_quiet_but_living_connection_is_kept(redis: RedisServer) -> None:
    hook = Listed()
    async with Proxy(redis.port).running() as proxy:
        broker = RedisBroker.from_url(f"redis://127.0.0.1:{proxy.port}/0", ping_interval=0.05, ping_timeout=60)
        async with Messager(broker, "e1") as messager:
            messager.add_log_hook(hook)
            await messager.subscribe_and_start_listening(["q"])
            await until(lambda: proxy.requests.count(b"PING") >= 4)
            await messager.send_message("q", {})
            await until(lambda: "received" in hook.kinds())
            await messager.broker.close()
    assert "gap" not in hook.kinds()


async def test_a_subscriber_cut_off_comes_back_with_all_its_patterns(redis: RedisServer) -> None:
    hook = Listed()
    outside = RedisBroker.from_url(redis.url)
    async with Proxy(redis.port).running() as proxy, Messager(through(proxy), "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["a:*"])
        await messager.subscribe_and_start_listening(["b:*"])
        for round_ in range(3):
            proxy.cut()
            await until(lambda round_=round_: hook.kinds().count("gap") == round_ + 1)  # type: ignore[misc]
            assert await outside.publish([(b"a:1", b"x"), (b"b:1", b"y")]) == [1, 1]
            await until(lambda round_=round_: hook.kinds().count("received") == 2 * round_ + 2)  # type: ignore[misc]
        await messager.broker.close()
    await outside.close()


async def test_a_restarted_server_costs_no_message_that_is_sent_after_it(tmp_path: object) -> None:
    with redis_server() as server:
        broker = RedisBroker.from_url(server.url, timeout=30.0)
        hook = Listed()
        async with Messager(broker, "e1") as messager:
            messager.add_log_hook(hook)
            await messager.subscribe_and_start_listening(["r"])
            await messager.send_message("r", {"n": 1})
            await until(lambda: "received" in hook.kinds())  # else the end of the server may cost it
            server.stop(kill=True)
            await until(lambda: messager._pubsub is not None and messager._pubsub.lost_since() is not None)
            with pytest.raises(PublishError):
                await messager.send_message("r", {"n": 2})
            with pytest.raises(BrokerUnavailable):
                await messager.subscribe_and_start_listening(["more"])
            server.start()
            await until(lambda: "gap" in hook.kinds())
            await messager.send_message("r", {"n": 3})
            await until(lambda: hook.kinds().count("received") == 2)
            await broker.close()
        assert [record.payload for record in hook.records if record.kind == "received"] == [b'{"n": 1}', b'{"n": 3}']


async def test_a_connection_closed_while_the_event_loop_was_blocked_is_made_anew(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager.brokers.redis.broker.STALE_AFTER", 0.0)
    broker = RedisBroker.from_url(redis.url)
    assert await broker.publish([(b"i", b"1")]) == [0]
    blocking = Redis(port=redis.port)  # as an agent's own work does, it keeps the event loop from running
    kill = "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"
    assert blocking.execute_command(*kill) == 1
    assert await broker.publish([(b"i", b"2")]) == [0]
    assert blocking.execute_command(*kill) == 1
    assert await broker.clock_offset() is not None
    blocking.close()
    await broker.close()


async def test_a_broker_that_was_closed_and_is_used_again_still_waits_no_longer_than_it_may(redis: RedisServer) -> None:
    async with Proxy(redis.port).running() as proxy:
        broker = RedisBroker.from_url(f"redis://127.0.0.1:{proxy.port}/0", timeout=1.0)
        assert await broker.publish([(b"t", b"1")]) == [0]
        await broker.close()
        assert await broker.publish([(b"t", b"2")]) == [0]
        proxy.silent = True
        [lost] = await broker.publish([(b"t", b"3")])
        assert isinstance(lost, PublishError) and lost.outcome == "unknown" and "no answer in time" in str(lost)
        proxy.cut()
        proxy.silent = False
        assert await broker.publish([(b"t", b"4")]) == [0]
        await broker.close()


async def test_a_message_the_server_refuses_is_not_sent_and_the_others_are() -> None:
    with redis_server("--requirepass", "hunter2") as server:
        url = f"redis://limited:pw@127.0.0.1:{server.port}/0"
        from redis.asyncio import Redis

        admin = Redis(port=server.port, password="hunter2")
        rights = ["resetchannels", "&ok:*", "+@pubsub", "+ping"]
        await admin.execute_command("ACL", "SETUSER", "limited", "on", ">pw", *rights)
        broker = RedisBroker.from_url(url)
        first, second, third = await broker.publish([(b"ok:1", b"a"), (b"no:1", b"b"), (b"ok:2", b"c")])
        assert (first, third) == (0, 0)
        assert isinstance(second, PublishError) and second.outcome == "not_sent" and second.refused
        # what may not be asked is told as unknown, not as an error
        assert await broker.backlog() is None
        assert await broker.clock_offset() is None
        pubsub = broker.pubsub()
        with pytest.raises(BrokerUnavailable, match="permissions"):
            await pubsub.psubscribe("no:*")
        await pubsub.aclose()
        await broker.close()
        await admin.aclose()


async def test_a_subscription_that_was_cut_before_it_was_confirmed_is_not_taken_for_one(redis: RedisServer) -> None:
    async with Proxy(redis.port).running() as proxy:
        pubsub = through(proxy).pubsub()
        await pubsub.psubscribe("a*")
        going = True

        async def read() -> None:
            while going:
                await pubsub.get_message(timeout=0.05)

        reading = asyncio.create_task(read())
        proxy.silent = True
        adding = asyncio.create_task(pubsub.psubscribe("b*"))
        await until(lambda: pubsub._connection is not None and b"b*" in pubsub._connection._unconfirmed)
        proxy.cut()
        proxy.silent = False
        with pytest.raises(BrokerUnavailable):
            await adding
        await until(lambda: pubsub.lost_since() is None)
        await pubsub.psubscribe("b*")
        outside = RedisBroker.from_url(redis.url)
        assert await outside.publish([(b"a1", b""), (b"b1", b"")]) == [1, 1]
        going = False
        await reading
        await outside.close()
        await pubsub.aclose()


async def test_a_large_message_on_a_slow_link_is_no_silence(redis: RedisServer) -> None:
    async with Proxy(redis.port).running() as proxy:
        pubsub = through(proxy, 0.8).pubsub()
        await pubsub.psubscribe("slow")
        proxy.answer_delay = 0.02  # 64 kB every 20 ms: 2 s for what follows, three times the patience
        outside = RedisBroker.from_url(redis.url)
        payload = b"x" * (6 * 1024 * 1024)
        assert await outside.publish([(b"slow", payload)]) == [1]
        async with asyncio.timeout(60):
            while (message := await pubsub.get_message(timeout=0.1)) is None:
                assert pubsub.lost_since() is None
        assert message["data"] == payload
        await outside.close()
        await pubsub.aclose()


async def test_a_gap_begins_before_the_messages_that_were_still_on_their_way(redis: RedisServer) -> None:
    """The gap once began at the last message that was read, although later ones were sent before that."""
    async with Proxy(redis.port).running() as proxy:
        pubsub = through(proxy).pubsub()
        await pubsub.psubscribe("way")
        proxy.answer_delay = 0.05
        outside = RedisBroker.from_url(redis.url)
        sent_at = time.monotonic_ns()
        assert await outside.publish([(b"way", bytes([number]) * 60_000) for number in range(8)]) == [1] * 8
        async with asyncio.timeout(60):
            while await pubsub.get_message(timeout=0.01) is None:
                pass
        proxy.cut()
        received = 1
        async with asyncio.timeout(60):
            while (message := await pubsub.get_message(timeout=0.1)) is None or message["type"] != "gap":
                received += message is not None
        assert received < 8
        assert message["since"] <= sent_at
        await outside.close()
        await pubsub.aclose()


async def test_a_gap_on_a_busy_connection_begins_at_the_last_proof(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager.brokers.redis.subscribed_connection.PROVE_NS", 20_000_000)
    outside = RedisBroker.from_url(redis.url)
    async with Proxy(redis.port).running() as proxy:
        pubsub = through(proxy).pubsub()
        await pubsub.psubscribe("busy")
        began = time.monotonic_ns()
        async with asyncio.timeout(60):
            while proxy.requests.count(b"PING") < 3:
                await outside.publish([(b"busy", b"")])
                await pubsub.get_message(timeout=0.01)
        proxy.cut()
        async with asyncio.timeout(60):
            while (message := await pubsub.get_message(timeout=0.1)) is None or message["type"] != "gap":
                pass
        assert message["since"] > began
        await outside.close()
        await pubsub.aclose()


async def test_what_a_subscriber_does_not_fetch_waits_in_redis(redis: RedisServer) -> None:
    """Otherwise a slow agent would fill its memory. Redis has a limit and reports it."""
    pubsub = RedisBroker.from_url(redis.url).pubsub()
    await pubsub.psubscribe("much")
    outside = RedisBroker.from_url(redis.url)
    payloads = [b"%06d" % number + bytes(5000) for number in range(3000)]
    for at in range(0, len(payloads), 100):
        assert await outside.publish([(b"much", payload) for payload in payloads[at : at + 100]]) == [1] * 100
    await until(lambda: pubsub._connection is not None and pubsub._connection._wire._paused)
    assert len(pubsub._inbox) < 1000
    heard = []
    while len(heard) < len(payloads):
        message = await pubsub.get_message(timeout=60)
        assert message is not None
        heard.append(message["data"])
    assert heard == payloads
    await outside.close()
    await pubsub.aclose()


async def test_what_a_failed_try_to_reconnect_heard_is_kept() -> None:
    connections = ended = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections, ended
        connections += 1
        number = connections
        while data := await reader.read(65536):
            for pattern in (b"a", b"b"):
                if b"PSUBSCRIBE" in data and (number != 2 or pattern == b"a"):
                    writer.write(b"*3\r\n$10\r\npsubscribe\r\n$1\r\n%b\r\n:1\r\n" % pattern)
            if b"CLIENT" in data:
                writer.write(b"+OK\r\n" * data.count(b"CLIENT"))
            if b"PING" in data:
                writer.write(b"+PONG\r\n")
            if b"PSUBSCRIBE" in data:
                writer.write(b"*4\r\n$8\r\npmessage\r\n$1\r\na\r\n$1\r\na\r\n$1\r\n%d\r\n" % number)
                await writer.drain()
                if number < 3:
                    break
        writer.close()
        await writer.wait_closed()
        ended += 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pubsub = RedisBroker.from_url(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0").pubsub()
    await pubsub.psubscribe("a", "b")
    heard = []
    while len(heard) < 4:
        message = await pubsub.get_message(timeout=0.2)
        if message is not None:
            heard.append(message["data"] if message["type"] == "pmessage" else "gap")
    assert heard == [b"1", b"2", "gap", b"3"]
    await pubsub.aclose()
    await until(lambda: ended == 3)
    server.close()
    await server.wait_closed()


async def test_what_is_published_while_it_connects_leaves_in_the_order_of_the_calls(redis: RedisServer) -> None:
    """The last call was once sent first, if it got the connection before the waiting calls."""
    pubsub = RedisBroker.from_url(redis.url).pubsub()
    await pubsub.psubscribe("order")
    broker = RedisBroker.from_url(redis.url)
    answers = [asyncio.ensure_future(broker.publish([(b"order", b"%d" % number)])) for number in range(3)]
    while broker._wire is None:
        await asyncio.sleep(0)
    answers += [asyncio.ensure_future(broker.publish([(b"order", b"%d" % number)])) for number in range(3, 6)]
    assert await asyncio.gather(*answers) == [[1]] * 6
    heard = []
    while len(heard) < 6:
        message = await pubsub.get_message(timeout=60)
        assert message is not None
        heard.append(int(message["data"]))
    assert heard == list(range(6))
    assert not broker._delayed
    await pubsub.aclose()
    await broker.close()


async def test_a_redis_that_cannot_save_still_carries_messages(tmp_path: Path) -> None:
    """Such a server refuses PING, but accepts PUBLISH and PSUBSCRIBE."""
    gone = tmp_path / "gone"
    gone.mkdir()
    with redis_server("--dir", str(gone)) as server, Redis.from_url(server.url) as admin:
        gone.rmdir()
        admin.config_set("save", "3600 1")
        admin.set("a", 1)
        admin.bgsave()
        await until(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err")
        with pytest.raises(ResponseError, match="MISCONF"):
            admin.ping()
        broker = RedisBroker.from_url(server.url)
        pubsub = broker.pubsub()
        await pubsub.psubscribe("c")
        await broker.connect()
        assert await broker.publish([(b"c", b"1")]) == [1]
        message = await pubsub.get_message(timeout=60)
        assert message is not None and message["data"] == b"1"
        await pubsub.aclose()
        await broker.close()
        server.stop(kill=True)  # it does not end while it cannot save


async def test_a_broker_that_is_closed_while_its_server_is_replaced_stays_closed(redis: RedisServer) -> None:
    broker = RedisBroker.from_url(redis.url)
    await broker.connect()
    await ask(redis.port, "CLIENT", "PAUSE", 500)
    first = asyncio.ensure_future(broker.publish([(b"c", b"1")]))
    broker._supersede("replaced", False)
    second = asyncio.ensure_future(broker.publish([(b"c", b"2")]))
    await until(lambda: broker._lock.locked())
    await broker.close()
    for answer in (first, second):
        assert isinstance((await answer)[0], PublishError)
    assert broker._wire is None


async def test_the_first_ping_has_the_time_of_a_connection(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load, a server may take longer for it than one of several hosts gets before the next one is tried."""
    monkeypatch.setattr(server, "TRY_TIMEOUT", 0.0)
    connection = await endpoint_at(redis.url, 60.0).connect()
    await connection.disconnect()
