"""`messager.mqtt.Messager` keeps the contract of AgentSociety 1.0.0, and logs as the other Messager does."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest

from messager import MemoryBroker, NotConnected, PublishError
from messager.brokers import MqttBroker
from messager.mqtt import Messager
from messager.testing import MqttServer, free_port, mqtt_server
from messager_store import EventLog, Recorder
from tests.support import Listed, Proxy, until


@pytest.fixture
async def messager(mqtt: MqttServer) -> AsyncIterator[Messager]:
    made = Messager("127.0.0.1", mqtt.port)
    await made.connect()
    yield made
    await made.stop()


async def fetched(messager: Messager, count: int) -> list[Any]:
    messages: list[Any] = []
    async with asyncio.timeout(60):
        while len(messages) < count:
            messages += await messager.fetch_messages()
            await asyncio.sleep(0.005)
    return messages


async def test_it_is_made_and_connected_as_agentsocietys(mqtt: MqttServer) -> None:
    messager = Messager("127.0.0.1", mqtt.port, None, None, 60, None)
    assert messager.message_interceptor is None and not await messager.is_connected()
    await messager.connect()
    assert await messager.is_connected()
    await messager.disconnect()
    await messager.disconnect()
    assert not await messager.is_connected()


@pytest.mark.parametrize(
    "topics",
    [
        "exps/e1/agents/a/gather",
        ["exps/e1/agents/a/gather", "exps/e1/agents/b/#"],
        [("exps/e1/agents/a/gather", 1), ("exps/e1/agents/b/#", 1)],
        "exps/+/agents/a/#",
    ],
)
async def test_a_topic_or_several_are_subscribed_to_with_or_without_a_quality_of_service(
    messager: Messager, topics: Any
) -> None:
    await messager.subscribe(topics, ["an agent"])
    await messager.start_listening()
    await messager.send_message("exps/e1/agents/other/x", {"n": 0})
    await messager.send_message("exps/e1/agents/a/gather", {"n": 1}, "uuid-1", "uuid-2")
    [message] = await fetched(messager, 1)
    assert (message.topic.value, message.payload, message.qos, message.retain) == (
        "exps/e1/agents/a/gather",
        b'{"n": 1}',
        1,
        False,
    )
    assert message.topic.matches("exps/+/agents/#")
    assert await messager.fetch_messages() == []


async def test_a_subscription_in_quality_0_is_one(messager: Messager) -> None:
    await messager.subscribe([("low", 0)], [])
    await messager.start_listening()
    await messager.send_message("low", {})
    assert (await fetched(messager, 1))[0].qos == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_was_sent_is_logged_with_the_quality_of_service_that_is_logged_where_it_is_received(
    mqtt: MqttServer, qos: int
) -> None:
    broker, hook = MqttBroker.from_url(f"{mqtt.url}?qos={qos}"), Listed()
    await broker.connect()
    async with Messager(broker) as messager:
        messager.add_log_hook(hook)
        await messager.subscribe([("a", qos)])
        await messager.start_listening()
        await messager.send_message("a", {})
        await fetched(messager, 1)
    await broker.close()
    assert sorted(hook.kinds()) == ["received", "sent"]
    assert [record.meta for record in hook.records] == [None if qos == 1 else {"qos": qos}] * 2


async def test_where_one_of_several_topics_is_none_nothing_is_subscribed_to(messager: Messager) -> None:
    with pytest.raises(ValueError, match="one whole level"):
        await messager.subscribe(["good", "a/#/b"])
    await messager.subscribe("other")
    await messager.start_listening()
    await messager.send_message("good", {})
    await messager.send_message("other", {})
    assert [message.topic.value for message in await fetched(messager, 1)] == ["other"]


async def test_what_comes_between_subscribing_and_listening_is_kept_and_more_can_be_subscribed_to(
    messager: Messager,
) -> None:
    await messager.subscribe(["early"], [])
    await messager.send_message("early", {"n": 1})
    await messager.start_listening()
    await messager.start_listening()
    await messager.subscribe("late", [])
    await messager.send_message("late", {"n": 2})
    assert [json.loads(message.payload)["n"] for message in await fetched(messager, 2)] == [1, 2]


async def test_listening_may_begin_before_there_is_a_subscription(messager: Messager) -> None:
    await messager.start_listening()
    await asyncio.sleep(0)
    await messager.subscribe("later", [])
    await messager.send_message("later", {"n": 1})
    assert len(await fetched(messager, 1)) == 1


async def test_a_ping_is_published(messager: Messager) -> None:
    hook = Listed()
    messager.add_log_hook(hook)
    await messager.subscribe("ping", [])
    await messager.start_listening()
    await messager.ping()
    [message] = await fetched(messager, 1)
    assert (message.topic.value, message.payload, message.qos) == ("ping", b"ping", 1)
    assert sorted(hook.kinds()) == ["received", "sent"]


async def test_a_ping_is_in_the_event_log_and_not_in_the_log_list(messager: Messager, log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder:
        messager.add_log_hook(recorder)
        await messager.ping()
        assert messager.get_log_list() == []
        await messager.send_message("ping", "ping")
        assert [(entry["topic"], entry["payload"]) for entry in messager.get_log_list()] == [("ping", "ping")]
        messager.remove_log_hook(recorder)
    assert [event.payload async for event in log.read("e1", kinds=["sent"])] == [b"ping", b'"ping"']


def test_what_agentsociety_awaits_is_a_coroutine_function_as_ray_needs_it() -> None:
    for name in [
        "connect",
        "disconnect",
        "fetch_messages",
        "is_connected",
        "ping",
        "receive_messages",
        "send_message",
        "start_listening",
        "stop",
        "subscribe",
    ]:
        assert inspect.iscoroutinefunction(getattr(Messager, name))


async def test_the_log_list_has_the_names_of_that_version(messager: Messager) -> None:
    await messager.send_message("c", {"a": 1}, "u1", "u2")
    [entry] = messager.get_log_list()
    assert entry.keys() == {"topic", "payload", "from_uuid", "to_uuid", "start_time", "consumption"}
    assert (entry["topic"], entry["payload"], entry["from_uuid"], entry["to_uuid"]) == ("c", {"a": 1}, "u1", "u2")
    messager.clear_log_list()
    assert messager.get_log_list() == []


class Forward:
    """Interceptor that is called like a Ray actor."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any, str]] = []
        self.forward = self

    async def remote(self, from_uuid: Any, to_uuid: Any, message: str) -> bool:
        self.asked.append((from_uuid, to_uuid, message))
        return to_uuid != "nobody"


async def test_the_interceptor_is_asked_where_both_are_known_and_what_it_refuses_is_not_published(
    messager: Messager,
) -> None:
    interceptor, hook = Forward(), Listed()
    messager.set_message_interceptor(interceptor)
    messager.add_log_hook(hook)
    await messager.subscribe("c", [])
    await messager.start_listening()
    await messager.send_message(topic="c", payload={"n": 1}, from_uuid="a", to_uuid="nobody")
    await messager.send_message("c", {"n": 2}, from_uuid="a")
    await messager.send_message("c", {"n": 3}, "a", "b")
    assert [json.loads(message.payload)["n"] for message in await fetched(messager, 2)] == [2, 3]
    assert [to for _, to, _ in interceptor.asked] == ["nobody", "b"]
    assert sorted(hook.kinds()) == ["blocked", "received", "received", "sent", "sent"]


async def test_hooks_marks_and_gaps_are_those_of_the_other_messager(mqtt: MqttServer) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        hook = Listed()
        messager = Messager("127.0.0.1", proxy.port, timeout=30)
        messager.add_log_hook(hook)
        await messager.connect()
        await messager.subscribe("g/#", [])
        await messager.start_listening()
        messager.mark("step", number=1)
        proxy.cut()
        await until(lambda: "gap" in hook.kinds())
        await messager.send_message("g/1", {})
        await until(lambda: "received" in hook.kinds())
        assert hook.kinds()[:2] == ["mark", "gap"]
        url, clock, offset = hook.connections[0]
        assert (url, clock, offset) == (f"mqtt://127.0.0.1:{proxy.port}", messager.clock, None)
        await messager.stop()


async def test_everything_it_says_and_hears_is_recorded(mqtt: MqttServer, log: EventLog) -> None:
    broker = MqttBroker("127.0.0.1", mqtt.port)
    await broker.publish_as([(b"exps/e1/state", b"old")], [{"retained": True}])
    async with Recorder(log, "e1") as recorder:
        async with Messager("127.0.0.1", mqtt.port, exp_id="e1") as messager:
            messager.add_log_hook(recorder)
            await messager.subscribe(["exps/e1/#"], [])
            await messager.start_listening()
            retained = (await fetched(messager, 1))[0]
            assert retained.retain and retained.payload == b"old"
            await messager.send_message(messager.get_subtopic_channel("0f-ab", "gather"), {"n": 1}, "x", "0f-ab")
            await messager.send_message(messager.get_user_payback_channel(), {"count": 1})
            while (await fetched(messager, 1))[-1].topic.value != "exps/e1/user-payback":
                pass
    await broker.publish_as([(b"exps/e1/state", b"")], [{"retained": True}])
    await broker.close()
    events = [(entry.kind, entry.channel, entry.to_id, entry.meta) async for entry in log.read("e1")]
    subscribed = {"name": "messager.subscribed", "fields": {"patterns": ["exps/e1/#"]}}
    assert events[0] == ("mark", None, None, subscribed)
    assert events[1][:2] == ("received", "exps/e1/state") and (events[1][3] or {})["retained"] is True
    assert sorted((event for event in events[1:] if event[1] not in (None, "exps/e1/state")), key=str) == [
        ("received", "exps/e1/agents/0f-ab/gather", "0f-ab", None),
        ("received", "exps/e1/user-payback", None, None),
        ("sent", "exps/e1/agents/0f-ab/gather", "0f-ab", None),
        ("sent", "exps/e1/user-payback", None, None),
    ]


async def test_connecting_is_tried_three_times(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.setattr("messager.mqtt.RETRY_SECONDS", 0.01)
    messager = Messager("127.0.0.1", free_port())
    await messager.connect()
    assert not await messager.is_connected()
    assert [record.getMessage()[:11] for record in caplog.records] == [f"try {number} of 3:" for number in (1, 2, 3)]
    for refused in (
        messager.subscribe("c", []),
        messager.start_listening(),
        messager.ping(),
        messager.send_message("c", {}),
    ):
        with pytest.raises(NotConnected, match=r"connect\(\)"):
            await refused
    with mqtt_server() as server:
        late = Messager("127.0.0.1", server.port)
        server.stop()
        monkeypatch.setattr("messager.mqtt.RETRY_SECONDS", 0.1)
        connecting = asyncio.create_task(late.connect())
        await until(lambda: len(caplog.records) == 4)
        await asyncio.to_thread(server.start)
        await connecting
        assert await late.is_connected() or len(caplog.records) == 6  # where starting took longer than three tries
        await late.stop()


async def test_a_topic_with_wildcards_is_refused_and_logged(messager: Messager) -> None:
    hook = Listed()
    messager.add_log_hook(hook)
    with pytest.raises(PublishError, match="wildcards"):
        await messager.send_message("exps/+/x", {})
    assert hook.kinds() == ["failed"]


async def test_a_broker_may_be_given_and_stays_open() -> None:
    broker = MemoryBroker()
    async with Messager(broker) as messager:
        await messager.subscribe_and_start_listening(["a/*"])
        await messager.send_message("a/b", {})
        assert (await fetched(messager, 1))[0].topic.value == "a/b"


async def test_one_without_an_exp_id_is_recorded_as_the_environment_says(
    mqtt: MqttServer, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_STORE", store)
    monkeypatch.setenv("MESSAGER_EXP", "e7")
    messager = Messager("127.0.0.1", mqtt.port)
    assert messager.get_subtopic_channel("a", "chat") == "exps/e7/agents/a/chat"
    await messager.connect()
    await messager.send_message("exps/e7/agents/a/chat", {"n": 1})
    await messager.disconnect()
    async with EventLog.open(store, create=False) as log:
        assert [event.channel async for event in log.read("e7", kinds=["sent"])] == ["exps/e7/agents/a/chat"]


async def test_one_that_is_not_connected_goes_to_another_process_and_one_in_use_says_why_not(
    mqtt: MqttServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_EXP", "e1")
    messager = Messager("127.0.0.1", mqtt.port, "a user", "hush", 5, "an interceptor", log_limit=2)
    messager.describe("a name", seed=7)
    monkeypatch.delenv("MESSAGER_EXP")
    there = pickle.loads(pickle.dumps(messager))
    assert isinstance(there, Messager)
    assert (there.exp_id, there.message_interceptor, there.broker.url) == ("e1", "an interceptor", messager.broker.url)
    assert (there._name, there._meta) == ("a name", {"seed": 7})
    again = pickle.loads(pickle.dumps(there))
    await again.connect()
    for _ in range(3):
        await again.send_message("t", {})
    assert len(again.get_log_list()) == 2
    for other in (again, Messager(MqttBroker("h"))):
        with pytest.raises(TypeError, match=r"before connect\(\) and without log hooks, and made with a hostname"):
            pickle.dumps(other)
    await again.disconnect()


async def test_one_with_a_broker_of_a_url_goes_to_another_process_and_closes_there_what_came_along(
    mqtt: MqttServer,
) -> None:
    messager = Messager(MqttBroker.from_url(mqtt.url, qos=2), exp_id="e1")
    there = pickle.loads(pickle.dumps(messager))
    assert (there.exp_id, there.broker.url, there.broker.qos) == ("e1", messager.broker.url, 2)
    await there.connect()
    await there.send_message("t", {})
    with pytest.raises(TypeError, match=r"a MqttBroker can be pickled only before it is connected"):
        pickle.dumps(there.broker)
    await there.disconnect()
    assert there.broker.picklable


def test_a_url_is_no_hostname() -> None:
    with pytest.raises(ValueError, match=r"hostname is the name of a host.*open_broker") as told:
        Messager("mqtt://u:hush@localhost")
    assert "hush" not in str(told.value)
    with pytest.raises(TypeError, match="hostname or a broker"):
        Messager(None)  # type: ignore[arg-type]
