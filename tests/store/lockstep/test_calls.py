"""A society whose agents ask a model says the same again, with the recorded answers, however long anything takes."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from messager import MemoryBroker, Messager, acting
from messager.calls import starting
from messager.calls.exchange import Answer, Call, CallRefused
from messager.calls.guard import Guard
from messager.calls.public import public_call
from messager.calls.recording import Recording
from messager.calls.serving import Serving
from messager_store import EventLog
from messager_store.lockstep.calls import masked, request_of
from messager_store.log.event import Event
from tests.support import nightly_after

NAMES = "abcde"
URL = "http://models.example/v1/chat/completions"


class Model:
    """A model with random words, behind a client that records or serves."""

    def __init__(self, seed: int, *, serving: bool, changed: str = "") -> None:
        self.chance = random.Random(seed)
        self._exchange = Serving if serving else Recording
        self._changed = changed

    async def wait(self) -> None:
        await asyncio.sleep(self.chance.random() / 100)

    async def ask(self, *prompt: str) -> str:
        body = json.dumps([*prompt, self._changed] if self._changed else prompt).encode()
        call = Call("POST", URL, [], body, "test")
        exchange = self._exchange.of(call, public_call(call))
        answer = await exchange.serve()
        if answer is None:
            exchange.asked()
            await self.wait()
            answer = Answer(200, [], [b"words ", b"%d" % self.chance.randrange(10**9)], [5, 7])
            exchange.answered(answer)
        return answer.body.decode()


async def live(
    name: str, exp_id: str, broker: MemoryBroker, model: Model, ready: asyncio.Barrier, said: list[str]
) -> None:
    async with Messager(broker, exp_id) as messager:
        await messager.subscribe_and_start_listening(["room", messager.get_subtopic_channel(name, "*")])
        await ready.wait()
        memory: list[str] = []

        async def fetch() -> None:
            memory.extend(json.loads(one["data"])["text"] for one in await messager.fetch_messages())

        for number in range(5):
            await model.wait()
            await fetch()
            if number % 2:
                answers = await asyncio.gather(*(model.ask(name, str(at), *memory) for at in range(3)))
            else:
                answers = [await model.ask("the same prompt of all agents")]
            await fetch()
            said.append(f"{name} {number}: {answers} after {len(memory)} messages")
            await messager.send_message("room", {"text": said[-1]}, name)


async def society(exp_id: str, model: Model) -> list[str]:
    broker, ready, said = MemoryBroker(), asyncio.Barrier(len(NAMES)), list[str]()
    async with asyncio.timeout(60), asyncio.TaskGroup() as agents:
        for name in NAMES:
            agents.create_task(live(name, exp_id, broker, model, ready, said))
    return sorted(said)


async def events(store: str, exp_id: str) -> list[Event]:
    async with EventLog.open(store, create=False) as log:
        return [event async for event in log.read(exp_id)]


@pytest.fixture(autouse=True)
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of the tests is not hooked, and may connect to anything."""
    monkeypatch.setattr(starting, "_guard", Guard("note"))


@pytest.fixture
async def recorded(store: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A recorded society, whose calls are served from now on."""
    monkeypatch.setenv("MESSAGER_STORE", store)
    said = await society("e1", Model(1, serving=False))
    monkeypatch.setenv("MESSAGER_REPLAY", "e1")
    monkeypatch.setenv("MESSAGER_CALLS", "serve")
    return said


@pytest.mark.parametrize("seed", nightly_after(2, range(2, 22)))
async def test_every_message_and_every_call_is_equal(recorded: list[str], store: str, seed: int) -> None:
    assert await society("e2", Model(seed, serving=True)) == recorded
    once, again = await events(store, "e1"), await events(store, "e2")

    def calls(listed: list[Event], kind: str) -> list[tuple[Any, bytes]]:
        return sorted((repr(one.from_id or one.to_id), one.payload) for one in listed if one.kind == kind)

    for kind in ("asked", "answered"):
        assert len(calls(once, kind)) == 45 and calls(again, kind) == calls(once, kind)


async def test_a_call_that_was_not_made_is_refused_and_names_the_closest(recorded: list[str], store: str) -> None:
    with pytest.raises(ExceptionGroup) as failed:
        await society("e2", Model(2, serving=True, changed="now"))
    refused = failed.value.exceptions[0]
    assert isinstance(refused, CallRefused)
    assert "differs at character 32" in str(refused) and 'now"]' in str(refused)
    first = next(event for event in await events(store, "e2") if event.kind == "answered")
    assert first.meta is not None and first.meta["error"][0] == "CallRefused"


async def test_agents_that_share_a_messager_get_their_own_answers(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def group(exp_id: str, model: Model) -> dict[str, str]:
        async with Messager(MemoryBroker(), exp_id) as messager:

            async def agent(name: str) -> tuple[str, str]:
                with acting(name):
                    await model.wait()
                    answer = await model.ask("the same prompt")
                await messager.send_message("c", {"text": answer}, name)
                return name, answer

            return dict(await asyncio.gather(*map(agent, NAMES)))

    monkeypatch.setenv("MESSAGER_STORE", store)
    recorded = await group("e1", Model(1, serving=False))
    assert len(set(recorded.values())) == len(NAMES)
    monkeypatch.setenv("MESSAGER_REPLAY", "e1")
    monkeypatch.setenv("MESSAGER_CALLS", "serve")
    for seed in range(2, 5):
        assert await group(f"again-{seed}", Model(seed, serving=True)) == recorded


def request(body: bytes, url: str = URL) -> tuple[str, str, bytes]:
    return request_of(body, {"method": "POST", "url": url})


def test_requests_are_compared_as_json_and_masked_only_where_times_and_ids_are() -> None:
    assert request(b'{"a": 1, "b": 2}') == request(b'{"b":2,"a":1}')
    assert request(b"", "http://127.0.0.1:1/v1/x") == request(b"", "http://localhost:2/v1/x")
    assert request(b"", "http://weather.example/v1/x?city=A") != request(b"", "http://weather.example/v1/x?city=B")
    assert request(b"", "http://weather.example/v1/x") != request(b"", "http://other.example/v1/x")
    for one, other in (
        (b'{"t": "2026-01-01 10:00:00"}', b'{"t": "2026-02-03T11:01:02.5Z"}'),
        (b'"id 123e4567-e89b-12d3-a456-426614174000"', b'"id 00000000-0000-4000-8000-00000000000a"'),
        (b'{"ts": 1712345678}', b'{"ts": 1798765432}'),
        (b'"0123456789abcdef0123"', b'"fedcba98765432100123"'),
    ):
        assert request(one) != request(other) and masked(request(one)) == masked(request(other))
    assert masked(request(b'"5 apples"')) != masked(request(b'"6 apples"'))


async def test_calls_whose_bodies_were_not_kept_are_never_answered(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def alone(exp_id: str, model: Model) -> str:
        async with Messager(MemoryBroker(), exp_id) as messager:
            await messager.send_message("c", {}, "a")
            return await model.ask("a secret")

    monkeypatch.setenv("MESSAGER_STORE", store)
    monkeypatch.setenv("MESSAGER_CALL_BODIES", "none")
    await alone("e1", Model(1, serving=False))
    found = [event for event in await events(store, "e1") if event.kind in ("asked", "answered")]
    assert [event.payload for event in found] == [b"", b""]
    assert found[0].meta is not None and found[0].meta["body"]["bytes"] == len('["a secret"]')
    monkeypatch.setenv("MESSAGER_REPLAY", "e1")
    monkeypatch.setenv("MESSAGER_CALLS", "serve")
    with pytest.raises(CallRefused, match="bodies were not kept"):
        await alone("e2", Model(2, serving=True))
