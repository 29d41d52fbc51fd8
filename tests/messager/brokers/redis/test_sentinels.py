"""Redis with sentinels: a failover causes a gap and no repeated message."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from pathlib import Path

import pytest

from messager import BrokerUnavailable, Messager, PublishError, RedisBroker
from messager.testing import RedisServer, free_port
from messager_store import EventLog, Recorder
from messager_store.recording.tap import Tap
from tests.support import Listed, messager, until
from tests.support.redis_topologies import FOREVER, SentinelServer, ask, is_master, watched


async def published(talker: Messager, number: int) -> list[str]:
    """Send numbered messages until one is accepted; return the outcomes of the others."""
    outcomes = []
    async with asyncio.timeout(FOREVER):
        while True:
            try:
                await talker.send_message("s:1", {"n": number, "try": len(outcomes)})
                return outcomes
            except PublishError as error:
                outcomes.append(error.outcome)
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["killed", pytest.param("demoted", marks=pytest.mark.nightly)])
async def test_after_a_failover_both_connections_go_to_the_new_master_and_the_listener_tells_a_gap(how: str) -> None:
    async with watched() as there:
        hook = Listed()
        async with Messager(RedisBroker.from_url(there.url(free_port())), "e1") as talker:
            talker.add_log_hook(hook)
            await talker.subscribe_and_start_listening(["s:*"])
            await talker.send_message("s:1", {"n": 1})
            await until(lambda: "received" in hook.kinds())
            if how == "killed":
                there.master.stop(kill=True)
            else:
                await ask(there.sentinel.port, "SENTINEL", "FAILOVER", "mymaster")
            await until(lambda: is_master(there.replica.port), FOREVER)
            await until(lambda: "gap" in hook.kinds(), FOREVER)
            number = 1
            async with asyncio.timeout(FOREVER):
                while hook.kinds().count("received") < 2:  # a listener that moves once more misses what is sent then
                    number += 1
                    await published(talker, number)
                    await asyncio.sleep(0.5)
            assert await ask(there.replica.port, "PUBSUB", "NUMPAT") == 1
            sent = [record for record in hook.records if record.kind == "sent"]
            assert sent[-1].receivers == 1  # both are at one server
            await talker.broker.close()
        heard = [json.loads(record.payload)["n"] for record in hook.records if record.kind == "received"]
        assert len(heard) >= 2 and heard == sorted(set(heard))


@pytest.mark.nightly
async def test_a_publish_whose_answer_was_lost_in_a_failover_is_unknown_and_not_sent_again() -> None:
    async with watched() as there:
        hook = Listed()
        async with Messager(RedisBroker.from_url(there.url()), "e1") as talker:
            talker.add_log_hook(hook)
            await talker.send_message("s:1", {"n": 0})
            await ask(there.master.port, "CLIENT", "PAUSE", 60_000)  # it takes everything in, and answers nothing
            lost = asyncio.create_task(talker.send_message("s:1", {"n": 1}))
            wire = talker.broker._wire  # type: ignore[attr-defined]
            await until(lambda: not wire._transport.get_write_buffer_size() and len(talker.broker._requests) == 1)  # type: ignore[attr-defined]
            there.master.stop(kill=True)
            with pytest.raises(PublishError) as caught:
                await lost
            assert caught.value.outcome == "unknown"
            outcomes = await published(talker, 2)
            assert set(outcomes) <= {"not_sent"}  # nothing could be written meanwhile
            await talker.broker.close()
        ends = [(record.kind, json.loads(record.payload)["n"]) for record in hook.records]
        assert ends.count(("failed", 1)) == 1 and ("sent", 1) not in ends and ends[-1] == ("sent", 2)


@pytest.mark.nightly
async def test_a_sentinel_that_still_names_a_replica_is_not_believed() -> None:
    async with watched() as there:
        stale = SentinelServer(there.replica.port)  # takes the replica for the master, for some seconds
        await stale.start()
        try:
            broker = RedisBroker.from_url(there.url(stale.port))
            await broker.connect()
            assert broker._wire is not None
            peer = broker._wire._transport.get_extra_info("peername")
            assert peer[1] == there.master.port
            await broker.close()
        finally:
            stale.remove()


async def test_what_no_sentinel_knows_is_told_in_one_line(redis: RedisServer, tmp_path: Path) -> None:
    """Sentinels have a password of their own."""
    sentinel = SentinelServer(redis.port, "requirepass hunter3", service="here")
    await sentinel.start()
    try:
        place = f"redis+sentinel://127.0.0.1:{sentinel.port}"
        with pytest.raises(BrokerUnavailable, match=r"the sentinel at .* Authentication required"):
            await RedisBroker.from_url(f"{place}/here").connect()
        broker = RedisBroker.from_url(f"{place}/here/5?sentinel_password=hunter3")
        assert await broker.publish([(b"s:1", b"")]) == [0]
        assert broker.url == f"{place}/here/5"
        await broker.close()
        with pytest.raises(BrokerUnavailable, match="does not know 'other', but here") as caught:
            await RedisBroker.from_url(f"{place}/other?sentinel_password=hunter3").connect()
        assert len(str(caught.value).splitlines()) == 1
        url = f"redis+sentinel://bob:hunter2@127.0.0.1:{sentinel.port}/here?sentinel_password=hunter4"
        done = await asyncio.to_thread(messager, "--redis", url, "record", "--exp", "e1", cwd=tmp_path)
        assert done.returncode == 3 and len(done.stderr.splitlines()) == 1
        assert f"the sentinel at 127.0.0.1:{sentinel.port}" in done.stderr
        assert not any(word in done.stderr + done.stdout for word in ("bob", "hunter2", "hunter4"))
    finally:
        sentinel.remove()
    gone = free_port()
    with pytest.raises(BrokerUnavailable, match=rf"the sentinel at 127\.0\.0\.1:{gone}"):
        await RedisBroker.from_url(f"redis+sentinel://127.0.0.1:{gone}").connect()
    with pytest.raises(BrokerUnavailable, match=r"the sentinel at .*unknown command"):  # a server, and no sentinel
        await RedisBroker.from_url(f"redis+sentinel://127.0.0.1:{redis.port}").connect()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"-ERR hunter3 is no password of mine\r\n", r"\*\*\* is no password of mine"),
        (b"+OK\r\n", "does not answer as"),
    ],
)
async def test_what_is_no_sentinel_is_told_and_not_quoted_where_it_repeats_the_password(
    answer: bytes, words: str
) -> None:
    async def parrot(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                writer.write(answer * data.count(b"*"))
        writer.close()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(parrot, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(BrokerUnavailable, match=words) as caught:
        await RedisBroker.from_url(f"redis+sentinel://127.0.0.1:{port}/here?sentinel_password=hunter3").connect()
    assert "hunter3" not in f"{caught.value} {caught.value!r}"
    await ended.wait()
    server.close()
    await server.wait_closed()


@pytest.mark.nightly
@pytest.mark.parametrize("may_ask", [True, False])
async def test_while_two_masters_answer_in_a_planned_failover_a_listener_hears_both(may_ask: bool) -> None:
    """The old master answers for some 9 s more: new clients publish on the new one, others on the old one.

    If an ACL forbids ROLE, the listener stays on the old one until its connection ends.
    """
    async with watched() as there:
        for server in (there.master, there.replica):
            rights = ["allchannels", "+@pubsub", "+ping", *(["+role"] if may_ask else [])]
            await ask(server.port, "ACL", "SETUSER", "limited", "on", ">secret", *rights)
        broker = RedisBroker.from_url(there.url().replace("://", "://limited:secret@"))
        pubsub = broker.pubsub()
        await pubsub.psubscribe("s:*")
        await ask(there.sentinel.port, "SENTINEL", "FAILOVER", "mymaster")
        gap = None
        async with asyncio.timeout(FOREVER):
            while gap is None:
                gap = await pubsub.get_message(timeout=0.1)
        assert gap["type"] == "gap" and f"127.0.0.1:{there.replica.port}" in gap["reason"]
        assert await is_master(there.master.port) and await is_master(there.replica.port)
        heard = []
        for number in range(3):  # over more than a second, so that the old master was asked again meanwhile
            await ask(there.master.port, "PUBLISH", "s:1", f"old {number}")
            await ask(there.replica.port, "PUBLISH", "s:1", f"new {number}")
            until_then = time.monotonic() + 0.6
            while time.monotonic() < until_then:
                message = await pubsub.get_message(timeout=0.1)
                if message is not None:
                    heard.append(message["data"])
        assert sorted(heard) == [b"new 0", b"new 1", b"new 2", b"old 0", b"old 1", b"old 2"]
        assert await broker.publish([(b"s:1", b"x")]) == [1]  # one at each; it publishes where the sentinels say
        await pubsub.aclose()
        await broker.close()


@pytest.mark.nightly
async def test_a_master_of_an_older_configuration_is_not_connected_to(redis: RedisServer) -> None:
    """Its successor is unreachable for a moment. A return to the old master would later repeat messages."""
    stale = SentinelServer(redis.port)
    newest = SentinelServer(
        free_port(), "sentinel config-epoch mymaster 5", "sentinel down-after-milliseconds mymaster 60000"
    )
    try:
        await stale.start()
        await newest.start()
        only = f"redis+sentinel://127.0.0.1:{stale.port}"
        broker = RedisBroker.from_url(only)
        await broker.connect()
        await broker.close()
        with pytest.raises(BrokerUnavailable, match="nobody listens there"):
            await RedisBroker.from_url(f"{only},127.0.0.1:{newest.port}").connect()
    finally:
        stale.remove()
        newest.remove()


@pytest.mark.nightly
async def test_a_master_that_hangs_holds_up_publishing_until_it_is_replaced_and_no_longer() -> None:
    async with watched() as there:
        broker = RedisBroker.from_url(there.url())
        assert await broker.publish([(b"s:1", b"1")]) == [0]
        there.master.suspend()
        try:
            lost = asyncio.ensure_future(broker.publish([(b"s:1", b"2")]))

            async def replaced() -> bool:
                return await there.named() == there.replica.port

            await until(replaced, FOREVER)
            async with asyncio.timeout(FOREVER):  # an answer is awaited for a minute otherwise
                while isinstance((await broker.publish([(b"s:1", b"3")]))[0], PublishError):
                    await asyncio.sleep(0.05)
            [unknown] = await lost
            assert isinstance(unknown, PublishError) and unknown.outcome == "unknown"
        finally:
            there.master.resume()
        await broker.close()


@pytest.mark.nightly
@pytest.mark.sqlite
async def test_a_tap_that_ends_while_nobody_confirms_its_server_logs_a_gap(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager.brokers.redis.subscribed_connection.UNCONFIRMED_NS", 500_000_000)
    async with watched() as there:
        broker = RedisBroker.from_url(there.url())
        async with Recorder(log, "e1", role="tap", patterns=["*"]) as recorder:
            listening = asyncio.Event()
            task = asyncio.create_task(Tap(broker, recorder, ["*"], active=listening.set).run(duration=3))
            await listening.wait()
            there.sentinel.stop()
            stopped = recorder.clock.now()
            await task
        [gap] = [entry.meta async for entry in log.read("e1", kinds=["gap"])]
        assert gap is not None and gap["since"] <= stopped and "before its server was confirmed" in gap["reason"]
        await broker.close()


@pytest.mark.nightly
async def test_a_gap_begins_when_the_sentinels_last_confirmed_the_master() -> None:
    async with watched() as there:
        broker = RedisBroker.from_url(there.url(), ping_interval=60)
        pubsub = broker.pubsub()
        await pubsub.psubscribe("s:*")
        there.sentinel.stop()  # nobody can confirm from now on
        stopped = time.monotonic_ns()
        read_until = time.monotonic_ns() + 2_000_000_000
        async with asyncio.timeout(FOREVER):
            while time.monotonic_ns() < read_until:  # messages prove that the connection is read, and no more
                await ask(there.master.port, "PUBLISH", "s:1", "x")
                await pubsub.get_message(timeout=0.05)
        await ask(there.master.port, "CLIENT", "KILL", "TYPE", "pubsub")
        await there.sentinel.start()
        async with asyncio.timeout(FOREVER):
            while (message := await pubsub.get_message(timeout=0.1)) is None or message["type"] != "gap":
                pass
        assert message["since"] <= stopped
        await pubsub.aclose()
        await broker.close()
