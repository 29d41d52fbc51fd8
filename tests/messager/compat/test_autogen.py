"""The agents of AutoGen core are recorded: topics, direct messages, answers, and what intervention handlers do."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from messager import Transport
from messager.compat import autogen
from messager_store import EventLog, Recorder
from messager_store.log.event import Event
from messager_store.queries.problems import problems
from tests.support import autogen_0_7
from tests.support.autogen_0_7 import (
    AgentId,
    BaseAgent,
    DropMessage,
    InterventionHandler,
    MessageContext,
    MessageDroppedException,
    SingleThreadedAgentRuntime,
    WorkerRuntime,
)
from tests.support.frameworks import run_example

CRITIC = AgentId("critic")
Row = tuple[str, str | None, str | None, str, str, int | None]


@dataclass
class Say:
    content: str
    when: object = None


class Writer(BaseAgent):
    async def handle(self, message: Say, ctx: MessageContext) -> None:
        if ctx.sender is None:
            answer = await self.send_message(Say(f"check {message.content}"), CRITIC)
            await self.publish_message(Say(f"{message.content}: {answer.content}"), "news/default")


class Critic(BaseAgent):
    async def handle(self, message: Say, ctx: MessageContext) -> Say | None:
        if message.content == "bad":
            raise ValueError("so bad")
        return Say("ok", when=ctx.sender) if ctx.is_rpc else None


@pytest.fixture(autouse=True)
def core(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in autogen_0_7.modules().items():
        monkeypatch.setitem(sys.modules, name, module)


@asynccontextmanager
async def recording(log: EventLog) -> AsyncIterator[Transport]:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        with autogen.install(transport):
            yield transport


def society(runtime: Any) -> Any:
    Writer("writer", runtime), Critic("critic", runtime)
    return runtime


async def rows(log: EventLog) -> list[Row]:
    return [row(one) async for one in log.read("e1") if one.mark is None]


def row(one: Event) -> Row:
    channel = str(one.channel).removeprefix("autogen:")
    return one.kind, one.from_id, one.to_id, channel, one.text, one.arrival


async def test_topics_calls_and_answers_are_recorded_whole_and_audited_without_false_reports(log: EventLog) -> None:
    async with recording(log):
        runtime = society(SingleThreadedAgentRuntime())
        await runtime.publish_message(Say("a poem"), "news/default")
        await runtime.stop_when_idle()
        assert (await runtime.send_message(Say("and?"), CRITIC)).content == "ok"
    news, call, reply = "topic:news/default:Say", "agent:critic/default:Say", "reply:critic/default:Say"
    writer, critic = "writer/default", "critic/default"
    assert await rows(log) == [
        ("sent", None, None, news, "a poem", 0),
        ("received", None, writer, news, "a poem", 1),
        ("sent", writer, critic, call, "check a poem", 1),
        ("received", writer, critic, call, "check a poem", 1),
        ("sent", critic, writer, reply, "ok", 1),
        ("received", critic, writer, reply, "ok", 2),
        ("sent", writer, None, news, "a poem: ok", 2),
        ("received", None, critic, news, "a poem", 2),
        ("received", writer, critic, news, "a poem: ok", 3),
        ("sent", None, critic, call, "and?", 0),
        ("received", None, critic, call, "and?", 4),
        ("sent", critic, None, reply, "ok", 4),
        ("received", critic, None, reply, "ok", 1),
    ]
    found = [one async for one in log.read("e1") if one.mark is None]
    assert {(str(one.channel)[8:13], one.carrier) for one in found} == {
        ("topic", None),
        ("agent", "call"),
        ("reply", "call"),
    }
    answered = {"from": critic, "to": writer, "content": "ok", "when": {"type": "writer", "key": "default"}}
    assert json.loads(found[4].payload) == answered
    ids = [(one.meta or {})["message_id"] for one in found]
    assert ids[0] == ids[1] == ids[7] and len({*ids[2:6]}) == 1 and len(set(ids)) == 4
    report = await problems(log, await log.experiment("e1"))
    assert not report.counts and not report.notes


async def test_a_sender_and_others_that_say_the_same_on_a_topic_are_told_apart(log: EventLog) -> None:
    async with recording(log):
        runtime = SingleThreadedAgentRuntime()
        for name in ("ann", "ben"):
            await BaseAgent(name, runtime).publish_message(Say("hello"), "room/default")
        await runtime.stop_when_idle()
    assert not (await problems(log, await log.experiment("e1"))).counts


async def test_errors_are_answers_or_failures_and_pass_through(log: EventLog) -> None:
    async with recording(log):
        runtime = society(SingleThreadedAgentRuntime())
        with pytest.raises(ValueError, match="so bad"):
            await runtime.send_message(Say("bad"), CRITIC)
        with pytest.raises(LookupError, match="Recipient"):
            await runtime.send_message(Say("hello"), AgentId("nobody"))
    assert [one[:4] for one in await rows(log)] == [
        ("sent", None, "critic/default", "agent:critic/default:Say"),
        ("received", None, "critic/default", "agent:critic/default:Say"),
        ("sent", "critic/default", None, "reply:critic/default:ValueError"),
        ("received", "critic/default", None, "reply:critic/default:ValueError"),
        ("sent", None, "nobody/default", "agent:nobody/default:Say"),
        ("failed", None, "nobody/default", "agent:nobody/default:Say"),
    ]
    report = await problems(log, await log.experiment("e1"))
    assert [one.text for one in report.details] == ["it was not sent: Recipient not found"]


class Guard(InterventionHandler):
    """Drops what is rude, and replaces the rest."""

    async def on_send(self, message: Say, **given: Any) -> Any:
        return DropMessage if message.content == "rude" else Say(message.content.upper())

    async def on_publish(self, message: Say, **given: Any) -> Any:
        if message.content == "rude":
            raise MessageDroppedException("it is rude")
        return Say(message.content.upper())

    async def on_response(self, message: Say, *, sender: Any, recipient: Any) -> Any:
        return DropMessage if recipient == AgentId("dan") else Say("fine")


async def test_what_intervention_handlers_drop_or_replace_is_logged_as_blocked(log: EventLog) -> None:
    async with recording(log):
        handlers = [InterventionHandler(), Guard()]
        runtime = society(SingleThreadedAgentRuntime(intervention_handlers=handlers))
        assert [type(one) for one in handlers] == [one.__class__ for one in runtime.intervention_handlers]
        dan = BaseAgent("dan", runtime)
        with pytest.raises(MessageDroppedException):
            await dan.send_message(Say("rude"), CRITIC)
        with pytest.raises(MessageDroppedException):
            await dan.send_message(Say("one"), CRITIC)
        assert (await runtime.send_message(Say("two"), CRITIC)).content == "fine"
        await dan.publish_message(Say("rude"), "news/default")
        await dan.publish_message(Say("three"), "news/default")
        await runtime.stop_when_idle()
    refused = [(one[3][:5], one[4]) for one in await rows(log) if one[0] == "blocked"]
    assert refused == [
        ("agent", "rude"),
        ("agent", "one"),
        ("reply", "ok"),
        ("agent", "two"),
        ("reply", "ok"),
        ("topic", "rude"),
        ("topic", "three"),
    ]
    report = await problems(log, await log.experiment("e1"))
    assert set(report.counts) == {"blocked"}
    assert [one.text for one in report.details if one.event is not None and one.event.text in ("rude", "three")] == [
        "InterventionHandler refused it: MessageDroppedException",
        "Guard refused it: it is rude",
        "Guard refused it: replaced",
    ]


async def test_agents_of_any_other_runtime_are_recorded(log: EventLog) -> None:
    async with recording(log):
        runtime = society(WorkerRuntime())
        await runtime.agents[AgentId("writer")].publish_message(Say("hello"), "news/default")
        await runtime.stop_when_idle()
        await runtime.agents[AgentId("writer")].send_message(Say("hello"), CRITIC, message_id="m1")
    assert [one[0] for one in await rows(log)] == ["sent", "received", "sent", "received", "sent", "received"]
    assert not (await problems(log, await log.experiment("e1"))).counts


async def test_errors_of_the_log_do_not_reach_the_agents(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = Transport("e1")
    monkeypatch.setattr(transport, "endpoint", lambda agent: 1 / 0)
    with autogen.install(transport), caplog.at_level(logging.ERROR):
        runtime = society(SingleThreadedAgentRuntime(intervention_handlers=[InterventionHandler()]))
        await runtime.publish_message(Say("a poem"), "news/default")
        await runtime.stop_when_idle()
        assert (await runtime.send_message(Say("and?"), CRITIC)).content == "ok"
    assert [record.getMessage() for record in caplog.records] == [
        "a message of AutoGen was not recorded; later errors like this are not logged"
    ]


def methods() -> Iterator[Any]:
    for kind, names in (
        (BaseAgent, ("on_message", "send_message", "publish_message")),
        (SingleThreadedAgentRuntime, ("__init__", "send_message", "publish_message")),
    ):
        yield from (vars(kind)[name] for name in names)


def test_it_is_installed_once_and_restores_autogen() -> None:
    before = list(methods())
    first = autogen.install()
    installed = list(methods())
    assert not {*before} & {*installed} and autogen.install() is first and list(methods()) == installed
    first.uninstall()
    assert list(methods()) == before


@pytest.mark.nightly
async def test_a_newsroom_of_the_real_autogen_is_recorded(tmp_path: Path) -> None:
    lines = run_example("autogen_newsroom", tmp_path / "s.db", "autogen-core==0.7.5")
    assert sorted(lines) == [
        "editor/default -> reporter/default: 16 characters",
        "reporter/default -> editor/default: Fire at the mill",
        "reporter/default -> editor/default: Fire at the mill! (16 characters)",
        "reporter/default -> intern/default: Fire at the mill! (16 characters)",
        "the program -> editor/default: Fire at the mill",
        "the program -> intern/default: Fire at the mill",
        "the program -> reporter/default: Fire at the mill",
    ]
    async with EventLog.open(str(tmp_path / "s.db"), create=False) as log:
        carriers = {str(one.channel): one.carrier async for one in log.read("e1") if one.kind == "sent"}
        report = await problems(log, await log.experiment("e1"))
    assert carriers == {
        "autogen:topic:default/default:News": None,
        "autogen:agent:editor/default:News": "call",
        "autogen:reply:editor/default:News": "call",
    }
    assert not report.counts and not report.notes
