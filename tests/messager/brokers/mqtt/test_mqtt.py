"""MQTT: its special features, and messages during the loss of a connection or a broker."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import trustme
from paho.mqtt.client import Client, DisconnectFlags
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from messager import Messager, PublishError
from messager.brokers import MqttBroker, open_broker
from messager.brokers.mqtt import session
from messager.brokers.mqtt.session import CONNECT_TIMEOUT
from messager.errors import BrokerUnavailable
from messager.testing import MqttServer, free_port, mqtt_server
from messager_store.experiments.provenance import command_line
from tests.support import Listed, Proxy, until
from tests.support.mqtt import heard, through


async def test_a_topic_that_cannot_be_published_on_is_refused_before_it_is_sent_and_the_others_go_out(
    mqtt: MqttServer, mqtt_broker: MqttBroker
) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        broker, pubsub = through(proxy), mqtt_broker.pubsub()
        await pubsub.psubscribe("w/#")
        long = b"w/" + b"x" * 65_534
        bad = [b"w/+", b"w/#", b"w/nul\x00", long, b"", b"w/\xff"]
        results = await broker.publish([(b"w/1", b"first"), *((topic, b"never") for topic in bad), (b"w/2", b"last")])
        assert results[0] is None and results[-1] is None
        for error in results[1:-1]:
            assert isinstance(error, PublishError) and (error.outcome, error.refused) == ("not_sent", True)
            assert "\n" not in str(error) and len(str(error)) < 300 and "cannot publish on the topic" in str(error)
        assert [(await heard(pubsub))["data"] for _ in range(2)] == [b"first", b"last"]
        assert b"never" not in proxy.requests
        await pubsub.aclose()
        await broker.close()


async def test_a_lost_acknowledgement_is_unknown_and_nothing_is_repeated(
    mqtt: MqttServer, mqtt_broker: MqttBroker
) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        broker, pubsub = through(proxy), mqtt_broker.pubsub()
        await pubsub.psubscribe("u/#")
        assert await broker.publish([(b"u/1", b"one")]) == [None]
        proxy.cut_answer_to = b"third"
        results = await broker.publish([(b"u/1", b"second"), (b"u/1", b"third")])
        for error in results:
            assert isinstance(error, PublishError) and error.outcome == "unknown" and "lost" in str(error)
        assert await broker.publish([(b"u/1", b"four")]) == [None]
        assert [(await heard(pubsub))["data"] for _ in range(4)] == [b"one", b"second", b"third", b"four"]
        assert proxy.requests.count(b"second") == proxy.requests.count(b"third") == 1
        await pubsub.aclose()
        await broker.close()


async def test_a_broker_that_does_not_acknowledge_in_time_is_given_up(mqtt: MqttServer) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        broker = through(proxy, timeout=1.5)
        assert await broker.publish([(b"t", b"1")]) == [None]
        proxy.silent = True
        [lost] = await broker.publish([(b"t", b"2")])
        assert isinstance(lost, PublishError) and lost.outcome == "unknown" and "no answer in time" in str(lost)
        proxy.cut()
        proxy.silent = False
        assert await broker.publish([(b"t", b"3")]) == [None]
        await broker.close()


async def test_a_connection_closed_while_the_event_loop_was_blocked_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("messager.brokers.mqtt.broker.STALE_AFTER", 0.0)
    with mqtt_server() as server:
        broker = MqttBroker.from_url(server.url)
        assert await broker.publish([(b"i", b"1")]) == [None]
        server.stop()  # neither lets the event loop run, as an agent's own work does not
        server.start()
        assert await broker.publish([(b"i", b"2")]) == [None]
        await broker.close()


async def test_a_connection_lost_in_the_thread_that_makes_it_is_reported_in_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(client: Client, *address: object) -> None:
        assert client.on_disconnect is not None
        reason = ReasonCode(PacketTypes.DISCONNECT, "Normal disconnection")
        client.on_disconnect(client, None, DisconnectFlags(False), reason, None)
        raise ConnectionResetError("reset while CONNECT was written")

    loop = asyncio.get_running_loop()
    loop.set_debug(True)  # an event loop that is entered from another thread raises then
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda loop, context: reported.append(context))
    monkeypatch.setattr(Client, "connect", connect)
    with pytest.raises(BrokerUnavailable, match="reset while CONNECT was written"):
        await MqttBroker("127.0.0.1", 1).connect()
    gc.collect()
    assert reported == []


async def test_a_closed_broker_leaves_nobody_waiting(mqtt: MqttServer) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        broker = through(proxy)
        await broker.connect()
        proxy.silent = True
        sending = asyncio.ensure_future(broker.publish([(b"c", b"1")]))
        await asyncio.sleep(0)
        await broker.close()
        [lost] = await sending
        assert isinstance(lost, PublishError) and lost.outcome == "unknown"


async def test_more_messages_than_the_protocol_can_number_go_out(mqtt_broker: MqttBroker, monkeypatch: Any) -> None:
    monkeypatch.setattr("messager.brokers.mqtt.broker.MAX_UNACKNOWLEDGED", 50)
    results = await asyncio.gather(*(mqtt_broker.publish([(b"many", b"%d" % n)] * 100) for n in range(10)))
    assert results == [[None] * 100] * 10


async def test_many_messages_of_quality_2_at_a_time_all_arrive(mqtt_broker: MqttBroker) -> None:
    pubsub = mqtt_broker.pubsub()
    await pubsub.psubscribe("two")
    payloads = [b"%d" % at for at in range(100)]
    results = await mqtt_broker.publish_as([(b"two", payload) for payload in payloads], [{"qos": 2}] * 100)
    assert results == [None] * 100
    assert [(await heard(pubsub))["data"] for _ in payloads] == payloads
    await pubsub.aclose()


async def test_many_sends_at_a_time_are_neither_throttled_nor_warned_about(
    mqtt: MqttServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Proxy(mqtt.port).running() as proxy:
        broker = through(proxy)
        await broker.connect()
        proxy.answer_delay = 60.0
        sending = asyncio.gather(*(broker.publish([(b"many", b"one")]) for _ in range(500)))
        wave = asyncio.ensure_future(broker.publish([(b"many", b"wave")] * 500))
        await until(lambda: proxy.requests.count(b"one") == proxy.requests.count(b"wave") == 500)
        proxy.cut()
        outcomes = [*await wave, *(result for [result] in await sending)]
        assert {error.outcome for error in outcomes if isinstance(error, PublishError)} == {"unknown"}
        await broker.close()
    assert not [record for record in caplog.records if record.name == "mqtt"]


async def test_a_broker_that_is_killed_and_started_again_costs_no_message_that_is_sent_after_it() -> None:
    with mqtt_server() as server:
        hook, broker = Listed(), MqttBroker("127.0.0.1", server.port, timeout=30.0)
        async with Messager(broker, "e1") as messager:
            messager.add_log_hook(hook)
            await messager.subscribe_and_start_listening(["r/#"])
            await messager.send_message("r/1", {"n": 1})
            await until(lambda: "received" in hook.kinds())
            server.stop(kill=True)
            with pytest.raises(PublishError):
                await messager.send_message("r/1", {"n": 2})
            server.start()
            await until(lambda: "gap" in hook.kinds())
            await messager.send_message("r/1", {"n": 3})
            await until(lambda: hook.kinds().count("received") == 2)
            await broker.close()
        assert [record.payload for record in hook.records if record.kind == "received"] == [b'{"n": 1}', b'{"n": 3}']


@pytest.mark.parametrize("scheme", ["redis", "mqtt"])
async def test_a_port_where_nobody_listens_is_told_as_that(scheme: str) -> None:
    broker = open_broker(f"{scheme}://127.0.0.1:{free_port()}")
    with pytest.raises(BrokerUnavailable, match="nobody listens there"):
        await broker.connect()
    await broker.close()


async def test_a_broker_that_refuses_the_version_of_the_protocol_is_told_as_that() -> None:
    connections = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(1000)
        writer.write(b"\x20\x02\x00\x01")
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        broker = MqttBroker("127.0.0.1", server.sockets[0].getsockname()[1])
        with pytest.raises(BrokerUnavailable, match="protocol error"):
            await broker.connect()
    assert connections == 1


async def test_users_are_let_in_with_their_password_which_is_shown_nowhere() -> None:
    with mqtt_server(users={"bob": "hun@ter2"}) as server:
        right = open_broker(f"mqtt://bob:hun%40ter2@127.0.0.1:{server.port}")
        await right.connect()
        assert right.url == f"mqtt://127.0.0.1:{server.port}"
        await right.close()
        for url in (f"mqtt://bob:letmein@127.0.0.1:{server.port}", server.url):
            wrong = open_broker(url)
            with pytest.raises(BrokerUnavailable, match="not authori") as caught:
                await wrong.connect()
            [refused] = await wrong.publish([(b"c", b"p")])
            assert isinstance(refused, PublishError) and refused.outcome == "not_sent"
            assert "letmein" not in f"{caught.value} {caught.value!r} {refused} {wrong._access!r}"  # type: ignore[attr-defined]
            await wrong.close()


async def test_a_broker_out_of_reach_is_told_within_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CONNECT_TIMEOUT < 5
    monkeypatch.setattr(session, "CONNECT_TIMEOUT", 0.2)
    broker = MqttBroker("127.0.0.1", free_port())
    with pytest.raises(BrokerUnavailable, match="cannot reach the broker at mqtt://127"):
        await broker.connect()
    ended = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended += 1

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    silent = MqttBroker("127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(BrokerUnavailable, match="no answer in time"):
        await silent.connect()
    cancelled = asyncio.create_task(silent.connect())
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await until(lambda: ended == 2)
    server.close()


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Files of an authority, a certificate for this machine, and its key."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    paths = (tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")
    authority.cert_pem.write_to_path(str(paths[0]))
    issued.cert_chain_pems[0].write_to_path(str(paths[1]))
    issued.private_key_pem.write_to_path(str(paths[2]))
    return paths


async def test_mqtts_is_encrypted_and_looks_at_the_certificate(certificates: tuple[Path, Path, Path]) -> None:
    authority, certificate, key = certificates
    with mqtt_server(certificate=(str(certificate), str(key))) as server:
        broker = open_broker(f"{server.url}?ca_certs={authority}")
        pubsub = broker.pubsub()
        await pubsub.psubscribe("t/*")
        payload = bytes(range(256)) * 4000
        assert await broker.publish([(b"t/1", payload), (b"t/2", b"x")]) == [None, None]
        assert [(await heard(pubsub))["data"] for _ in range(2)] == [payload, b"x"]
        await pubsub.aclose()
        await broker.close()
        stranger = open_broker(server.url)
        plain = open_broker(f"mqtt://127.0.0.1:{server.port}")
        with pytest.raises(BrokerUnavailable, match="If it speaks TLS there, write mqtts"):
            await plain.connect()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # paho forgets the socket of a handshake that failed
            with pytest.raises(BrokerUnavailable, match=r"not accepted: .* with \?ca_certs=FILE$"):
                await stranger.connect()


def test_an_url_that_is_not_mqtts_is_refused_in_one_line() -> None:
    for url, why in [
        ("mqtt://", "names no host"),
        ("mqtt://h:port", "a port is a number"),
        ("mqtt://h:99999", "a port is a number"),
        ("mqtt://h/path", "in a password are written as"),
        ("mqtt://user:hun/ter2@h", "in a password are written as"),
        ("mqtt://user:hun#ter2@h", "in a password are written as"),
        ("mqtt://h?hunter2=1", "its options are client_id, qos"),
        ("mqtt://h?qos=3", "qos is 0, 1 or 2"),
        ("mqtt://h?ca_certs=x", "are for mqtts://"),
        ("mqtts://h?ca_certs=no/hunter2.pem", "ca_certs names no file"),
    ]:
        with pytest.raises(ValueError, match="is not an MQTT URL") as caught:
            open_broker(url)
        assert why in str(caught.value) and "\n" not in str(caught.value)
        assert "hun" not in str(caught.value).replace("%2F", "")


def test_a_scheme_that_nobody_knows_lists_those_there_are() -> None:
    for url in ("kafka://h", "redis", "", "://", "hun ter2://h"):
        with pytest.raises(ValueError, match=r"redis://, rediss://, unix://, .*mqtt:// or mqtts://") as caught:
            open_broker(url)
        assert "hun" not in str(caught.value)
    assert "hunter2" not in " ".join(command_line(["messager", "--broker", "mqtt://bob:hunter2@h"]))
