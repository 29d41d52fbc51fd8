"""The schedule of a Messager: numbered receptions, what a sender had heard, and its subscriptions, on every broker."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

from messager import MemoryBroker, Messager, MessageRecord, MqttBroker, PublishError, RedisConfig
from messager import mqtt as over_mqtt
from messager.brokers import Broker
from messager.errors import MessagerError
from messager.testing import MqttServer
from tests.messager.test_messager import fetched
from tests.support import Listed, Proxy, told, until


def numbers(records: list[MessageRecord], *kinds: str) -> list[int | None]:
    return [record.arrival for record in records if record.kind in kinds]


def patterns(records: list[MessageRecord]) -> list[list[str]]:
    return [(record.meta or {})["fields"]["patterns"] for record in records]


class Refuses:
    async def forward(self, from_id: Any, to_id: Any, message: str) -> bool:
        return False


class Held(Listed):
    """Log hook that permits sends only once `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def before_send(self, records: Any) -> None:
        await super().before_send(records)
        await self.go.wait()


async def test_receptions_are_numbered_from_1_within_their_messager(broker: Broker) -> None:
    first, second = Listed(), Listed()
    async with Messager(broker, "e1") as one, Messager(broker, "e1") as other:
        one.add_log_hook(first)
        other.add_log_hook(second)
        await one.subscribe_and_start_listening(["a", "b"])
        await other.subscribe_and_start_listening(["b"])
        for number in range(6):
            await one.send_message("ab"[number % 2], {"n": number})
        heard = await fetched(one, 6)
        await fetched(other, 3)
    received = [record for record in first.records if record.kind == "received"]
    assert numbers(received, "received") == [1, 2, 3, 4, 5, 6] and {record.messager for record in received} == {one.id}
    assert [record.payload for record in received] == [message["data"] for message in heard]
    received = [record for record in second.records if record.kind == "received"]
    assert numbers(received, "received") == [1, 2, 3] and {record.messager for record in received} == {other.id}
    assert one.id != other.id


async def test_sendings_refusals_failures_and_marks_have_the_number_of_the_last_message_that_was_fetched(
    broker: Broker,
) -> None:
    hook = Listed()

    async def all_kinds() -> None:
        await messager.send_message("other", {})
        messager.set_message_interceptor(Refuses())
        await messager.send_message("other", {}, 1, 2)
        messager.set_message_interceptor(object())  # has no `forward`
        with pytest.raises(Exception, match="forward"):
            await messager.send_message("other", {}, 1, 2)
        messager.set_message_interceptor(None)
        messager.mark("tick")

    async with Messager(broker, "e1") as messager, Messager(broker, "e1") as talker:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        await all_kinds()
        for number in range(3):
            await talker.send_message("c", {"n": number})
        await until(lambda: numbers(hook.records, "received") == [1, 2, 3])
        await all_kinds()  # nothing was fetched yet
        await messager.fetch_messages()
        await all_kinds()
    for kind in ("sent", "blocked", "failed", "mark"):
        assert numbers(hook.records, kind) == [0, 0, 3], kind
    assert {record.messager for record in hook.records} == {messager.id}


async def test_a_message_that_the_broker_does_not_take_has_what_its_sender_had_heard() -> None:
    broker, hook = MemoryBroker(), Listed()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        await messager.send_message("c", {})
        await fetched(messager, 1)
        broker.interrupt()
        with pytest.raises(PublishError):
            await messager.send_message("c", {})
    assert numbers(hook.records, "failed") == [1]


async def test_heard_is_what_was_fetched_at_the_call_not_when_the_message_is_published() -> None:
    """The first message waits in a hook; the others gather behind it and are published as one batch."""
    broker, hook = MemoryBroker(), Held()
    async with Messager(broker, "e1") as messager, Messager(broker, "e1") as talker:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        tasks = [asyncio.create_task(messager.send_message("other", {"n": 1}))]
        tasks += [asyncio.create_task(messager.send_message("other", {"n": 2}))]
        await until(lambda: hook.before == [1])
        for number in range(3):
            await talker.send_message("c", {"n": number})
        await fetched(messager, 3)
        tasks.append(asyncio.create_task(messager.send_message("other", {"n": 3})))
        await asyncio.sleep(0)
        hook.go.set()
        await asyncio.gather(*tasks)
    assert hook.before == [1, 2]
    assert numbers(hook.records, "sent") == [0, 0, 3]


async def test_heard_is_what_was_fetched_before_the_interceptor_is_asked() -> None:
    hook, asked, go = Listed(), asyncio.Event(), asyncio.Event()

    class Slow:
        async def forward(self, from_id: Any, to_id: Any, message: str) -> bool:
            asked.set()
            await go.wait()
            return True

    async with Messager(MemoryBroker(), "e1", Slow()) as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        sending = asyncio.create_task(messager.send_message("other", {}, 1, 2))
        await asked.wait()
        await messager.send_message("c", {})
        await fetched(messager, 1)
        go.set()
        await sending
    assert [(record.channel, record.arrival) for record in hook.records if record.kind == "sent"] == [
        ("c", 0),
        ("other", 0),
    ]


async def test_messages_taken_from_the_queue_itself_are_heard_one_by_one() -> None:
    hook = Listed()
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["c"])
        for number in range(4):
            await messager.send_message("c", {"n": number})
        await messager.message_queue.get()
        messager.mark("one")
        await until(lambda: messager.message_queue.qsize() == 3)
        messager.message_queue.get_nowait()
        messager.mark("two")
        await fetched(messager, 2)
        messager.mark("four")
    assert numbers(hook.records, "mark") == [1, 2, 4]


async def test_numbers_go_on_when_a_messager_connects_again(broker: Broker) -> None:
    hook, messager = Listed(), Messager(broker, "e1")
    messager.add_log_hook(hook)
    for _ in range(2):
        async with messager:
            await messager.subscribe_and_start_listening(["c"])
            await messager.send_message("c", {})
            await fetched(messager, 1)
    assert numbers(hook.records, "received") == [1, 2] and numbers(hook.records, "sent") == [0, 1]


async def test_a_hook_that_is_added_late_gets_the_numbers_that_it_would_have_got_before() -> None:
    late = Listed()
    async with Messager(MemoryBroker(), "e1") as messager:
        await messager.subscribe_and_start_listening(["c"])
        for number in range(3):
            await messager.send_message("c", {"n": number})
        await fetched(messager, 3)
        messager.add_log_hook(late)
        await messager.send_message("c", {})
        await fetched(messager, 1)
    assert numbers(late.records, "received") == [4] and numbers(late.records, "sent") == [3]


async def test_subscriptions_are_logged_when_they_begin_and_those_that_are_added_alone(
    broker: Broker,
) -> None:
    hook, late = Listed(), Listed()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        assert not hook.subscriptions
        await messager.subscribe_and_start_listening(["a/*" if not isinstance(broker, MqttBroker) else "a/#"])
        first = patterns(hook.subscriptions)[0]
        await messager.subscribe_and_start_listening([b"b", "b"])
        await messager.subscribe_and_start_listening(["b"])  # nothing new
        messager.add_log_hook(late)
    assert patterns(hook.subscriptions) == [first, ["b"]] and len(first) == 1
    assert patterns(late.subscriptions) == [[*first, "b"]]
    assert {record.messager for record in (*hook.subscriptions, *late.subscriptions)} == {messager.id}


async def test_subscriptions_end_with_the_connection_and_are_logged_again_afterwards(broker: Broker) -> None:
    hook, messager = Listed(), Messager(broker, "e1")
    messager.add_log_hook(hook)
    async with messager:
        await messager.subscribe_and_start_listening(["a", "b"])
    async with messager:
        assert patterns(hook.subscriptions) == [["a", "b"]]
        await messager.subscribe_and_start_listening(["b"])
    assert patterns(hook.subscriptions) == [["a", "b"], ["b"]]


async def test_each_closing_is_logged_with_what_had_been_fetched_by_then(broker: Broker) -> None:
    hook, removed, messager = Listed(), Listed(), Messager(broker, "e1")
    messager.add_log_hook(hook)
    messager.add_log_hook(removed)
    await messager.close()  # it was never connected
    async with messager:
        await messager.send_message("a", {})  # it has not subscribed
    assert not hook.closings
    for number in range(2):
        async with messager:
            await messager.subscribe_and_start_listening(["a"])
            await messager.send_message("a", {"n": number})
            await fetched(messager, 1 + number)
            await messager.send_message("a", {"n": "not fetched"})
            await until(lambda most=2 * number + 2: len(numbers(hook.records, "received")) == most)
            messager.remove_log_hook(removed)
        await messager.close()
    assert [(record.arrival, record.messager) for record in hook.closings] == [(1, messager.id), (3, messager.id)]
    assert not removed.closings


async def test_subscriptions_end_with_the_listener() -> None:
    hook = Listed()
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(hook)
        await messager.subscribe_and_start_listening(["a"])
        assert messager.receive_messages_task is not None
        messager.receive_messages_task.cancel()
        await asyncio.wait([messager.receive_messages_task])
        await messager.subscribe_and_start_listening(["b"])
    assert patterns(hook.subscriptions) == [["a"], ["b"]]


async def test_what_could_not_be_subscribed_to_is_not_logged() -> None:
    broker, hook = MemoryBroker(), Listed()
    async with Messager(broker, "e1") as messager:
        messager.add_log_hook(hook)
        broker.interrupt()
        with pytest.raises(Exception, match="interrupted"):
            await messager.subscribe_and_start_listening(["c"])
        broker.resume()
        await messager.subscribe_and_start_listening(["d"])
    assert patterns(hook.subscriptions) == [["d"]]


async def test_subscriptions_heard_and_numbers_are_logged_by_the_messager_over_mqtt(mqtt: MqttServer) -> None:
    hook = Listed()
    messager = over_mqtt.Messager("127.0.0.1", mqtt.port, exp_id="e1")
    messager.add_log_hook(hook)
    for _ in range(2):
        async with messager:
            await messager.subscribe([("schedule/a", 1), ("schedule/+/b", 0)])
            await messager.start_listening()
            await messager.subscribe("schedule/c")
            await messager.send_message("schedule/c", {})
            await messager.ping()
            while not await messager.fetch_messages():
                await asyncio.sleep(0.005)
    one, two = ["schedule/a", "schedule/+/b"], ["schedule/c"]
    assert patterns(hook.subscriptions) == [one, two, one, two]
    assert numbers(hook.records, "received") == [1, 2] and numbers(hook.records, "sent") == [0, 0, 1, 1]


async def test_messages_of_a_listener_of_a_subclass_are_numbered_and_logged(broker: Broker) -> None:
    """AgentSociety's contract lets a subclass replace `_listen_for_messages`; it puts messages into the queue."""

    class Own(Messager):
        async def _listen_for_messages(self, pubsub: Any, channels: Any) -> None:
            await pubsub.psubscribe(*channels)
            while True:
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
                if message and message["type"] == "pmessage":
                    await self.message_queue.put(message)

    async def unsubscribed() -> bool:
        return await broker.publish([(b"c", b"{}")]) == told(broker, 0)

    hook = Listed()
    async with Own(broker, "e1") as messager:
        messager.add_log_hook(hook)
        async with asyncio.timeout(60):
            await messager.subscribe_and_start_listening(["c"])
        await messager.send_message("c", {"n": 1})
        assert [message["data"] for message in await fetched(messager, 1)] == [b'{"n": 1}']
        await messager.send_message("other", {})
    assert patterns(hook.subscriptions) == [["c"]]
    assert numbers(hook.records, "sent") == [0, 1] and numbers(hook.records, "received") == [1]
    await until(unsubscribed)


async def test_objects_that_are_no_messages_may_be_queued() -> None:
    hook = Listed()
    async with Messager(MemoryBroker(), "e1") as messager:
        messager.add_log_hook(hook)
        note: Any = {"note": 1}
        for thing in (note, "text"):
            await messager.message_queue.put(thing)
        assert await messager.fetch_messages() == [note, "text"]
    assert hook.records == []


async def test_a_messager_that_is_closed_while_it_subscribes_does_not_listen(mqtt: MqttServer) -> None:
    async with Proxy(mqtt.port).running() as proxy:
        proxy.answer_delay = 0.05
        broker = MqttBroker("127.0.0.1", proxy.port)
        messager = Messager(broker, "e1")
        await messager.init()
        subscribing = asyncio.create_task(messager.subscribe_and_start_listening(["c"]))
        await until(lambda: proxy.requests.count(b"MQTT") == 2)
        await messager.close()
        with pytest.raises(Exception, match=r"the Messager was closed meanwhile"):
            await subscribing
        assert messager.receive_messages_task is None
        await broker.close()


def test_copies_of_a_messager_are_other_messagers() -> None:
    messager = Messager(RedisConfig(server="h"), "e1")
    assert len({messager.id, pickle.loads(pickle.dumps(messager)).id, copy.deepcopy(messager).id}) == 3


def test_processes_that_a_messager_was_forked_into_are_other_messagers() -> None:
    program = """
import asyncio, os
from messager import MemoryBroker, Messager
messager = Messager(MemoryBroker(), "e1")
async def connected():
    async with messager:
        os.write(1, messager.id.encode() + b"\\n")
children = []
for _ in range(2):
    child = os.fork()
    if not child:
        asyncio.run(connected())
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
asyncio.run(connected())
asyncio.run(connected())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    *children, here, again = done.stdout.split()
    assert len({*children, here}) == 3 and here == again


async def test_a_live_agent_does_not_run_without_a_gate_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESSAGER_REPLAY", "exp-1")
    monkeypatch.setattr("messager.endpoint.ENTRY_POINTS", "messager.no_such_group")
    messager = Messager(MemoryBroker(), "e1")
    with pytest.raises(MessagerError, match=r"no installed package reads schedules\. Install"):
        await messager.init()
    assert not messager.connected
