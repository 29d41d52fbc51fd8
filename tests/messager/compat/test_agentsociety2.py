"""Messages in a social space of agentsociety2, and what agents ask it, are recorded at both ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from messager import Transport
from messager.compat import agentsociety2
from messager.compat.agentsociety2 import Recording
from messager.compat.patching import Patches
from messager_store import EventLog, Recorder
from messager_store.queries.problems import problems
from tests.support import ROOT
from tests.support.frameworks import python_with


class Space:
    """Stand-in for its social space. Ids become numbers, as in its models."""

    groups: dict[int, list[int]] = {7: [1, 2]}  # noqa: RUF012
    _registered_tools: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.mailboxes: dict[Any, list[dict[str, Any]]] = defaultdict(list)

    async def send_message(self, sender_id: int, receiver_id: int, content: str) -> Any:
        if content == "fail":
            raise ZeroDivisionError
        self.mailboxes[receiver_id].append({"sender_id": int(sender_id), "content": content})
        return SimpleNamespace(sender_id=sender_id)

    async def send_group_message(self, sender_id: int, group_id: int, content: str) -> Any:
        members = self.groups.get(group_id, [])
        for member in members:
            self.mailboxes[member].append({"sender_id": sender_id, "content": content, "group_id": group_id})
        return SimpleNamespace(recipient_count=len(members))

    async def receive_messages(self, agent_id: int) -> Any:
        return SimpleNamespace(agent_id=agent_id, messages=self.mailboxes.pop(agent_id, []))


for _name in ("send_message", "send_group_message", "receive_messages"):
    Space._registered_tools[_name] = SimpleNamespace(fn=getattr(Space, _name))


class Router:
    """Stand-in for a router: calls the tool of an instruction, such as `send_message 1 2 hello`."""

    def __init__(self, space: Space) -> None:
        self.space = space

    async def ask(self, ctx: dict[str, Any], instruction: str, readonly: bool = False) -> tuple[dict[str, Any], str]:
        name, *given = instruction.split()
        tool = Space._registered_tools[name].fn
        await tool(self.space, *(int(one) if one.isdecimal() else one for one in given))
        return {}, "done"


class Proxy(Router):
    """Stand-in for what asks a router in another process."""

    async def ask(self, ctx: dict[str, Any], instruction: str, readonly: bool = False) -> tuple[dict[str, Any], str]:
        return await Router.ask(self, ctx, instruction, readonly)


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a Ray actor, as far as Ray says."""
    context = SimpleNamespace(get_actor_id=lambda: "an id")
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", ray)


def recorded(transport: Transport, *, proxy: bool = False) -> Patches:
    patches, recording = Patches(), Recording(transport)
    agentsociety2.record_space(patches, recording, Space)
    agentsociety2.record_asks(patches, recording, Router, answers=True)
    if proxy:
        agentsociety2.record_asks(patches, recording, Proxy, answers=False)
    return patches


async def test_messages_of_a_space_are_recorded_when_sent_and_when_a_mailbox_is_emptied(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        with recorded(transport):
            space = Space()
            await space.send_message(1, receiver_id=2, content="hello")
            await space.send_message("1", 2, "again")  # type: ignore[arg-type]  # as a model wrote it
            await Space._registered_tools["send_group_message"].fn(space, 2, 7, "hi")
            await space.send_group_message(2, 8, "nobody")
            with pytest.raises(ZeroDivisionError):
                await space.send_message(1, 2, "fail")
            for agent in (2, 1):
                await space.receive_messages(agent_id=agent)
    found = [event async for event in log.read("e1") if event.kind != "mark"]
    assert [(one.kind, one.channel, one.from_id, one.to_id, one.msg.content, one.arrival) for one in found] == [
        ("sent", "social:agents:2", 1, 2, "hello", 0),
        ("sent", "social:agents:2", 1, 2, "again", 0),
        ("sent", "social:groups:7", 2, None, "hi", 0),
        ("sent", "social:groups:8", 2, None, "nobody", 0),
        ("failed", "social:groups:8", 2, None, "nobody", 0),
        ("sent", "social:agents:2", 1, 2, "fail", 0),
        ("failed", "social:agents:2", 1, 2, "fail", 0),
        ("received", "social:agents:2", 1, 2, "hello", 1),
        ("received", "social:agents:2", 1, 2, "again", 2),
        ("received", "social:groups:7", 2, None, "hi", 3),
        ("received", "social:groups:7", 2, None, "hi", 1),
    ]
    assert {one.carrier for one in found} == {"queue"}
    audit = await problems(log, await log.experiment("e1"))
    assert audit.counts == {"failed": {"not_sent": 1, "unknown": 1}}


ASKED = [
    ("sent", "env:1:ask", 1, "env"),
    ("received", "env:1:ask", 1, "env"),
    ("sent", "social:agents:2", 1, 2),
    ("sent", "env:1:answer", "env", 1),
    ("received", "env:1:answer", "env", 1),
]


async def test_asking_a_router_in_this_process_is_recorded_at_both_ends(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        with recorded(transport):
            assert await Router(Space()).ask({"agent_id": 1}, "send_message 1 2 hello") == ({}, "done")
    found = [event async for event in log.read("e1") if event.kind != "mark"]
    assert [(one.kind, one.channel, one.from_id, one.to_id) for one in found] == ASKED
    assert [one.carrier for one in found] == ["call", "call", "queue", "call", "call"]


async def test_asking_a_router_in_an_actor_is_recorded_once_at_each_end(log: EventLog, actor: None) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        with recorded(transport, proxy=True):  # both are in this process, so the agent and the environment are too
            await Proxy(Space()).ask({"agent_id": 1}, instruction="send_message 1 2 hello")
            with pytest.raises(KeyError):
                await Proxy(Space()).ask({"id": 2}, "unknown")
    found = [event async for event in log.read("e1") if event.kind != "mark"]
    assert [(one.kind, one.channel, one.from_id, one.to_id) for one in found[:5]] == ASKED
    assert [(one.kind, one.channel) for one in found[5:]] == [
        ("sent", "env:2:ask"),
        ("received", "env:2:ask"),
        ("failed", "env:2:ask"),
    ]


async def test_all_is_restored_and_an_error_of_the_recording_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    before = dict(vars(Space)), dict(vars(Router)), [tool.fn for tool in Space._registered_tools.values()]
    async with Transport("e1") as transport:
        with recorded(transport):
            for _ in range(2):
                assert await Router(Space()).ask({"agent_id": 1}, "receive_messages 2") == ({}, "done")
                assert await Router(Space()).ask(None, "receive_messages 2")  # type: ignore[arg-type]
    assert caplog.text.count("a message of agentsociety2 was not recorded") == 1
    assert (dict(vars(Space)), dict(vars(Router)), [t.fn for t in Space._registered_tools.values()]) == before


def test_workers_of_ray_get_the_experiment_and_the_adapter() -> None:
    class Config:
        def __init__(self) -> None:
            self.runtime_env: dict[str, Any] = {"env_vars": {"A": "1"}}

        def set_runtime_env(self, runtime_env: dict[str, Any]) -> None:
            self.runtime_env = runtime_env

    def _build_ray_job_config() -> Config:
        return Config()

    dispatcher = SimpleNamespace(_build_ray_job_config=_build_ray_job_config)
    with Patches() as patches:
        agentsociety2.reach_workers(patches, Recording(Transport("e1")), dispatcher)
        assert dispatcher._build_ray_job_config().runtime_env == {
            "worker_process_setup_hook": "messager.compat.agentsociety2.set_up_worker",
            "env_vars": {"A": "1", "MESSAGER_EXP": "e1"},
        }


@pytest.mark.nightly
async def test_agents_of_agentsociety2_itself_that_talk_through_an_actor_of_ray_are_recorded(tmp_path: Path) -> None:
    python, store = python_with("agentsociety2==2.9.3"), str(tmp_path / "space.db")
    done = await asyncio.to_thread(
        subprocess.run,
        [python, ROOT / "examples" / "agentsociety2_space.py"],
        env={**os.environ, "MESSAGER_STORE": store, "MESSAGER_RUN": "space", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith(("sent", "received"))] == [
        *("sent: 1 to 2: hello", "received: 1 to 2: hello"),
        *("sent: 2 to a group: hi", "received: 2 to a group: hi"),
    ]
    async with EventLog.open(store, create=False) as log:
        of = await log.experiment("space")
        found = [event async for event in log.read("space", channels=["env:*"])]
        audit, recorders = await problems(log, of), await log.recorders(of)
    assert len([one for one in found if one.kind == "sent"]) == 10  # five questions and their answers
    assert len(recorders) == 2 and not audit.number("never arrived") and not audit.number("failed")
