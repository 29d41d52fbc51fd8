"""Alice asks Bob over A2A: he answers her first request, and fails at the second.

pip install 'a2a-sdk[http-server]==1.3.0' uvicorn PATH     # PATH: the path of this checkout
MESSAGER_STORE=a2a.db python examples/a2a_agents.py
"""

import asyncio
import os
from contextlib import suppress

import uvicorn
from a2a.client import create_client
from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCard, AgentInterface, Role, SendMessageRequest
from starlette.applications import Starlette

from messager.compat import a2a
from messager.testing import free_port
from messager.transport import of_process
from messager_store import EventLog


class Bob(AgentExecutor):  # type: ignore[misc]
    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        if (text := context.get_user_input()) == "fail":
            raise ValueError("I cannot")
        await queue.enqueue_event(new_text_message(f"you said {text}"))

    cancel = execute


async def main() -> None:
    a2a.install()
    http = AgentInterface(protocol_binding="JSONRPC", url=f"http://127.0.0.1:{(port := free_port())}/")
    card = AgentCard(name="bob", supported_interfaces=[http])
    handler = DefaultRequestHandler(Bob(), InMemoryTaskStore(), card)
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=create_jsonrpc_routes(handler, "/")), port=port))
    serving = asyncio.create_task(server.serve())
    client = await create_client(card)
    while not server.started:
        await asyncio.sleep(0.01)
    for text in ("hello", "fail"):
        with suppress(Exception), a2a.agent("alice"):
            message = new_text_message(text, role=Role.ROLE_USER)
            _ = [event async for event in client.send_message(SendMessageRequest(message=message))]
    server.should_exit = True
    await serving
    of_process().stop()
    async with EventLog.open(os.environ["MESSAGER_STORE"], create=False) as log:
        async for event in log.read(of_process().exp_id, kinds=["received"]):
            print(f"{event.from_id} to {event.to_id}: {event.channel} {event.text}")


asyncio.run(main())
