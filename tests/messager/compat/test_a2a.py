"""Requests, answers, streams and failures of A2A agents are recorded at both ends, also in several processes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from messager import Transport
from messager.compat import a2a
from messager.compat.patching import Patches
from messager.testing import free_port
from messager_store import EventLog, Recorder
from messager_store.queries.problems import problems
from tests.support import ROOT
from tests.support.frameworks import python_with

AGENT = "bob"
_ids = itertools.count(1)


class Message(SimpleNamespace):
    """Stand-in for a message of A2A, with an id of its own."""

    def __init__(self, text: str) -> None:
        super().__init__(text=text, message_id=next(_ids))


class Task(Message):
    """Stand-in for a task of A2A."""


class A2AError(Exception):
    """Stand-in for an error that an agent answers."""


class ConnectError(Exception):
    """Stand-in for an error of the connection."""


class Response:
    """Stand-in for a response: one field is set."""

    def __init__(self, **field: Any) -> None:
        [self._field] = field
        vars(self).update(field)

    def WhichOneof(self, name: str) -> str:
        return self._field


class CallContext:
    """Stand-in for the context of a call of a client."""

    def __init__(self, service_parameters: dict[str, str] | None = None) -> None:
        self.service_parameters = service_parameters

    def model_copy(self, *, update: dict[str, Any]) -> CallContext:
        return CallContext(**update)


class Handler:
    """Stand-in for the handler of a server. It answers text, and fails at `fail`."""

    def __init__(self, card: Any) -> None:
        self._agent_card = card

    async def on_message_send(self, params: Any, context: Any) -> Any:
        if params.message.text == "fail":
            raise A2AError("I cannot")
        return Message(text=f"you said {params.message.text}")

    async def on_message_send_stream(self, params: Any, context: Any) -> AsyncIterator[Any]:
        yield Task(text="begun")
        if params.message.text == "fail":
            raise A2AError("I cannot")
        yield Message(text="done")


class Way:
    """Stand-in for the transport of a client: calls the handler of a server."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    def _arriving(self, context: Any) -> Any:
        return SimpleNamespace(state={"headers": dict((context and context.service_parameters) or {})})

    async def send_message(self, request: Any, *, context: Any = None) -> Any:
        if request.message.text == "lost":
            raise ValueError("no way") from ConnectError()
        return Response(message=await self.handler.on_message_send(request, self._arriving(context)))

    async def send_message_streaming(self, request: Any, *, context: Any = None) -> AsyncIterator[Any]:
        async for event in self.handler.on_message_send_stream(request, self._arriving(context)):
            yield Response(**{"task" if isinstance(event, Task) else "message": event})


class Client:
    """Stand-in for `BaseClient`."""

    def __init__(self, card: Any, transport: Way) -> None:
        self._card, self._transport = card, transport

    async def ask(self, text: str) -> str:
        response = await self._transport.send_message(SimpleNamespace(message=Message(text=text)))
        return str(response.message.text)

    def stream(self, text: str) -> AsyncIterator[Any]:
        return self._transport.send_message_streaming(SimpleNamespace(message=Message(text=text)))


@contextmanager
def recorded(transport: Transport) -> Iterator[Client]:
    recording = a2a.Recording(transport, vars, CallContext)
    with Patches() as patches:
        a2a.record_clients(patches, recording, Client)
        a2a.record_server(patches, recording, Handler)
        card = SimpleNamespace(name=AGENT)
        yield Client(card, Way(Handler(card)))


async def test_requests_answers_and_failures_are_recorded_at_both_ends(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        with recorded(transport) as client, a2a.agent("alice"):
            assert await client.ask("hello") == "you said hello"
            with pytest.raises(A2AError, match="I cannot"):
                await client.ask("fail")
            with pytest.raises(ValueError, match="no way"):
                await client.ask("lost")
    found = [event async for event in log.read("e1") if event.kind != "mark"]
    assert [(one.kind, one.from_id, one.to_id, one.channel, one.arrival) for one in found] == [
        ("sent", "alice", "bob", "a2a:bob:send_message", 0),
        ("received", "alice", "bob", "a2a:bob:send_message", 1),
        ("sent", "bob", "alice", "a2a:bob:message", 1),
        ("received", "bob", "alice", "a2a:bob:message", 1),
        ("sent", "alice", "bob", "a2a:bob:send_message", 1),
        ("received", "alice", "bob", "a2a:bob:send_message", 2),
        ("sent", "bob", "alice", "a2a:bob:error", 2),
        ("received", "bob", "alice", "a2a:bob:error", 2),
        ("sent", "alice", "bob", "a2a:bob:send_message", 2),
        ("failed", "alice", "bob", "a2a:bob:send_message", 2),
    ]
    assert {one.carrier for one in found} == {"call"}
    assert json.loads(found[3].payload)["text"] == "you said hello" and found[7].meta == {"error": "I cannot"}
    audit = await problems(log, await log.experiment("e1"))
    assert audit.counts == {"failed": {"not_sent": 1}} and not audit.notes


async def test_each_event_of_a_stream_is_recorded_and_one_that_its_reader_leaves_has_not_failed(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        with recorded(transport) as client:
            assert [event.WhichOneof("") async for event in client.stream("hello")] == ["task", "message"]
            with pytest.raises(A2AError), a2a.agent("alice"):
                _ = [event async for event in client.stream("fail")]
            left = client.stream("hello")
            await anext(left)
            await left.aclose()  # type: ignore[attr-defined]
    found = [event async for event in log.read("e1") if event.kind != "mark"]
    kinds = [(one.kind, str(one.channel).removeprefix("a2a:bob:"), one.from_id or one.to_id) for one in found]
    request, task = "send_message_streaming", [("sent", "task", "bob"), ("received", "task", "bob")]
    assert kinds[:6] == [
        *(("sent", request, "bob"), ("received", request, "bob"), *task),
        *(("sent", "message", "bob"), ("received", "message", "bob")),
    ]
    assert kinds[6:12] == [
        *(("sent", request, "alice"), ("received", request, "alice"), *task),
        *(("sent", "error", "bob"), ("received", "error", "bob")),
    ]
    assert kinds[12:] == [("sent", request, "bob"), ("received", request, "bob"), *task]
    assert not (await problems(log, await log.experiment("e1"))).counts


async def test_an_agent_that_is_a_server_is_the_sender_of_what_it_asks(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        with recorded(transport) as client:

            class Carol(Handler):
                async def on_message_send(self, params: Any, context: Any) -> Any:
                    return Message(text=await client.ask(params.message.text))

            with Patches() as patches:
                a2a.record_server(patches, a2a.Recording(transport, vars, CallContext), _own_init(Carol))
                carol = SimpleNamespace(name="carol")
                with a2a.agent("alice"):
                    assert await Client(carol, Way(Carol(carol))).ask("hello") == "you said hello"
    sent = [event async for event in log.read("e1", kinds=["sent"])]
    assert [(one.from_id, one.to_id) for one in sent] == [
        *(("alice", "carol"), ("carol", "bob"), ("bob", "carol"), ("carol", "alice"))
    ]


def _own_init(handler: Any) -> Any:
    """Give a class the methods of its base: an adapter changes what a class itself has."""
    handler.__init__, handler.on_message_send_stream = Handler.__init__, Handler.on_message_send_stream
    return handler


async def test_all_is_restored_and_an_error_of_the_recording_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    before = dict(vars(Client)), dict(vars(Handler))
    async with Transport("e1") as transport:
        with recorded(transport) as client:
            client._card = None
            for _ in range(2):
                assert await client.ask("hello") == "you said hello"
    assert caplog.text.count("a message of A2A was not recorded") == 1
    assert (dict(vars(Client)), dict(vars(Handler))) == before


@pytest.mark.nightly
async def test_agents_of_a2a_itself_in_three_processes_are_recorded_into_one_experiment(tmp_path: Path) -> None:
    python = python_with("a2a-sdk[http-server]==1.3.0", "uvicorn==0.38.0")
    store, program = str(tmp_path / "a2a.db"), str(Path(__file__).with_name("a2a_program.py"))
    environment = {**os.environ, "MESSAGER_STORE": store, "MESSAGER_EXP": "a2a"}
    environment["PYTHONPATH"] = str(ROOT)

    async def start(*words: Any) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(python, program, *map(str, words), env=environment, stdout=pipe)

    bobs, carols = free_port(), free_port()
    servers = [await start("bob", bobs), await start("carol", carols, bobs)]
    try:
        for server in servers:
            assert server.stdout is not None and await server.stdout.readline() == b"ready\n"
        said, _ = await (await start("alice", carols)).communicate()
        for server in servers:
            server.send_signal(signal.SIGINT)
    finally:
        for server in servers:
            await server.wait()
    assert said.decode().splitlines() == ["Bob says hello 1", "InternalError I cannot", "A2AClientError"]
    async with EventLog.open(store, create=False) as log:
        of = await log.experiment("a2a")
        found = [event async for event in log.read("a2a") if event.kind != "mark"]
        audit, recorders = await problems(log, of), await log.recorders(of)
    sent = [(one.from_id, one.to_id, str(one.channel).rpartition(":")[2]) for one in found if one.kind == "sent"]
    assert sent == [
        *(("alice", "carol", "send_message"), ("carol", "bob", "send_message_streaming"), ("bob", "carol", "task")),
        *[("bob", "carol", "artifact_update")] * 2,
        *(("bob", "carol", "status_update"), ("carol", "alice", "message")),
        *(("alice", "carol", "send_message"), ("carol", "bob", "send_message_streaming")),
        *(("bob", "carol", "error"), ("carol", "alice", "error"), ("alice", "nobody", "send_message")),
    ]
    assert [row.state for row in recorders] == ["ended"] * 3
    assert audit.counts == {"failed": {"not_sent": 1}} and len(found) == 2 * len(sent)


@pytest.mark.nightly
async def test_the_example_of_a2a_prints_who_said_what(tmp_path: Path) -> None:
    python = python_with("a2a-sdk[http-server]==1.3.0", "uvicorn==0.38.0")
    process = await asyncio.create_subprocess_exec(
        python,
        ROOT / "examples" / "a2a_agents.py",
        env={**os.environ, "MESSAGER_STORE": str(tmp_path / "a2a.db")},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    lines = [line.split("{")[0] for line in said.decode().splitlines() if line.startswith(("alice to", "bob to"))]
    assert lines == [
        *("alice to bob: a2a:bob:send_message ", "bob to alice: a2a:bob:message "),
        *("alice to bob: a2a:bob:send_message ", "bob to alice: a2a:bob:error "),
    ]
