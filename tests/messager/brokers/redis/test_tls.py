"""Redis over TLS: the same guarantees, and certificate errors in one line.

The redis-server of the tests has no TLS, so a proxy adds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trustme

from messager import BrokerUnavailable, Messager, PublishError, RedisBroker
from messager.testing import RedisServer, free_port
from tests.support import Listed, Proxy, nightly_after, until


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> Path:
    """File of the authority that signed the server's certificate."""
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    return file


def served_by(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
    return context


@contextlib.asynccontextmanager
async def behind_tls(redis: RedisServer, context: ssl.SSLContext) -> AsyncIterator[Proxy]:
    async with Proxy(redis.port, tls=context).running() as proxy:
        yield proxy


def through(proxy: Proxy, ca: Path, extra: str = "", **options: float) -> RedisBroker:
    return RedisBroker.from_url(f"rediss://127.0.0.1:{proxy.port}/0?ssl_ca_certs={ca}{extra}", **options)


async def test_messages_go_out_and_come_in_through_tls(redis: RedisServer, authority: trustme.CA, ca: Path) -> None:
    hook = Listed()
    async with behind_tls(redis, served_by(authority)) as proxy, Messager(through(proxy, ca), "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["tls:*"])
        await messager.send_message("tls:one", {"n": 0})
        await asyncio.gather(*(messager.send_message("tls:many", {"n": number}) for number in range(1, 500)))
        await until(lambda: hook.kinds().count("received") == 500)
        assert b"PUBLISH" in proxy.requests  # what the server saw
        await messager.broker.close()
    heard = [record.payload for record in hook.records if record.kind == "received"]
    assert heard == [b'{"n": %d}' % number for number in range(500)]


async def test_large_messages_come_whole_through_tls_and_wait_in_redis_where_they_are_not_fetched(
    redis: RedisServer, authority: trustme.CA, ca: Path
) -> None:
    async with behind_tls(redis, served_by(authority)) as proxy:
        broker = through(proxy, ca)
        pubsub = broker.pubsub()
        await pubsub.psubscribe("tls:large")
        payloads = [bytes([number]) * 3_000_000 for number in range(4)]
        for payload in payloads:
            assert await broker.publish([(b"tls:large", payload)]) == [1]
        await until(lambda: pubsub._connection is not None and pubsub._connection._wire._paused)
        assert len(pubsub._inbox) < 3
        for payload in payloads:
            message = await pubsub.get_message(timeout=60)
            assert message is not None and message["data"] == payload
        await pubsub.aclose()
        await broker.close()


@pytest.mark.nightly
async def test_a_tls_connection_that_is_cut_is_made_again_and_told_as_a_gap(
    redis: RedisServer, authority: trustme.CA, ca: Path
) -> None:
    hook = Listed()
    async with behind_tls(redis, served_by(authority)) as proxy, Messager(through(proxy, ca), "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["tls:cut"])
        proxy.cut_answer_to = b"lost"
        with pytest.raises(PublishError) as caught:
            await messager.send_message("tls:cut", "lost")
        assert caught.value.outcome == "unknown"
        await until(lambda: "gap" in hook.kinds())
        await messager.send_message("tls:cut", "after")
        await until(lambda: hook.kinds()[-1] == "received" or "received" in hook.kinds())
        await until(lambda: b'"after"' in [record.payload for record in hook.records if record.kind == "received"])
        await messager.broker.close()
    assert hook.kinds().count("failed") == 1


@pytest.mark.parametrize("silent", [True, pytest.param(False, marks=pytest.mark.nightly)])
async def test_a_tls_connection_is_over_when_it_was_closed(
    redis: RedisServer, authority: trustme.CA, ca: Path, silent: bool
) -> None:
    """With asyncio alone, a connection with a dead peer stays open for half a minute."""
    async with behind_tls(redis, served_by(authority)) as proxy, Proxy(proxy.port).running() as line:
        broker = through(line, ca)
        pubsub = broker.pubsub()
        await pubsub.psubscribe("tls:closed")
        assert await broker.publish([(b"tls:closed", b"x" * 3_000_000)] * 3) == [1] * 3
        assert pubsub._connection is not None
        wires = [broker._wire, pubsub._connection._wire]
        await until(lambda: wires[1] is not None and wires[1]._paused)
        line.silent = silent  # not even the end of TLS comes through
        await pubsub.aclose()
        await broker.close()
        for wire in wires:
            assert wire is not None
            await until(wire._over.is_set)


async def test_sentinels_are_spoken_to_through_tls_too(redis: RedisServer, authority: trustme.CA, ca: Path) -> None:
    async with behind_tls(redis, served_by(authority)) as proxy:
        fields = ["name", "here", "ip", "127.0.0.1", "port", str(proxy.port), "flags", "master", "config-epoch", "0"]
        named = f"*1\r\n*{len(fields)}\r\n" + "".join(f"${len(field)}\r\n{field}\r\n" for field in fields)

        async def sentinel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(4096):
                writer.write(b"+OK\r\n" * data.count(b"SETINFO") + named.encode() * data.count(b"MASTERS"))
                writer.write(b"*-1\r\n" * data.count(b"GET-MASTER-ADDR") + b"*0\r\n" * data.count(b"SENTINELS"))
            writer.close()

        server = await asyncio.start_server(sentinel, "127.0.0.1", 0, ssl=served_by(authority))
        port = server.sockets[0].getsockname()[1]
        broker = RedisBroker.from_url(f"rediss+sentinel://127.0.0.1:{port}/here?ssl_ca_certs={ca}")
        assert await broker.publish([(b"tls:s", b"")]) == [0]
        await broker.close()
        text = await refused(RedisBroker.from_url(f"rediss+sentinel://127.0.0.1:{port}/here"))
        assert f"the sentinel at 127.0.0.1:{port}" in text and "?ssl_ca_certs=FILE" in text
        server.close()
        await server.wait_closed()


async def refused(broker: RedisBroker) -> str:
    with pytest.raises(BrokerUnavailable) as caught:
        await broker.connect()
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


async def test_a_certificate_of_an_unknown_authority_is_told_with_the_option_that_names_it(
    redis: RedisServer, authority: trustme.CA
) -> None:
    async with behind_tls(redis, served_by(authority)) as proxy:
        text = await refused(RedisBroker.from_url(f"rediss://:hunter2@127.0.0.1:{proxy.port}"))
        assert "certificate is not accepted" in text and "?ssl_ca_certs=FILE" in text and "hunter2" not in text
        broker = RedisBroker.from_url(f"rediss://127.0.0.1:{proxy.port}?ssl_cert_reqs=none")
        await broker.connect()
        await broker.close()


async def test_a_reason_is_not_that_of_the_error_before(redis: RedisServer, authority: trustme.CA) -> None:
    async with behind_tls(redis, served_by(authority)) as proxy:
        try:
            await RedisBroker.from_url(f"rediss://127.0.0.1:{proxy.port}").connect()
        except BrokerUnavailable:
            text = await refused(RedisBroker.from_url(f"redis://127.0.0.1:{free_port()}"))  # another one, meanwhile
            assert "certificate" not in text


async def test_a_certificate_for_another_host_is_told_with_the_option_that_takes_it(
    redis: RedisServer, authority: trustme.CA, ca: Path
) -> None:
    """redis-py below 6 does not check the host by default."""
    async with behind_tls(redis, served_by(authority, "redis.example")) as proxy:
        text = await refused(through(proxy, ca))
        assert "127.0.0.1" in text and "?ssl_check_hostname=no" in text
        broker = through(proxy, ca, "&ssl_check_hostname=no")
        await broker.connect()
        await broker.close()


async def test_a_certificate_that_has_expired_is_told(redis: RedisServer, authority: trustme.CA, ca: Path) -> None:
    from datetime import UTC, datetime

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)).configure_cert(context)
    async with behind_tls(redis, context) as proxy:
        assert "expired" in await refused(through(proxy, ca))


def serve_once(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Server that sends the reason for the end of a handshake, which that of asyncio does not."""
    taken, _ = listener.accept()
    with contextlib.suppress(OSError), context.wrap_socket(taken, server_side=True) as connection:
        connection.recv(100)


@pytest.mark.parametrize("version", nightly_after(1, [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2]))
async def test_a_server_that_asks_for_a_certificate_gets_ours_or_says_so(
    redis: RedisServer, authority: trustme.CA, ca: Path, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    context = served_by(authority)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = version
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(asyncio.to_thread(serve_once, listener, context))
        url = f"rediss://127.0.0.1:{listener.getsockname()[1]}?ssl_ca_certs={ca}"
        assert "?ssl_certfile=FILE&ssl_keyfile=FILE" in await refused(RedisBroker.from_url(url))
        await serving
    own = authority.issue_cert("somebody@messager.example")
    own.private_key_pem.write_to_path(str(tmp_path / "own.key"))
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "own.pem"))
    async with behind_tls(redis, context) as proxy:
        broker = through(proxy, ca, f"&ssl_certfile={tmp_path / 'own.pem'}&ssl_keyfile={tmp_path / 'own.key'}")
        await broker.connect()
        await broker.close()


async def test_a_server_without_tls_is_told_with_the_scheme_to_write(redis: RedisServer, ca: Path) -> None:
    """Redis waits for the end of the supposed command; other servers answer at once in plain text."""
    broker = RedisBroker.from_url(f"rediss://127.0.0.1:{redis.port}?ssl_ca_certs={ca}", timeout=0.5)
    assert "write redis where the URL says rediss" in await refused(broker)

    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-ERR what is this?\r\n")
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}?ssl_ca_certs={ca}"
    assert "does not speak TLS there; write redis where" in await refused(RedisBroker.from_url(url))
    await ended.wait()
    server.close()
    await server.wait_closed()


def test_a_file_that_holds_no_certificate_is_told_before_anything_connects(tmp_path: Path, ca: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a Redis URL \(ssl_ca_certs=.*ca.pen: No such file"):
        RedisBroker.from_url(f"rediss://h?ssl_ca_certs={tmp_path / 'ca.pen'}")
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(ValueError, match=r"ssl_ca_certs=.*empty.pem: no certificate"):
        RedisBroker.from_url(f"rediss://h?ssl_ca_certs={tmp_path / 'empty.pem'}")
    with pytest.raises(ValueError, match="ssl_cert_reqs is none, optional or required"):
        RedisBroker.from_url("rediss://h?ssl_cert_reqs=sometimes")


@contextlib.contextmanager
def in_a_thread(redis: RedisServer, context: ssl.SSLContext) -> Iterator[tuple[Proxy, asyncio.AbstractEventLoop]]:
    """Run a proxy in an event loop of its own: it goes on while that of the test is blocked."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        running = Proxy(redis.port, tls=context).running()
        proxy = asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result(10)
        try:
            yield proxy, loop
        finally:
            asyncio.run_coroutine_threadsafe(running.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize(
    "how", nightly_after(1, ["the server ends TLS", "the connection is cut", "the connection is reset"])
)
async def test_a_connection_closed_while_the_event_loop_was_blocked_is_made_anew(
    redis: RedisServer, authority: trustme.CA, ca: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("messager.brokers.redis.broker.STALE_AFTER", 0.0)

    async def ended() -> None:
        sockets = [writer.get_extra_info("socket") for writer in proxy._writers]
        if how == "the server ends TLS":
            for writer in proxy._writers:
                writer.close()
            return
        if how == "the connection is reset":
            for each in sockets:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        proxy.cut()
        await until(lambda: all(each.fileno() < 0 for each in sockets))

    with in_a_thread(redis, served_by(authority)) as (proxy, loop):
        broker = through(proxy, ca)
        assert await broker.publish([(b"i", b"1")]) == [0]
        asyncio.run_coroutine_threadsafe(ended(), loop).result(10)  # the event loop of the broker does not run
        assert await broker.publish([(b"i", b"2")]) == [0]
        await broker.close()
