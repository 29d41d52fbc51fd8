"""Messager keeps AgentSociety's Redis contract, on every broker."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis

from messager import LogHook, MemoryBroker, Messager, Msg, NotConnected, PublishError, RedisConfig
from messager.brokers import Broker, MqttBroker
from messager.errors import BrokerUnavailable, ListenerDied
from messager.testing import RedisServer, free_port
from tests.support import Listed, nightly_after, told, until


async def fetched(messager: Messager, count: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while len(messages) < count:
            messages += await messager.fetch_messages()
            await asyncio.sleep(0.005)
    return messages


def test_redis_config_is_agentsocietys() -> None:
    config = RedisConfig(server="h")
    assert (config.server, config.port, config.password, config.db, config.timeout) == ("h", 6379, None, 0, 60)
    assert "hunter2" not in repr(RedisConfig(server="h", password="hunter2"))
    with pytest.raises(ValidationError):
        RedisConfig(server="h", port=70000)


def test_channels_are_agentsocietys() -> None:
    messager = Messager(RedisConfig(server="h"), "e1")
    assert messager.get_subtopic_channel(7, "gather") == "exps:e1:agents:7:gather"
    assert messager.get_user_survey_channel(7) == "exps:e1:agents:7:user-survey"
    assert messager.get_user_chat_channel(7) == "exps:e1:agents:7:user-chat"
    assert messager.get_agent_chat_channel(7) == "exps:e1:agents:7:agent-chat"
    assert messager.get_user_payback_channel() == "exps:e1:user-payback"


async def test_the_wire_is_json_dumps_with_default_str(broker: Broker) -> None:
    for payload in [
        {},
        {"count": 1},
        {"content": "h\u00e9 \u65e5\u672c \U0001f600", "t": 1.5},
        {"when": datetime(2026, 1, 2, tzinfo=UTC), 5: "integer key", "big": 2**90},
        {"nan": float("nan"), "inf": float("inf")},
        {"nested": {"a": [1, None, True]}},
    ]:
        async with Messager(broker, "e1") as messager:
            await messager.subscribe_and_start_listening(["w"])
            await messager.send_message("w", payload)
            [message] = await fetched(messager, 1)
        assert message["data"] == json.dumps(payload, default=str).encode()


async def test_fetched_messages_are_dicts_with_bytes_as_redis_py_gives_them(broker: Broker) -> None:
    async with Messager(broker, "e1") as messager:
        await messager.subscribe_and_start_listening(["exps:e1:agents:3:*"])
        await messager.send_message(messager.get_agent_chat_channel(3), {"a": 1}, 4, 3)
        assert await fetched(messager, 1) == [
            {
                "type": "pmessage",
                "pattern": b"exps:e1:agents:3:*",
                "channel": b"exps:e1:agents:3:agent-chat",
                "data": b'{"a": 1}',
            }
        ]
        assert await messager.fetch_messages() == []


async def test_listening_is_active_when_it_returns_and_more_can_be_listened_to(broker: Broker) -> None:
    hook = Listed()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        for channel in ("one", "two", "three"):
            await messager.subscribe_and_start_listening([channel])
            await messager.send_message(channel, {"to": channel})
        await messager.subscribe_and_start_listening([])
        channels = [message["channel"] for message in await fetched(messager, 3)]
    assert channels == [b"one", b"two", b"three"]
    assert [record.receivers for record in hook.records if record.kind == "sent"] == told(broker, 1, 1, 1)


async def test_hooks_are_told_of_everything_with_times_in_order(broker: Broker) -> None:
    hook = Listed()
    assert isinstance(hook, LogHook)
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["*"])
        msg = Msg("alice", "hi", "user")
        await messager.send_message("c", msg, 1, "two")
        messager.mark("tick", number=3)
        await fetched(messager, 1)
    by_kind = {record.kind: record for record in hook.records}
    sent, received, mark = by_kind["sent"], by_kind["received"], by_kind["mark"]
    assert sent.msg is msg and sent.message is msg
    assert received.msg == msg
    assert (sent.from_id, sent.to_id, received.from_id) == (1, "two", None)
    assert sent.ts <= received.ts
    assert sent.duration_ns is not None and sent.duration_ns > 0
    assert mark.meta == {"name": "tick", "fields": {"number": 3}}
    assert hook.before == [1]
    url, clock, offset = hook.connections[0]
    assert "://" in url and clock is messager.clock
    assert offset is None if isinstance(broker, MqttBroker) else isinstance(offset, int)


async def test_other_payloads_have_a_view_as_a_message(broker: Broker) -> None:
    hook = Listed()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        await messager.send_message("c", {"from": 3, "content": "hello"})
    assert (hook.records[0].msg.name, hook.records[0].msg.content) == ("3", "hello")


class Forward:
    """Interceptor that keeps its arguments."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, Any, str]] = []

    async def forward(self, from_id: Any, to_id: Any, message: str) -> Any:
        self.asked.append((from_id, to_id, message))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Handle:
    """Handle like that of a Ray actor: methods are called through `.remote`."""

    def __init__(self, target: Forward) -> None:
        self.forward = self
        self._target = target

    def remote(self, *arguments: Any) -> Any:
        return asyncio.ensure_future(self._target.forward(*arguments))


@pytest.mark.parametrize("wrapped", [False, True])
async def test_the_interceptor_is_asked_only_when_both_ids_are_known(broker: Broker, wrapped: bool) -> None:
    target = Forward(True)
    async with Messager(broker, "e1", Handle(target) if wrapped else target) as messager:
        await messager.send_message("c", {"n": 1}, 1, 2)
        await messager.send_message("c", {"n": 2}, 1)
        await messager.send_message("c", {"n": 3}, None, 2)
        await messager.send_message("c", {"n": 4}, 0, 0)
    assert target.asked == [(1, 2, '{"n": 1}'), (0, 0, '{"n": 4}')]


async def test_a_refused_message_is_not_published_and_is_logged_as_blocked(broker: Broker) -> None:
    hook = Listed()
    async with Messager(broker, "e1", Forward(False)) as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        await messager.send_message("c", {"n": 1}, 1, 2)
        messager.set_message_interceptor(None)
        assert messager.message_interceptor is None
        await messager.send_message("c", {"n": 2}, 1, 2)
        [message] = await fetched(messager, 1)
        assert message["data"] == b'{"n": 2}'
        assert [entry["sent"] for entry in messager.get_log_list()] == [False, True]
    assert sorted(hook.kinds()) == ["blocked", "received", "sent"]


class No:
    """Answer that says why."""

    reason = "rude words"

    def __bool__(self) -> bool:
        return False


class Actor(Handle):
    def __repr__(self) -> str:
        return "Actor(Judge, 7f00000001000000)"


async def test_a_blocked_message_has_its_interceptor_and_the_reason_that_it_gave() -> None:
    for interceptor, meta in [
        (Forward(False), {"interceptor": "Forward"}),
        (Forward(No()), {"interceptor": "Forward", "reason": "rude words"}),
        (Handle(Forward(None)), {"interceptor": "Handle"}),
        (Actor(Forward(No())), {"interceptor": "Judge", "reason": "rude words"}),
    ]:
        hook = Listed()
        async with Messager(MemoryBroker(), "e1", interceptor) as messager:
            messager.add_log_hook(hook)
            await messager.send_message("c", {}, 1, 2)
        [record] = hook.records
        assert (record.kind, record.meta) == ("blocked", meta)


async def test_an_interceptor_that_raises_stops_the_message_and_is_logged(broker: Broker) -> None:
    hook = Listed()
    async with Messager(broker, "e1", Forward(RuntimeError("no model"))) as messager:
        messager.add_log_hook(hook)
        with pytest.raises(RuntimeError, match="no model"):
            await messager.send_message("c", {}, 1, 2)
    assert hook.kinds() == ["failed"]
    assert hook.records[0].meta is not None and hook.records[0].meta["outcome"] == "not_sent"


async def test_the_log_list_is_agentsocietys(broker: Broker) -> None:
    async with Messager(broker, "e1") as messager:
        payload = {"a": 1}
        await messager.send_message("c", payload, 1, 2)
        [entry] = messager.get_log_list()
        assert entry.keys() == {"channel", "payload", "from_id", "to_id", "start_time", "consumption", "sent"}
        assert entry["payload"] is payload
        assert (entry["channel"], entry["from_id"], entry["to_id"], entry["sent"]) == ("c", 1, 2, True)
        assert abs(entry["start_time"] - datetime.now().timestamp()) < 60
        assert 0 < entry["consumption"] < 10
        messager.clear_log_list()
        assert messager.get_log_list() == []


async def test_the_log_list_is_bounded() -> None:
    async with Messager(MemoryBroker(), "e1", log_limit=3) as messager:
        for number in range(5):
            await messager.send_message("c", {"n": number})
        assert [entry["payload"]["n"] for entry in messager.get_log_list()] == [2, 3, 4]


async def test_a_hook_that_raises_harms_nobody(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Listed):
        def after(self, record: Any) -> None:
            raise ValueError("broken hook")

    last = Listed()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(Broken())
        messager.add_log_hook(last)
        await messager.send_message("c", {})
        messager.remove_log_hook(last)
        await messager.send_message("c", {})
    assert last.kinds() == ["sent"]
    assert "broken hook" in caplog.text


async def test_a_hook_that_cannot_be_told_of_the_broker_or_of_the_experiment_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Breaks(Listed):
        def connected(self, *told: object) -> None:
            raise RuntimeError("broken")

        described = connected

    hook = Listed()
    messager = Messager(MemoryBroker(), "e1")
    messager.add_log_hook(Breaks())
    messager.add_log_hook(hook)
    async with messager:
        messager.describe("named", seed=7)
        await messager.send_message("c", {})
    assert len(hook.connections) == 1 and hook.kinds() == ["sent"]
    assert caplog.text.count("RuntimeError: broken") == 2


async def test_a_hook_can_stop_a_message_before_it_is_sent(broker: Broker) -> None:
    class Refusing(Listed):
        async def before_send(self, records: Any) -> None:
            raise RuntimeError("the log is full")

    last = Listed()
    async with Messager(broker, "e1") as messager:
        await messager.subscribe_and_start_listening(["c"])
        refusing = Refusing()
        messager.add_log_hook(refusing)
        messager.add_log_hook(last)
        with pytest.raises(RuntimeError, match="the log is full"):
            await messager.send_message("c", {"n": 1})
        messager.remove_log_hook(refusing)
        await messager.send_message("c", {"n": 2})
        assert [message["data"] for message in await fetched(messager, 1)] == [b'{"n": 2}']
    assert refusing.kinds() == ["failed"] and "failed" not in last.kinds()  # which was not asked about it


async def test_what_json_cannot_hold_and_channels_without_bytes_are_refused_before_anything_happens(
    broker: Broker,
) -> None:
    hook = Listed()
    circular: dict[str, Any] = {}
    circular["self"] = circular
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        with pytest.raises(ValueError, match="Circular"):
            await messager.send_message("c", circular)
        with pytest.raises(ValueError, match="surrogates not allowed"):
            await messager.send_message("\ud800", {})
        await messager.send_message("c", {})
    assert hook.kinds() == ["sent"]


async def test_it_must_be_connected_to_send_and_to_listen(broker: Broker) -> None:
    messager = Messager(broker, "e1")
    for refused in (messager.send_message("c", {}), messager.subscribe_and_start_listening(["c"])):
        with pytest.raises(NotConnected, match="init"):
            await refused
    await messager.init()
    await messager.init()
    assert messager.connected
    await messager.close()
    await messager.close()
    assert not messager.connected


async def test_a_gap_in_listening_is_told_and_listening_goes_on() -> None:
    broker = MemoryBroker()
    hook = Listed()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        broker.interrupt()
        with pytest.raises(PublishError) as caught:
            await messager.send_message("c", {"n": 1})
        assert caught.value.outcome == "not_sent"
        broker.resume()
        await messager.send_message("c", {"n": 2})
        await fetched(messager, 1)
    assert [kind for kind in hook.kinds() if kind != "received"] == ["failed", "gap", "sent"] or (
        sorted(hook.kinds()) == ["failed", "gap", "received", "sent"]
    )
    gap = next(record.meta for record in hook.records if record.kind == "gap")
    assert gap is not None and gap["since"] <= gap["until"] and gap["count"] is None and gap["reason"]


async def test_ending_while_disconnected_is_told_as_a_gap() -> None:
    broker = MemoryBroker()
    hook = Listed()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        broker.interrupt()
    assert hook.kinds() == ["gap"]


async def test_a_listener_that_died_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    class Dying(MemoryBroker):
        def pubsub(self) -> Any:
            pubsub = super().pubsub()

            async def get_message(**_: Any) -> None:
                await asyncio.sleep(0.01)
                raise RuntimeError("out of memory")

            pubsub.get_message = get_message  # type: ignore[method-assign,assignment]
            return pubsub

    async with Messager(Dying(), "e1") as messager:
        await messager.subscribe_and_start_listening(["c"])

        async def died() -> bool:
            try:
                await messager.fetch_messages()
            except ListenerDied as error:
                return "out of memory" in str(error)
            return False

        await until(died)
    assert "out of memory" in caplog.text


async def test_listening_on_a_broker_out_of_reach_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    broker = MemoryBroker()
    async with Messager(broker, "e1") as messager:
        broker.interrupt()
        with pytest.raises(BrokerUnavailable):
            await messager.subscribe_and_start_listening(["c"])
        broker.resume()
        await messager.subscribe_and_start_listening(["c"])
        await messager.send_message("c", {})
        assert len(await fetched(messager, 1)) == 1


async def test_it_works_from_a_redis_config_and_closes_what_it_opened(redis: RedisServer) -> None:
    async with Messager(RedisConfig(server="127.0.0.1", port=redis.port), "e1") as messager:
        await messager.subscribe_and_start_listening(["c"])
        await messager.send_message("c", {})
        assert len(await fetched(messager, 1)) == 1
    with pytest.raises(BrokerUnavailable):
        await Messager(RedisConfig(server="127.0.0.1", port=free_port()), "e1").init()


async def test_a_subclass_may_use_listen_for_messages_with_a_pubsub_of_redis_py(redis: RedisServer) -> None:
    """AgentSociety's own signature: `_listen_for_messages(pubsub, channels)`."""
    client = Redis(port=redis.port)
    async with Messager(RedisConfig(server="127.0.0.1", port=redis.port), "e1") as messager:
        task = asyncio.create_task(messager._listen_for_messages(client.pubsub(), ["theirs:*"]))

        async def heard() -> bool:
            return bool(await client.publish("theirs:1", "x"))

        await until(heard)
        assert (await fetched(messager, 1))[0]["channel"] == b"theirs:1"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await client.aclose()


def test_what_is_no_address_is_refused_with_what_would_be_one() -> None:
    for config in ["redis://:hush@localhost", None, {"server": "localhost"}]:
        with pytest.raises(
            TypeError, match=r"RedisConfig or a broker, not with a (str|NoneType|dict)\. .*`messager\.open_broker"
        ) as told:
            Messager(config, "e1")
        assert "hush" not in str(told.value)


async def test_a_channel_that_is_no_text_is_refused_in_plain_words() -> None:
    for channel in [None, 5, ["c"]]:
        async with Messager(MemoryBroker(), "e1") as messager:
            with pytest.raises(TypeError, match="invalid channel: "):
                await messager.send_message(channel, {})
            with pytest.raises(TypeError, match="invalid channel: "):
                await messager.subscribe_and_start_listening([channel])
            assert not messager.get_log_list()


ELSEWHERE = """
import asyncio, sys, threading
from messager import Messager, RedisConfig

async def begin():
    await messager.init()
    await messager.subscribe_and_start_listening(["c"])
    await messager.send_message("c", {})

messager = Messager(RedisConfig(server="127.0.0.1", port=int(sys.argv[1])), "e1")
first = asyncio.new_event_loop()
if sys.argv[2] == "running":
    threading.Thread(target=first.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(begin(), first).result()
else:
    first.run_until_complete(begin())
task = messager.receive_messages_task
if sys.argv[2] == "closed":
    first.close()
asyncio.run(asyncio.wait_for(messager.close(), 30))
print(messager.connected, task.done())
"""


@pytest.mark.parametrize("loop", nightly_after(1, ["running", "open", "closed"]))
def test_a_messager_that_listens_may_be_closed_in_another_event_loop(redis: RedisServer, loop: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(redis.port), loop], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["False", str(loop == "running")], done.stderr
    line = "closed in another event loop than init(), which does not run"
    assert (line in done.stderr) == (loop != "running")


KILLED = """
import asyncio, gc, sys
from messager import Messager, open_broker

async def begin():
    messager = Messager(open_broker(sys.argv[1]), "e1")
    await messager.init()
    await messager.subscribe_and_start_listening(["c"])

loop = asyncio.new_event_loop()
loop.run_until_complete(begin())
loop.close()
del loop
gc.collect()
"""


@pytest.mark.parametrize("server", ["redis", "mqtt"])
def test_a_listener_that_is_thrown_away_with_its_event_loop_raises_nothing(
    server: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(server).url
    done = subprocess.run([sys.executable, "-c", KILLED, url], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Error" not in done.stderr, done.stderr
