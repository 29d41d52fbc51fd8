"""`messager run` records programs of frameworks as they are: the real packages, without a line of this one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import MESSAGER, messager
from tests.support.frameworks import python_with

AUTOGEN = """
import asyncio
from dataclasses import dataclass
import autogen_core as core

@dataclass
class News:
    content: str

@core.default_subscription
class Reader(core.RoutedAgent):
    @core.message_handler
    async def read(self, message: News, ctx: core.MessageContext) -> News | None:
        return News("checked") if ctx.is_rpc else None

@core.default_subscription
class Reporter(Reader):
    @core.message_handler
    async def read(self, message: News, ctx: core.MessageContext) -> None:
        if ctx.sender is None:
            await self.send_message(message, core.AgentId("editor", "default"))

async def main():
    runtime = core.SingleThreadedAgentRuntime()
    await Reporter.register(runtime, "reporter", lambda: Reporter("writes"))
    await Reader.register(runtime, "editor", lambda: Reader("reads"))
    runtime.start()
    await runtime.publish_message(News("Fire"), core.DefaultTopicId())
    await runtime.stop_when_idle()

asyncio.run(main())
"""
AG2 = """
import asyncio
from ag2 import Agent
from ag2.knowledge import MemoryKnowledgeStore
from ag2.network import EV_TEXT, Hub
from ag2.testing import TestConfig

async def main():
    hub = await Hub.open(MemoryKnowledgeStore())
    agents = [await hub.register(Agent(name, config=TestConfig("Yes.", ""))) for name in ("alice", "bob")]
    channel = await agents[0].open(type="conversation", target="bob")
    await channel.send("Will it rain?")
    while sum(one.event_type == EV_TEXT for one in await hub.read_wal(channel.channel_id)) < 2:
        await asyncio.sleep(0.01)
    await hub.close()

asyncio.run(main())
"""
A2A = """
import asyncio, socket, uvicorn
from a2a.client import create_client
from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCard, AgentInterface, Role, SendMessageRequest
from starlette.applications import Starlette

class Bob(AgentExecutor):
    async def execute(self, context, queue):
        await queue.enqueue_event(new_text_message(f"you said {context.get_user_input()}"))

    cancel = execute

async def main():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = AgentInterface(protocol_binding="JSONRPC", url=f"http://127.0.0.1:{port}/")
    card = AgentCard(name="bob", supported_interfaces=[place])
    routes = create_jsonrpc_routes(DefaultRequestHandler(Bob(), InMemoryTaskStore(), card), "/")
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=port, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    client = await create_client(card)
    request = SendMessageRequest(message=new_text_message("hello", role=Role.ROLE_USER))
    print([event async for event in client.send_message(request)])
    server.should_exit = True
    await serving

asyncio.run(main())
"""
SYSTEMS = {
    "ag2": (AG2, ("ag2==1.2.1",), {"Will it rain?": (1, 1), "Yes.": (1, 1)}),
    "autogen": (AUTOGEN, ("autogen-core==0.7.5",), {"Fire": (2, 3), "checked": (1, 1)}),
    "a2a": (
        A2A,
        ("a2a-sdk[http-server]==1.3.0", "uvicorn==0.38.0"),
        {'"text": "hello"': (1, 1), '"text": "you said hello"': (1, 1)},
    ),
}
"""The program, what it needs, and how often each text is sent and received."""


@pytest.mark.nightly
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_program_of_a_framework_is_recorded_whole_and_without_problems(tmp_path: Path, name: str) -> None:
    program, requirements, texts = SYSTEMS[name]
    (tmp_path / "program.py").write_text(program)
    command = [*MESSAGER, "run", "--exp", "e1", "--", str(python_with(*requirements)), "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and " messages of e1 " in done.stderr, done.stderr
    lines = messager("events", "e1", "--json", cwd=tmp_path).stdout.splitlines()
    events = [json.loads(line) for line in lines]
    for text, expected in texts.items():
        found = tuple(
            sum(one["kind"] == kind and text in (one["payload"] or "") for one in events)
            for kind in ("sent", "received")
        )
        assert found == expected, (text, lines)
    assert messager("problems", "e1", cwd=tmp_path).returncode == 0
