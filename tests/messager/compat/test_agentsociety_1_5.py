"""Messages of AgentSociety 1.5 are recorded with what its interceptor refused, on the channels of 1.3."""

from __future__ import annotations

import asyncio
import os
import subprocess
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from messager import Transport
from messager.compat import agentsociety_1_5
from messager.compat.patching import Patches
from messager_store import EventLog, Recorder
from messager_store.queries.problems import problems
from tests.support import ROOT
from tests.support.frameworks import python_with


class Kind(Enum):
    CHAT = "agent-chat"
    USER = "user-chat"
    PLACE = "aoi-message-register"


class Message(SimpleNamespace):
    """Stand-in for its message."""

    def __init__(self, from_id: int | None, to_id: int, kind: Kind, **payload: Any) -> None:
        super().__init__(from_id=from_id, to_id=to_id, kind=kind, payload=payload, day=0, t=300.0)


class Queues:
    """Stand-in for its `Messager`."""

    exp_id = "e1"

    def __init__(self) -> None:
        self.pending: list[Message] = []
        self.ready: list[Message] = []

    async def send_message(self, message: Message) -> None:
        self.pending.append(message)

    async def fetch_pending_messages(self) -> list[Message]:
        pending, self.pending = self.pending, []
        return pending

    async def set_received_messages(self, messages: list[Message]) -> None:
        self.ready = messages

    async def fetch_received_messages(self) -> list[Message]:
        ready, self.ready = self.ready, []
        return ready


class Citizen:
    """Stand-in for its agents. It answers whatever it hears."""

    def __init__(self, number: int, messager: Queues) -> None:
        self.id, self.messager = number, messager

    async def _handle_agent_chat_with_storage(self, message: Message) -> None:
        if message.payload["content"] == "fail":
            raise ZeroDivisionError
        await self.messager.send_message(Message(self.id, message.from_id or 0, Kind.CHAT, content="thanks"))

    async def _handle_interview_with_storage(self, message: Message) -> str:
        return "fine"


class Engine:
    """Stand-in for its engine: the calls of a step."""

    exp_id = name = "e1"

    def __init__(self) -> None:
        self.config = {"agents": 2, "api_key": "hush"}
        self.messager = Queues()
        self.agents = {number: Citizen(number, self.messager) for number in (1, 2)}

    async def step(self) -> None:
        for message in await self.messager.fetch_received_messages():
            if message.kind is Kind.CHAT:
                await self.agents[message.to_id]._handle_agent_chat_with_storage(message)

    async def end_of_step(self, refused: list[Message], added: list[Message]) -> None:
        sent = await self.messager.fetch_pending_messages()
        await self.messager.set_received_messages([one for one in sent if one not in refused] + added)

    async def nothing(self, *given: Any) -> None: ...

    run = run_one_day = next_round = send_survey = send_intervention_message = nothing
    update_environment = update = send_interview_message = nothing


def installed(transport: Transport | None) -> Patches:
    patches = Patches()
    agentsociety_1_5.install(patches, transport, Queues, Citizen, Engine)
    return patches


async def test_messages_are_recorded_where_they_are_sent_refused_added_and_handed_to_an_agent(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        with installed(transport):
            engine = Engine()
            hello, rude = Message(1, 2, Kind.CHAT, content="hello"), Message(1, 2, Kind.CHAT, content="rude")
            for message in (hello, rude, Message(1, 77, Kind.PLACE, content="a party")):
                await engine.messager.send_message(message)
            await engine.end_of_step([rude], [Message(2, 1, Kind.CHAT, content="sent failed")])
            await engine.step()
            await engine.end_of_step([], [])
            assert await engine.agents[2]._handle_interview_with_storage(Message(None, 2, Kind.USER)) == "fine"
    found = [event async for event in log.read("e1")]
    agents = "exps:e1:agents:"
    assert [(one.kind, one.channel, one.from_id, one.to_id, one.arrival, one.carrier) for one in found[:-3]] == [
        ("sent", f"{agents}2:agent-chat", 1, 2, 0, "queue"),
        ("sent", f"{agents}2:agent-chat", 1, 2, 0, "queue"),
        ("sent", "exps:e1:aois:77", 1, 77, 0, "queue"),
        ("blocked", f"{agents}2:agent-chat", 1, 2, 0, "queue"),
        ("sent", f"{agents}1:agent-chat", 2, 1, 0, "queue"),
        ("mark", None, None, None, 0, None),
        ("received", "exps:e1:aois:77", 1, 77, 1, "queue"),
        ("received", f"{agents}2:agent-chat", 1, 2, 1, "queue"),
        ("sent", f"{agents}1:agent-chat", 2, 1, 1, "queue"),  # what it says has heard one message
        ("received", f"{agents}1:agent-chat", 2, 1, 1, "queue"),
        ("sent", f"{agents}2:agent-chat", 1, 2, 1, "queue"),
        ("sent", f"{agents}2:user-chat", None, 2, 1, "call"),
        ("received", f"{agents}2:user-chat", None, 2, 2, "call"),
        ("sent", "exps:e1:user-payback", 2, None, 2, "call"),
        ("received", "exps:e1:user-payback", 2, None, 2, "call"),
    ]
    assert (found[3].msg.content, found[3].meta) == ("rude", {"interceptor": "MessageInterceptor"})
    assert found[3].cause == (1, 2)
    assert (await log.experiment("e1")).meta["config"] == {"agents": 2}
    audit = await problems(log, await log.experiment("e1"))
    never = [one.event.msg.content for one in audit.details if one.kind == "never arrived" and one.event is not None]
    assert never == ["thanks", "thanks"] and set(audit.counts) == {"never arrived", "blocked"}


async def test_errors_of_its_agents_and_of_the_recording_leave_it_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    before = dict(vars(Queues)), dict(vars(Citizen)), dict(vars(Engine))
    async with Transport("e1") as transport:
        with installed(transport):
            engine = Engine()
            strange = SimpleNamespace(content="no message")
            await engine.messager.send_message(strange)  # type: ignore[arg-type]
            assert engine.messager.pending == [strange] and "was not recorded; later errors" in caplog.text
            with pytest.raises(ZeroDivisionError):
                await engine.agents[1]._handle_agent_chat_with_storage(Message(2, 1, Kind.CHAT, content="fail"))
    assert (dict(vars(Queues)), dict(vars(Citizen)), dict(vars(Engine))) == before


async def test_a_class_without_one_of_the_methods_is_refused_and_left_as_it_is() -> None:
    before = dict(vars(Queues))
    with pytest.raises(AttributeError, match="_handle_agent_chat"):
        agentsociety_1_5.install(Patches(), None, Queues, object, Engine)
    assert dict(vars(Queues)) == before


@pytest.mark.nightly
async def test_the_engine_and_the_interceptor_of_1_5_itself_are_recorded(tmp_path: Path) -> None:
    python, store = python_with("agentsociety==1.5.7"), str(tmp_path / "town.db")
    program = ROOT / "examples" / "agentsociety_1_5.py"
    done = await asyncio.to_thread(
        subprocess.run,
        [python, program],
        env={**os.environ, "MESSAGER_STORE": store, "MESSAGER_EXP": "town", "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith(("received", "blocked"))] == [
        *("blocked: 1 to 2: good day 0", "received: 2 to 1: Message sent failed"),
        *("received: 3 to 1: good day 0", "received: 2 to 3: good day 0"),
        *("blocked: 1 to 2: good day 300", "received: 2 to 1: Message sent failed"),
        *("received: 3 to 1: good day 300", "received: 2 to 3: good day 300"),
        *("blocked: 1 to 2: good day 600", "received: None to 2: How are you?", "received: 2 to None: I am well."),
    ]
    async with EventLog.open(store, create=False) as log:
        of = await log.experiment("town")
        found = [event async for event in log.read("town")]
        audit = await problems(log, of)
    assert {one.channel for one in found if one.from_id in (1, 2, 3) and one.to_id == 3} == {
        "exps:town:agents:3:agent-chat"
    }
    assert [one.mark for one in found if one.mark in ("step", "interview")] == ["step"] * 3 + ["interview"]
    assert of.name == "a town" and of.meta["config"]["llm"][0]["model"] == "m"
    last = [one.event.msg.content for one in audit.details if one.kind == "never arrived" and one.event is not None]
    assert last == ["good day 600", "good day 600", "Message sent failed"]  # nobody hears what is said in the last step
    assert set(audit.counts) == {"never arrived", "blocked"}
