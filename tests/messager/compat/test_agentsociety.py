"""The original driver, groups and agents of AgentSociety 1.3.7 use this Messager and are recorded."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import metadata
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from messager.compat import agentsociety as compat
from messager.record import CLOSED, SUBSCRIBED, is_own
from messager.testing import RedisServer
from messager_store import EventLog
from tests.support import agentsociety_1_3

WORKFLOW = [
    {"type": "step", "steps": 2},
    {"type": "survey", "target_agent": [5], "survey": None},
    {"type": "interview", "target_agent": [5, 6], "interview_message": "How are you?"},
    {"type": "message", "target_agent": [7], "intervene_message": "It rains."},
    {"type": "environment", "key": "weather", "value": "rain"},
    {"type": "next_round"},
    {"type": "function", "func": None, "description": "The bridge is closed."},
]


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with agentsociety_1_3.society(monkeypatch) as module:
        yield module
    compat.uninstall()


def workflow() -> list[dict[str, Any]]:
    """Workflow with every kind of stage."""
    from agentsociety.survey.models import Survey

    survey = Survey(UUID(int=1), "The bridge", "Should it be closed?", [])
    given = {"survey": {"survey": survey}, "function": {"func": close_the_bridge}}
    return [{**step, **given.get(step["type"], {})} for step in WORKFLOW]


async def close_the_bridge(society: Any, key: str = "bridge") -> None:
    await society.update_environment(key, "closed")


@asynccontextmanager
async def living(simulation: Any, config: Any) -> AsyncIterator[Any]:
    society = simulation.AgentSociety(config)
    await society.init()
    try:
        yield society
    finally:
        await society.close()


async def test_its_driver_its_groups_and_its_agents_are_in_one_experiment_with_marks_and_meta(
    simulation: Any, redis: RedisServer, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_STORE", store)
    with compat.install():
        async with living(simulation, agentsociety_1_3.config(redis.port, workflow())) as society:
            await society.run()
    async with EventLog.open(store, create=False) as log:
        of = await log.experiment("a town")
        recorders = await log.recorders(of)
        events = [event async for event in log.read(of.exp_id)]
    assert of.exp_id == society.exp_id
    assert [row.state for row in recorders] == ["ended"] * 3  # the driver and two groups

    channels = f"exps:{of.exp_id}:"
    chats = [event for event in events if event.kind == "sent" and str(event.channel).endswith(":agent-chat")]
    assert sorted((event.from_id, event.to_id) for event in chats) == [(5, 6)] * 2 + [(6, 7)] * 2 + [(7, 5)] * 2
    assert {event.text for event in chats} == {f"h\u00e9 from {agent}" for agent in (5, 6, 7)}
    surveys = [event for event in events if event.channel == f"{channels}agents:5:user-survey"]
    interviews = [event for event in events if str(event.channel).endswith(":user-chat") and event.kind == "sent"]
    paybacks = [event for event in events if event.channel == f"{channels}user-payback" and event.kind == "received"]
    assert [event.kind for event in surveys] == ["sent", "received"]
    assert (len(interviews), len(paybacks)) == (2, 3)
    sent = {event.payload for event in events if event.kind == "sent"}
    assert {event.payload for event in events if event.kind == "received"} == sent

    subscribed = [event for event in events if event.mark == SUBSCRIBED]
    patterns = [(event.meta or {})["fields"]["patterns"] for event in subscribed]
    agents = [[f"{channels}agents:{agent}:*" for agent in group] for group in ([1, 2, 3, 4], [5, 6, 7])]
    assert sorted(patterns) == sorted([[f"{channels}user-payback"], *agents])
    assert len({event.messager for event in subscribed}) == 3  # the driver and two groups
    heard: dict[str | None, list[int | None]] = {}
    for event in events:
        if event.kind == "received":
            heard.setdefault(event.messager, []).append(event.arrival)
    assert len(heard) == 2  # the driver, and the group of the citizens
    assert all(numbers == [*range(1, len(numbers) + 1)] for numbers in heard.values())
    assert len({event.messager for event in events if event.mark == CLOSED}) == 3
    marks = [event.meta or {} for event in events if event.mark is not None and not is_own(event.mark)]
    stages = ["step", "step", "survey", "interview", "intervention", "environment", "next_round"]
    stages += ["function", "environment", "end"]
    assert [mark["name"] for mark in marks] == stages
    assert [mark["fields"] for mark in marks if mark["name"] == "step"] == [
        {"number": 0, "day": 0, "t": 1},
        {"number": 1, "day": 0, "t": 301},
    ]
    assert marks[3]["fields"] == {"day": 0, "t": 601, "agent_ids": [5, 6]}
    assert marks[5]["fields"] == {"day": 0, "t": 601, "key": "weather", "value": "rain"}
    said = "The bridge is closed."
    assert marks[7]["fields"] == {"day": 0, "t": 602, "function": "close_the_bridge", "description": said}

    kept = of.meta["config"]
    assert "hush" not in json.dumps(of.meta) and "hush" not in repr([event.meta for event in events])
    assert kept["exp"]["name"] == "a town" and kept["llm"][0]["model"] == "m"
    assert kept["llm"][0]["base_url"] == "https://***@h/v1" and kept["env"]["redis"]["port"] == redis.port
    assert [step["type"] for step in kept["exp"]["workflow"]] == [step["type"] for step in WORKFLOW]
    assert kept["exp"]["workflow"][1]["survey"]["title"] == "The bridge"


async def test_an_interceptor_that_agentsociety_left_off_stays_off(simulation: Any, redis: RedisServer) -> None:
    from agentsociety.message.message_interceptor import MessageBlockBase, MessageBlockListenerBase

    asked: list[Any] = []

    class Refuses(MessageBlockBase):  # type: ignore[misc]
        async def forward(self, **given: Any) -> tuple[bool, str]:
            asked.append(given)
            return False, "no"

    class Listens(MessageBlockListenerBase):  # type: ignore[misc]
        async def forward(self, msg: Any) -> None: ...

    with compat.install():
        config = agentsociety_1_3.config(
            redis.port, WORKFLOW[:1], message_intercept={"blocks": [Refuses("b")], "listener": Listens}
        )
        async with living(simulation, config) as society:
            logs = await society.step()
            assert society.messager.message_interceptor is None
    assert not asked and [entry["sent"] for entry in logs.redis_log] == [True] * 3


async def test_one_that_is_given_to_a_messager_is_asked_where_both_ids_are_given(
    simulation: Any, redis: RedisServer
) -> None:
    from agentsociety.message import RedisConfig

    asked: list[Any] = []

    class Interceptor:
        async def forward(self, *given: Any) -> bool:
            asked.append(given)
            return False

    with compat.install():
        from agentsociety.message import Messager as Given

        config = RedisConfig(server="127.0.0.1", port=redis.port)
        async with Given(config, "e1", agentsociety_1_3.Handle(Interceptor())) as messager:
            await messager.send_message("c", {"n": 1}, 0, 0)
            await messager.send_message("c", {"n": 2}, from_id=5)
            await messager.send_message("c", {"n": 3})
    assert asked == [(0, 0, '{"n": 1}')]
    assert [entry["sent"] for entry in messager.get_log_list()] == [False, True, True]


async def test_a_function_of_a_workflow_is_as_it_was_after_the_run_and_once_all_is_undone(
    simulation: Any, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Any] = []

    async def undoes(society: Any) -> None:
        called.append(society.config.exp.workflow[0].model_dump()["func"])
        compat.uninstall()

    async def fails(society: Any) -> None:
        called.append(society)
        raise ZeroDivisionError

    functions = [functools.partial(undoes), fails]
    marked: list[str] = []
    monkeypatch.setattr(compat.Messager, "mark", lambda self, name, **fields: marked.append(fields["function"]))
    compat.install()
    workflow = [{"type": "function", "func": function} for function in functions]
    async with living(simulation, agentsociety_1_3.config(redis.port, workflow)) as society:
        with pytest.raises(RuntimeError):
            await society.run()
        assert called == ["undoes", society] and marked == ["undoes"]
        assert [stage.func for stage in society.config.exp.workflow] == functions


def held() -> dict[tuple[str, str], Any]:
    """Return the values of the names in AgentSociety's modules that `install` changes."""
    found = {}
    for name, module in sys.modules.items():
        if name.partition(".")[0] == "agentsociety":
            found |= {(name, key): value for key, value in vars(module).items() if key == "Messager"}
            if name == "agentsociety.simulation.agentsociety":
                found |= {(name, key): value for key, value in vars(module.AgentSociety).items() if key[:2] != "__"}
                found[name, "__init__"] = module.AgentSociety.__init__
    return found


def test_everything_is_undone_also_in_modules_that_were_imported_meanwhile(simulation: Any) -> None:
    before = held()
    assert len([key for key in before if key[1] == "Messager"]) == 5
    original = before["agentsociety.message.messager", "Messager"]
    installed = compat.install()
    assert compat.install() is installed
    assert {value for key, value in held().items() if key[1] == "Messager"} == {compat.SocietyMessager}
    later = sys.modules["agentsociety.later"] = ModuleType("agentsociety.later")
    exec("from agentsociety.message import Messager", vars(later))
    assert vars(later)["Messager"] is compat.SocietyMessager
    installed.uninstall()
    assert {key: value for key, value in held().items() if key in before} == before
    assert vars(later)["Messager"] is original
    compat.uninstall()  # nothing is left to undo
    assert simulation.AgentSociety.step is before["agentsociety.simulation.agentsociety", "step"]


def test_it_is_undone_where_the_block_raises(simulation: Any) -> None:
    before = held()
    with pytest.raises(ZeroDivisionError), compat.install():
        raise ZeroDivisionError
    assert held() == before


def test_without_agentsociety_one_line_says_what_to_install() -> None:
    with pytest.raises(compat.NoAgentSociety, match=r"No module named 'agentsociety'.*'agentsociety>=1\.3,<1\.4'"):
        compat.install()


def test_a_missing_dependency_of_agentsociety_is_named_with_how_to_install_it(
    simulation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith(("agentsociety.", "pycityproto")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pycityproto", None)
    with pytest.raises(compat.NoAgentSociety, match=r"needs the module pycityproto.*`pip install pycityproto`"):
        compat.install()


def test_another_version_is_refused(simulation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: "2.0.1")
    with pytest.raises(compat.NoAgentSociety, match=r"this is AgentSociety 2\.0\.1\. Install 1\.3 or 1\.5"):
        compat.install()
