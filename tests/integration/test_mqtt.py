"""MQTT: what only it has, and what becomes of messages when the connection, or the broker, goes away."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
import trustme

from messager import Messager, PublishError
from messager.brokers import MqttBroker, PubSub, open_broker
from messager.errors import BrokerUnavailable
from messager.testing import MqttServer, free_port, mqtt_server
from messager_store.host import command_line
from tests.support import Listed, Proxy, until


@pytest.fixture
async def direct(mqtt: MqttServer) -> AsyncIterator[MqttBroker]:
    made = MqttBroker.from_url(mqtt.url)
    yield made
    await made.close()


def through(proxy: Proxy, **options: Any) -> MqttBroker:
    return MqttBroker("127.0.0.1", proxy.port, **{"timeout": 2.0, "ping_interval": 0.1, "ping_timeout": 0.4, **options})


async def heard(pubsub: PubSub) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (message := await pubsub.get_message(timeout=0.2)) is None:
            pass
    return message


async def test_a_topic_that_cannot_be_published_on_is_refused_before_it_is_sent_and_the_others_go_out(
    mqtt: MqttServer, direct: MqttBroker
) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        broker, pubsub = through(proxy), direct.pubsub()
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


async def test_a_lost_acknowledgement_is_unknown_and_nothing_is_repeated(mqtt: MqttServer, direct: MqttBroker) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        broker, pubsub = through(proxy), direct.pubsub()
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
        broker = through(proxy, timeout=0.3)
        assert await broker.publish([(b"t", b"1")]) == [None]
        proxy.silent = True
        [lost] = await broker.publish([(b"t", b"2")])
        assert isinstance(lost, PublishError) and lost.outcome == "unknown" and "no answer in time" in str(lost)
        proxy.cut()
        proxy.silent = False
        assert await broker.publish([(b"t", b"3")]) == [None]
        await broker.close()


async def test_a_connection_that_was_closed_while_idle_is_made_anew(mqtt: MqttServer) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        broker = through(proxy)
        assert await broker.publish([(b"i", b"1")]) == [None]
        session = broker._session
        assert session is not None
        proxy.cut()
        await until(lambda: session.closed)
        assert await broker.publish([(b"i", b"2")]) == [None]
        await broker.close()


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


async def test_looking_for_an_answer_that_does_not_come_at_once_stops_for_a_while(
    mqtt: MqttServer, direct: MqttBroker
) -> None:
    async with Proxy(mqtt.port).running() as proxy:  # in this event loop, which stands still while somebody looks
        broker = through(proxy)
        for _ in range(40):
            assert await broker.publish([(b"far", b"x")]) == [None]
        assert broker._glance.in_vain >= 4 and broker._glance.skipping > 0
        await broker.close()
    for _ in range(200):
        assert await direct.publish([(b"near", b"x")]) == [None]


async def test_more_messages_than_the_protocol_can_number_go_out(direct: MqttBroker, monkeypatch: Any) -> None:
    monkeypatch.setattr("messager.brokers.mqtt.MOST_UNACKNOWLEDGED", 50)
    results = await asyncio.gather(*(direct.publish([(b"many", b"%d" % n)] * 100) for n in range(10)))
    assert results == [[None] * 100] * 10


async def test_many_messages_of_quality_2_at_a_time_all_arrive(direct: MqttBroker) -> None:
    pubsub = direct.pubsub()
    await pubsub.psubscribe("two")
    payloads = [b"%d" % at for at in range(100)]
    results = await direct.publish_as([(b"two", payload) for payload in payloads], [{"qos": 2}] * 100)
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


async def test_a_lost_subscriber_comes_back_with_its_subscriptions_and_tells_a_gap(
    mqtt: MqttServer, direct: MqttBroker
) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        pubsub = through(proxy).pubsub()
        await pubsub.psubscribe("g/*", "exps/+/x")
        before = time.monotonic_ns()
        proxy.cut()
        await until(lambda: pubsub.lost_since() is not None)
        with pytest.raises(BrokerUnavailable):
            await pubsub.psubscribe("more")
        gap = await heard(pubsub)
        assert gap["type"] == "gap" and gap["reason"]
        assert gap["since"] <= before <= gap["until"] <= time.monotonic_ns()
        assert pubsub.lost_since() is None
        await direct.publish([(b"g/1", b"a"), (b"exps/1/x", b"b"), (b"more", b"c")])
        assert [(await heard(pubsub))["data"] for _ in range(2)] == [b"a", b"b"]
        await pubsub.aclose()


async def test_a_network_that_fell_silent_is_noticed_by_pings(mqtt: MqttServer, direct: MqttBroker) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        pubsub = through(proxy).pubsub()
        await pubsub.psubscribe("s")
        proven = pubsub._proven
        while pubsub._proven == proven:  # pings that are answered prove that nothing is missing
            assert await pubsub.get_message(timeout=0.05) is None
        assert pubsub.lost_since() is None
        fell = time.monotonic_ns()
        proxy.silent = True
        await direct.publish([(b"s", b"lost")])
        async with asyncio.timeout(10):
            while pubsub.lost_since() is None:
                assert await pubsub.get_message(timeout=0.05) is None
        proxy.cut()
        proxy.silent = False
        gap = await heard(pubsub)
        assert gap["type"] == "gap" and "no answer to a ping" in gap["reason"]
        assert proven < gap["since"] <= fell
        await direct.publish([(b"s", b"back")])
        assert (await heard(pubsub))["data"] == b"back"
        await pubsub.aclose()


async def test_a_large_message_on_a_slow_link_is_no_silence(mqtt: MqttServer, direct: MqttBroker) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        pubsub = through(proxy).pubsub()
        await pubsub.psubscribe("slow")
        proxy.answer_delay = 0.02  # 64 kB every 20 ms: 2 s for what follows, five times the patience
        payload = b"x" * (6 * 1024 * 1024)
        assert await direct.publish([(b"slow", payload)]) == [None]
        async with asyncio.timeout(30):
            while (message := await pubsub.get_message(timeout=0.1)) is None:
                assert pubsub.lost_since() is None
        assert message["data"] == payload
        await pubsub.aclose()


async def test_a_gap_begins_before_the_messages_that_were_still_on_their_way(
    mqtt: MqttServer, direct: MqttBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the last one that was read. That no ping is answered meanwhile is for amqtt, which answers
    before it has handed out what it took."""
    monkeypatch.setattr("messager.brokers.mqtt_pubsub.PROVE_NS", 60_000_000_000)
    async with Proxy(mqtt.port).running() as proxy:
        pubsub = through(proxy, ping_interval=30.0).pubsub()
        await pubsub.psubscribe("held")
        proxy.answer_delay = 0.02
        sent_at = time.monotonic_ns()
        assert await direct.publish([(b"held", bytes(6000))] * 200) == [None] * 200
        received = 0
        while received < 40:
            received += await pubsub.get_message(timeout=0.1) is not None
        proxy.cut()
        proxy.answer_delay = 0.0
        while (message := await heard(pubsub))["type"] != "gap":
            received += 1
        assert received < 200
        assert message["since"] <= sent_at
        await pubsub.aclose()


PUBLISH = b"\x05\x00\x01w\x00\x01"
"""On w, number 1, empty; before it comes its quality of service."""


@pytest.mark.parametrize(
    ("first", "before_the_answer", "count"),
    [
        # A broker sends some ahead of their acknowledgements, and answers at once: the others come behind it.
        (b"\x32" + PUBLISH, (b"\x32" + PUBLISH) * 15, 17),
        (b"\x34" + PUBLISH, b"", 1),  # of quality 2, and not released
    ],
)
async def test_an_answer_to_a_ping_that_overtook_messages_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, first: bytes, before_the_answer: bytes, count: int
) -> None:
    monkeypatch.setattr("messager.brokers.mqtt_pubsub.PROVE_NS", 1)
    answers = {1: b"\x20\x02\x00\x00", 8: b"\x90\x03%b\x01" + first, 10: before_the_answer + b"\xb0\x02%b"}
    ended: list[bool] = []
    published: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pings = 0
        while pings < 2 and (head := await reader.read(2)):  # the second is not answered
            packet = await reader.readexactly(head[1])
            pings += head[0] >> 4 == 10 and not ended
            if head[0] >> 4 == 8:
                published.append(time.monotonic_ns())
            if pings < 2:
                writer.write(answers.get(head[0] >> 4, b"").replace(b"%b", packet[:2]))
        writer.close()
        await writer.wait_closed()
        ended.append(True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    pubsub = MqttBroker("127.0.0.1", server.sockets[0].getsockname()[1], ping_interval=0.05).pubsub()
    await pubsub.psubscribe("w")
    kinds = [message := await heard(pubsub)]
    while message["type"] != "gap":
        kinds.append(message := await heard(pubsub))
    assert len(kinds) == count
    assert message["since"] <= published[0]
    await pubsub.aclose()
    await until(lambda: len(ended) == 2)
    server.close()


async def test_a_broker_that_is_killed_and_started_again_costs_no_message_that_is_sent_after_it() -> None:
    with mqtt_server() as server:
        hook, broker = Listed(), MqttBroker("127.0.0.1", server.port, timeout=2.0)
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


async def test_who_leaves_too_much_unfetched_is_told_a_gap(direct: MqttBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("messager.brokers.mqtt_pubsub.INBOX_BYTES", 5000)
    pubsub = direct.pubsub()
    await pubsub.psubscribe("full")
    await direct.publish([(b"full", bytes(1000))] * 10)
    await until(lambda: pubsub.lost_since() is not None)
    kinds = [(await heard(pubsub))["type"]]
    while kinds[-1] != "gap":
        kinds.append((await heard(pubsub))["type"])
    assert 5 <= len(kinds) <= 11
    await pubsub.aclose()


async def test_a_message_comes_once_for_each_pattern_whatever_the_broker_makes_of_overlapping_subscriptions(
    direct: MqttBroker,
) -> None:
    pubsub = direct.pubsub()
    await pubsub.psubscribe("a/+", "+/b", "a/b")
    await direct.publish([(b"a/b", b"1"), (b"a/c", b"2"), (b"x/b", b"3"), (b"x/y", b"no"), (b"a/c", b"end")])
    found = []
    while not found or found[-1][1] != b"end":
        message = await heard(pubsub)
        found.append((message["pattern"], message["data"]))
    assert found == [
        *((pattern, b"1") for pattern in (b"a/+", b"+/b", b"a/b")),
        (b"a/+", b"2"),
        (b"+/b", b"3"),
        (b"a/+", b"end"),
    ]
    await pubsub.psubscribe("a/#")  # covers what is there
    await direct.publish([(b"a/c", b"4"), (b"a/c/d", b"5")])
    assert [(await heard(pubsub))["data"] for _ in range(3)] == [b"4", b"4", b"5"]
    await pubsub.aclose()


async def test_a_pattern_that_no_topic_fits_is_refused_before_anything_is_sent(mqtt: MqttServer) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        broker = through(proxy)
        pubsub = broker.pubsub()
        for pattern in ("a/#/b", "a+/b", "", "irc:#rust"):
            with pytest.raises(ValueError, match="cannot subscribe to"):
                await pubsub.psubscribe("first/#", pattern)
        assert proxy.requests == b""
        async with Messager(broker, "e1") as messager:
            with pytest.raises(ValueError, match=r"cannot subscribe to .*4\.7"):
                await messager.subscribe_and_start_listening(["first/#", "a/#/b"])
            assert b"first" not in proxy.requests
            await messager.subscribe_and_start_listening(["first/#"])
            with pytest.raises(ValueError, match=r"cannot subscribe to .*4\.7"):
                await messager.subscribe_and_start_listening(["a+/b"])
        await pubsub.aclose()
        await broker.close()


@pytest.mark.parametrize("scheme", ["redis", "mqtt"])
async def test_a_port_where_nobody_listens_is_told_as_that(scheme: str) -> None:
    broker = open_broker(f"{scheme}://127.0.0.1:{free_port()}")
    with pytest.raises(BrokerUnavailable, match="nobody listens there"):
        await broker.connect()
    await broker.close()


async def test_a_subscription_that_is_shared_is_refused(direct: MqttBroker) -> None:
    pubsub = direct.pubsub()
    with pytest.raises(ValueError, match="leave out"):
        await pubsub.psubscribe("$share/group/t/#")
    await pubsub.aclose()


async def test_retained_messages_and_qualities_of_service_are_told(mqtt: MqttServer, direct: MqttBroker) -> None:
    how: list[dict[str, Any] | None] = [{"retained": True}, {"qos": 0}, None, {"qos": 2, "retained": False}]
    listening = MqttBroker.from_url(direct.url + "?qos=2").pubsub()
    await listening.psubscribe("q/*")
    async with aiomqtt.Client("127.0.0.1", mqtt.port) as witness:  # brokers differ in what they make of a quality
        await witness.subscribe("q/#", 2)
        assert await direct.publish_as([(b"q/%d" % n, b"x") for n in range(4)], how) == [None] * 4
        seen = [await anext(aiter(witness.messages)) for _ in range(4)]
    live = {message["channel"]: message.get("meta") for message in [await heard(listening) for _ in range(4)]}
    assert not any(message.retain for message in seen)
    assert live == {m.topic.value.encode(): None if m.qos == 1 else {"qos": m.qos} for m in seen}
    assert live[b"q/3"] == {"qos": 2}
    late = direct.pubsub()
    await late.psubscribe("q/*")
    message = await heard(late)
    assert (message["channel"], message["data"], message["meta"]["retained"]) == (b"q/0", b"x", True)
    await direct.publish([(b"q/0", b"y")])
    while (message := await heard(late))["data"] != b"y":  # amqtt sends what it retained twice
        assert message["meta"]["retained"]
    assert "meta" not in message
    await direct.publish_as([(b"q/0", b"")], [{"retained": True}])  # forget it again
    for pubsub in (listening, late):
        await pubsub.aclose()


async def test_a_subscription_may_ask_for_another_quality_of_service(direct: MqttBroker) -> None:
    pubsub = direct.pubsub()
    await pubsub.psubscribe("z/1", qos=0)
    await pubsub.psubscribe("z/2")
    await direct.publish([(b"z/1", b"x"), (b"z/2", b"x")])
    assert [(await heard(pubsub)).get("meta") for _ in range(2)] == [{"qos": 0}, None]
    await pubsub.aclose()


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


async def test_a_broker_out_of_reach_is_told_within_five_seconds() -> None:
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
        async with asyncio.timeout(5):
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
    """The files of an authority, and of a certificate of its for this machine and its key."""
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


@pytest.mark.parametrize(
    ("url", "why"),
    [
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
    ],
)
def test_an_url_that_is_not_mqtts_is_refused_in_one_line(url: str, why: str) -> None:
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


def test_a_missing_driver_is_told_with_the_extra_to_install(tmp_path: Path) -> None:
    without = "import sys; sys.modules['aiomqtt'] = None; from messager_store.cli import main; main()"
    words = ["record", "--exp", "x", "--broker", "mqtt://127.0.0.1"]
    done = subprocess.run([sys.executable, "-c", without, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "messager: aiomqtt is not installed: `pip install 'messager[mqtt]'`\n"
