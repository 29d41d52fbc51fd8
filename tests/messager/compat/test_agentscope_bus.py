"""The messages of AgentScope's bus are recorded with who said them to whom; a MessagerBus carries them in lockstep."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from messager import MemoryBroker, Transport
from messager.compat import agentscope_bus
from messager_store import EventLog, Recorder
from messager_store.log.event import Event
from messager_store.queries.problems import problems
from tests.support import agentscope_2
from tests.support.agentscope_2 import InMemoryMessageBus

INBOX, EVENTS, WAKEUPS = "agentscope:inbox:", "agentscope:session:events:", "agentscope:wakeups"
NAMES = "alice", "bob", "carol"


def hint(sender: str, text: str) -> dict[str, Any]:
    return {"type": "hint", "hint": text, "source": json.dumps({"label": "team", "sublabel": sender})}


@pytest.fixture(autouse=True)
def agentscope(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the stand-in in the place of AgentScope."""
    for name in ("agentscope", "agentscope.app"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "agentscope.app.message_bus", agentscope_2)
    monkeypatch.delitem(sys.modules, "messager.compat.agentscope_inboxes", raising=False)
    yield
    vars(agentscope_bus).pop("MessagerBus", None)


async def events(log: EventLog, exp_id: str = "e1") -> list[Event]:
    return [event async for event in log.read(exp_id)]


def shown(found: list[Event]) -> list[tuple[Any, ...]]:
    return [(one.kind, one.channel, one.from_id, one.to_id, one.carrier) for one in found if one.kind != "mark"]


@pytest.mark.sqlite
async def test_a_message_to_an_inbox_is_said_by_its_source_and_received_by_the_session(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        bus = InMemoryMessageBus()
        agentscope_bus.record(bus, transport)
        assert await bus.queue_drain(INBOX + "bob") == []
        ids = [await bus.queue_push(INBOX + "bob", hint("alice", text)) for text in ("one", "two", "three")]
        assert await bus.queue_drain(INBOX + "bob", max_count=2) == [
            (ids[0], hint("alice", "one")),
            (ids[1], hint("alice", "two")),
        ]
        await bus.queue_push(INBOX + "alice", {"hint": "of the session that drained last"})
        await bus.queue_drain(INBOX + "bob")
        await bus.queue_drain(INBOX + "alice")
    found = await events(log)
    to_bob = INBOX + "bob", "alice", "bob", "queue"
    to_alice = INBOX + "alice", "bob", "alice", "queue"
    assert shown(found) == [
        *[("sent", *to_bob)] * 3,
        *[("received", *to_bob)] * 2,
        ("sent", *to_alice),
        ("received", *to_bob),
        ("received", INBOX + "alice", None, "alice", "queue"),
    ]
    said = next(one for one in found if one.kind == "sent" and one.channel == INBOX + "alice")
    heard = [one for one in found if one.kind == "received" and one.channel == INBOX + "bob"]
    assert [one.arrival for one in heard] == [1, 2, 3] and said.arrival == 2
    assert {one.messager for one in heard} == {said.messager}
    assert (await problems(log, await log.experiment("e1"))).details == ()


@pytest.mark.sqlite
async def test_logs_signals_and_other_queues_are_recorded_with_those_who_read_them(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        bus = InMemoryMessageBus()
        agentscope_bus.record(bus, transport)
        listening = [asyncio.Event(), asyncio.Event()]
        streams = [bus.subscribe(EVENTS + "bob", on_ready=ready.set) for ready in listening]
        readers = [asyncio.create_task(anext(stream)) for stream in streams]
        for ready in listening:
            await ready.wait()
        entry = await bus.log_append(EVENTS + "bob", {"n": 1}, max_len=10)
        await bus.publish(EVENTS + "bob", {"n": 1, "_entry_id": entry})
        assert await asyncio.gather(*readers) == [{"n": 1, "_entry_id": entry}] * 2
        for stream in streams:
            await stream.aclose()
        for _ in range(2):
            assert await bus.log_read(EVENTS + "bob") == [(entry, {"n": 1})]
        await bus.log_append("read by nobody", {})
        await bus.publish("heard by nobody", {})
        await bus.queue_push(WAKEUPS, {"session_id": "bob"})
        assert [payload for _, payload in await bus.queue_drain(WAKEUPS)] == [{"session_id": "bob"}]
    found = await events(log)
    assert shown(found) == [
        ("sent", EVENTS + "bob", "bob", None, "stream"),
        ("sent", EVENTS + "bob", "bob", None, None),
        *[("received", EVENTS + "bob", "bob", None, None)] * 2,
        ("received", EVENTS + "bob", "bob", None, "stream"),
        ("sent", "read by nobody", None, None, "stream"),
        ("sent", "heard by nobody", None, None, None),
        ("sent", WAKEUPS, None, None, "queue"),
        ("received", WAKEUPS, None, None, "queue"),
    ]
    assert (await problems(log, await log.experiment("e1"))).details == ()


@pytest.mark.sqlite
async def test_what_is_drained_and_put_back_is_one_message(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        bus = InMemoryMessageBus()
        agentscope_bus.record(bus, transport)
        await bus.queue_push(INBOX + "bob", hint("alice", "one"))
        for _ in range(2):
            for _, payload in await bus.queue_drain(INBOX + "bob"):
                await bus.queue_push(INBOX + "bob", payload)
        assert len(await bus.queue_drain(INBOX + "bob")) == 1
    assert [one.kind for one in await events(log) if one.kind != "mark"] == ["sent", "received"]


@pytest.mark.sqlite
async def test_errors_of_the_bus_pass_and_what_has_no_json_form_is_shown(log: EventLog) -> None:
    class Broken(InMemoryMessageBus):
        async def publish(self, key: str, payload: dict[str, Any]) -> None:
            raise ConnectionError("gone")

    loop: dict[str, Any] = {}
    loop["loop"] = loop
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        bus = Broken()
        agentscope_bus.record(bus, transport)
        with pytest.raises(ConnectionError, match="gone"):
            await bus.publish("signal", {})
        await bus.queue_push(WAKEUPS, loop)
    found = [one for one in await events(log) if one.kind != "mark"]
    assert [(one.kind, one.payload) for one in found] == [("failed", b"{}"), ("sent", b"{'loop': {...}}")]


@pytest.mark.sqlite
async def test_an_error_of_the_recording_does_not_reach_agentscope(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Transport):
        def endpoint(self, agent: Any) -> Any:
            raise OSError("no place")

    bus = InMemoryMessageBus()
    agentscope_bus.record(bus, Broken("e1"))
    await bus.queue_push(INBOX + "bob", hint("alice", "one"))
    assert [payload["hint"] for _, payload in await bus.queue_drain(INBOX + "bob")] == ["one"]
    assert "no place" in caplog.text


@pytest.mark.sqlite
async def test_every_bus_is_recorded_once_installed_until_the_end(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        with agentscope_bus.install(transport) as installed:
            assert agentscope_bus.install() is installed
            for made in (InMemoryMessageBus(), agentscope_2.RedisMessageBus()):
                await made.publish("signal", {"n": 1})
        await made.publish("signal", {"n": 2})
        await InMemoryMessageBus().publish("signal", {"n": 3})
    assert [one.payload for one in await events(log) if one.kind == "sent"] == [b'{"n": 1}'] * 2


def test_without_agentscope_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agentscope.app.message_bus", None)
    with pytest.raises(agentscope_bus.NoAgentScope, match="pip install 'agentscope>=2'"):
        agentscope_bus.install()


async def live(bus: Any, name: str, chance: random.Random, rounds: int = 5) -> list[str]:
    """Play an agent that says what was in its inbox, after a random time, of which it takes two messages at most."""
    said = []
    for number in range(rounds):
        await asyncio.sleep(chance.random() / 100)
        heard = [payload["hint"][:7] for _, payload in await bus.queue_drain(INBOX + name, max_count=2)]
        said.append(f"{name} {number}: {' '.join(heard)}")
        await bus.log_append(EVENTS + name, {"text": said[-1]})
        for other in NAMES:
            if other != name:
                async with bus.acquire_lock(f"agentscope:inbox:lock:{other}"):
                    await bus.queue_push(INBOX + other, hint(name, said[-1]))
                await bus.queue_push(WAKEUPS, {"session_id": other})
    return said


async def society(bus: Any, seed: int) -> list[list[str]]:
    chance = random.Random(seed)
    async with bus:
        return await asyncio.gather(*(live(bus, name, chance) for name in NAMES))


@pytest.mark.parametrize("how", ["by a MessagerBus", "by hooks"])
async def test_agents_over_a_messager_bus_repeat_what_was_recorded(
    store: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("MESSAGER_STORE", store)
    if how == "by hooks":
        async with Transport("e1") as transport:
            bus = InMemoryMessageBus()
            agentscope_bus.record(bus, transport)
            recorded = await society(bus, 1)
    else:
        recorded = await society(agentscope_bus.MessagerBus(MemoryBroker(), "e1", *NAMES), 1)
    assert await society(agentscope_bus.MessagerBus(MemoryBroker(), "free", *NAMES), 2) != recorded
    monkeypatch.setenv("MESSAGER_REPLAY", "e1")
    for seed in range(3, 8):
        bus = agentscope_bus.MessagerBus(MemoryBroker(), f"again-{seed}", *NAMES)
        assert await society(bus, seed) == recorded


async def test_a_messager_bus_keeps_the_contract_of_a_bus(log: EventLog) -> None:
    state = InMemoryMessageBus()
    async with (
        Recorder(log, "e1") as recorder,
        agentscope_bus.MessagerBus(MemoryBroker(), "e1", "bob", state=state, hooks=[recorder]) as bus,
    ):
        for text in ("one", "two", "three"):
            await bus.queue_push(INBOX + "bob", hint("alice", text))
        (first, one), (second, two) = await bus.queue_drain(INBOX + "bob", max_count=2)
        assert (one["hint"], two["hint"]) == ("one", "two") and first != second
        await bus.queue_push(INBOX + "alice", hint("bob", "to nobody"))
        await bus.queue_push(INBOX + "bob", two)
        assert [one["hint"] for _, one in await bus.queue_drain(INBOX + "bob")] == ["three", "two"]
        await bus.queue_push(INBOX + "bob", hint("alice", "four"))
        await asyncio.sleep(0)
        await bus.queue_delete(INBOX + "bob")
        assert await bus.queue_drain(INBOX + "bob") == []
        ready = asyncio.Event()
        stream = bus.subscribe("signal", on_ready=ready.set)
        reader = asyncio.create_task(anext(stream))
        await ready.wait()
        await bus.publish("signal", {"n": 1})
        assert await reader == {"n": 1}
        await stream.aclose()
        entry = await bus.log_append(EVENTS + "bob", {"n": 2}, max_len=10)
        assert await bus.log_read(EVENTS + "bob") == [(entry, {"n": 2})]
        await bus.log_trim(EVENTS + "bob")
        assert await bus.log_read(EVENTS + "bob") == []
        async with bus.acquire_lock("lock"):
            assert await bus.is_locked("lock")
        await bus.registry_set(namespace="space", field="f", value="v")
        assert (await bus.registry_get("space", "f"), state.registry) == ("v", {("messager:e1:space", "f"): "v"})
    found = [one for one in await events(log) if one.kind == "sent"]
    assert (json.loads(found[3].payload)["hint"], found[3].arrival) == ("to nobody", 2)
    report = await problems(log, await log.experiment("e1"))
    assert [problem.event.channel for problem in report.details if problem.event] == [INBOX + "alice"]
