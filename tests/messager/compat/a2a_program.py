"""A process of three A2A agents, run in an environment with a2a-sdk and uvicorn.

`bob PORT` and `carol PORT BOBS_PORT` are servers, which say `ready`; `alice CAROLS_PORT` is a client. Bob streams the
steps of a task, Carol answers with what Bob has said last.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvicorn
from a2a.client import ClientConfig, create_client
from a2a.helpers import get_stream_response_text, new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, Part, Role, SendMessageRequest
from starlette.applications import Starlette

from messager.compat import a2a


def card(name: str, port: int) -> Any:
    http = AgentInterface(protocol_binding="JSONRPC", url=f"http://127.0.0.1:{port}/", protocol_version="1.0")
    return AgentCard(name=name, capabilities=AgentCapabilities(streaming=True), supported_interfaces=[http])


async def ask(agent: Any, text: str, streaming: bool) -> str:
    client = await create_client(agent, ClientConfig(streaming=streaming))
    request = SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))
    texts = [get_stream_response_text(event) async for event in client.send_message(request)]
    await client.close()
    return next((one for one in reversed(texts) if one), "")


class Bob(AgentExecutor):  # type: ignore[misc]
    async def execute(self, context: Any, queue: Any) -> None:
        if context.get_user_input() == "fail":
            raise ValueError("I cannot")
        await queue.enqueue_event(new_task_from_user_message(context.message))
        task = TaskUpdater(queue, context.task_id, context.context_id)
        for number in range(2):
            await task.add_artifact([Part(text=f"{context.get_user_input()} {number}")])
        await task.complete()

    cancel = execute


class Carol(AgentExecutor):  # type: ignore[misc]
    def __init__(self, bob: Any) -> None:
        self._bob = bob

    async def execute(self, context: Any, queue: Any) -> None:
        said = await ask(self._bob, context.get_user_input(), True)
        await queue.enqueue_event(new_text_message(f"Bob says {said}"))

    cancel = execute


async def serve(executor: Any, agent: Any) -> None:
    port = int(agent.supported_interfaces[0].url.strip("/").rpartition(":")[2])
    routes = create_jsonrpc_routes(DefaultRequestHandler(executor, InMemoryTaskStore(), agent), "/")
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=port, log_level="critical"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await serving


async def alice(carol: Any) -> None:
    with a2a.agent("alice"):
        print(await ask(carol, "hello", False))
        try:
            await ask(carol, "fail", False)
        except Exception as error:
            print(type(error).__name__, error)
        try:
            await ask(card("nobody", 1), "hello", False)
        except Exception as error:
            print(type(error).__name__)


if __name__ == "__main__":
    a2a.install()
    name, *ports = sys.argv[1:]
    if name == "bob":
        asyncio.run(serve(Bob(), card("bob", int(ports[0]))))
    elif name == "carol":
        asyncio.run(serve(Carol(card("bob", int(ports[1]))), card("carol", int(ports[0]))))
    else:
        asyncio.run(alice(card("carol", int(ports[0]))))
