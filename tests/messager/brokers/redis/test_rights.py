"""Redis with restricted users, and on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from messager import BrokerUnavailable, Messager, PublishError, RedisBroker
from messager.testing import RedisServer, redis_server
from messager_store import EventLog, Replay
from messager_store.errors import ReplayFailed, ReplayRefused
from tests.support import Listed, until
from tests.support.logs import filled, sent
from tests.support.redis_topologies import ask

LISTENER = ("resetchannels", "&ok:*", "+psubscribe", "+ping")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server("--requirepass", "hunter2") as running:
        yield running


@contextlib.asynccontextmanager
async def user(server: RedisServer, *rules: str) -> AsyncIterator[RedisBroker]:
    """Return a broker whose user has these ACL rules."""
    await ask(server.port, "ACL", "SETUSER", "limited", "reset", "on", ">secret", *rules, password="hunter2")
    broker = RedisBroker.from_url(f"redis://limited:secret@127.0.0.1:{server.port}/0")
    yield broker
    await broker.close()


async def test_a_user_of_the_url_talks_with_the_rights_it_has(server: RedisServer) -> None:
    hook = Listed()
    async with user(server, *LISTENER, "+publish") as broker, Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["ok:*"])
        await messager.send_message("ok:1", {})
        await until(lambda: "received" in hook.kinds())


async def test_a_channel_that_may_not_be_published_to_is_told_with_the_rule_to_grant(server: RedisServer) -> None:
    async with user(server, *LISTENER, "+publish") as broker:
        [refused] = await broker.publish([(b"no:1", b"")])
        assert isinstance(refused, PublishError) and refused.refused
        assert str(refused).endswith("; grant it with ACL SETUSER USER '&CHANNEL'")


async def test_a_publish_that_is_no_right_is_told_with_the_rule_to_grant(server: RedisServer) -> None:
    async with user(server, *LISTENER) as broker:
        [refused] = await broker.publish([(b"ok:1", b"")])
        assert str(refused).endswith("; grant it with ACL SETUSER USER +publish")


async def test_a_pattern_that_may_not_be_listened_to_is_told_with_the_rule_to_grant(server: RedisServer) -> None:
    async with user(server, *LISTENER) as broker:
        pubsub = broker.pubsub()
        with pytest.raises(BrokerUnavailable, match=r"; grant it with ACL SETUSER USER '&exps:\*'$"):
            await pubsub.psubscribe("exps:*")
        await pubsub.aclose()


@pytest.mark.parametrize("rules", [LISTENER, ("-@all", "&*")])
async def test_the_rule_that_a_line_names_is_the_one_that_was_missing(
    server: RedisServer, rules: tuple[str, ...]
) -> None:
    async with user(server, *rules) as broker:
        for _ in range(4):
            pubsub = broker.pubsub()
            try:
                await pubsub.psubscribe("exps:*")
                break
            except BrokerUnavailable as error:
                rule = str(error).rpartition(" ACL SETUSER USER ")[2].strip("'")
                await ask(server.port, "ACL", "SETUSER", "limited", rule, password="hunter2")
            finally:
                await pubsub.aclose()
        else:
            pytest.fail("it never could")


async def test_a_replay_at_full_speed_names_the_right_that_flow_control_needs(
    server: RedisServer, log: EventLog
) -> None:
    await filled(log, [sent(1)])
    async with user(server, *LISTENER, "allchannels", "+publish") as broker:
        with pytest.raises(ReplayRefused, match=r"CLIENT LIST.*; grant it with ACL SETUSER USER \+client\|list\)"):
            await Replay(log, "e1", broker, speed="max").run()
        assert (await Replay(log, "e1", broker, speed="max", rate=1000).run()).published == 1
    async with user(server, *LISTENER, "allchannels", "+publish", "+client|list") as broker:
        assert await broker.output_limits() == (32 << 20, 8 << 20, 16 << 10)  # the defaults: CONFIG is refused
        assert (await Replay(log, "e1", broker, speed="max").run()).published == 1


async def test_a_replay_that_waits_for_subscribers_names_the_right_it_needs(server: RedisServer, log: EventLog) -> None:
    await filled(log, [sent(1)])
    async with user(server, "allchannels", "+publish") as broker:
        with pytest.raises(ReplayFailed, match=r"ACL SETUSER USER \+pubsub\|numpat\)"):
            await Replay(log, "e1", broker, wait_for_subscribers=1).run()


async def test_wrong_credentials_are_told_with_where_they_belong(server: RedisServer) -> None:
    for credentials in ("", "limited:wrong@", ":wrong@", "nobody:wrong@"):
        broker = RedisBroker.from_url(f"redis://{credentials}127.0.0.1:{server.port}/0")
        with pytest.raises(BrokerUnavailable, match=r"redis://USER:PASSWORD@HOST$") as caught:
            await broker.connect()
        assert "wrong" not in str(caught.value).replace("WRONGPASS", "")


async def test_a_server_that_asks_for_a_password_after_the_handshake_only_is_told_the_same() -> None:
    """Redis 7.0 rejects the unknown CLIENT SETINFO before it asks for a password."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            unknown = b"-ERR unknown subcommand\r\n" * data.count(b"SETINFO")
            writer.write(unknown or b"-NOAUTH Authentication required.\r\n")
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    broker = RedisBroker.from_url(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
    with pytest.raises(BrokerUnavailable, match=r"redis://USER:PASSWORD@HOST$"):
        await broker.connect()
    await broker.close()
    await ended.wait()
    server.close()
    await server.wait_closed()


async def test_messages_go_through_a_socket_of_the_file_system(tmp_path: Path) -> None:
    place = tmp_path / "redis.sock"
    with redis_server("--unixsocket", str(place), "--requirepass", "hunter2"):
        await until(place.exists)
        broker = RedisBroker.from_url(f"unix://:hunter2@{place}?db=3")
        hook = Listed()
        async with Messager(broker, "e1") as messager:
            messager.add_log_hook(hook)
            await messager.subscribe_and_start_listening(["u:*"])
            await messager.send_message("u:1", {"n": 1})
            await until(lambda: "received" in hook.kinds())
            await broker.close()
        assert broker.url == f"unix://{place}"
        assert hook.records[0].receivers == 1
