"""Two agents of AgentScope 2 that talk through its message bus, and who said what to whom.

pip install 'agentscope[service]>=2'
python examples/agentscope_bus.py
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from typing import Any

STORE = os.environ.setdefault("MESSAGER_STORE", os.path.join(tempfile.mkdtemp(), "bus.db"))

from agentscope.app._bus_ops import deliver_to_inbox  # noqa: E402
from agentscope.app.message_bus import InMemoryMessageBus, MessageBusKeys  # noqa: E402
from agentscope.message import HintBlock  # noqa: E402

from messager import Transport  # noqa: E402
from messager.compat import agentscope_bus  # noqa: E402
from messager_store import EventLog  # noqa: E402


async def say(bus: Any, sender: str, other: str, text: str) -> None:
    hint = HintBlock(hint=text, source=json.dumps({"label": "team", "sublabel": sender}))
    payload = hint.model_dump(mode="json")
    await deliver_to_inbox(bus, user_id="u", session_id=other, agent_id=other, payload=payload)


async def main() -> None:
    async with Transport("bus") as transport:
        with agentscope_bus.install(transport):
            bus = InMemoryMessageBus()
            await say(bus, "alice", "bob", "Is the mill running?")
            for _, payload in await bus.queue_drain(MessageBusKeys.inbox("bob")):
                await say(bus, "bob", "alice", f"You asked: {payload['hint']} It is.")
            await bus.queue_drain(MessageBusKeys.inbox("alice"))
    async with EventLog.open(STORE, create=False) as log:
        async for event in log.read("bus"):
            if event.kind == "sent" and event.to_id is not None:
                print(f"{event.from_id} to {event.to_id}: {json.loads(event.payload)['hint']}")


asyncio.run(main())
