"""A discussion of three agents of AG2, on its network, with models that say given lines.

    MESSAGER_STORE=messager.db python examples/ag2_panel.py monday

prints who said what to whom in the experiment `monday`. It needs AG2 1.2.
"""

import asyncio
import os
import sys
from typing import Any

from ag2 import Agent
from ag2.knowledge import MemoryKnowledgeStore
from ag2.network import EV_TEXT, Hub
from ag2.testing import TestClient, TestConfig

from messager import Transport
from messager.compat import ag2
from messager_store import EventLog

LINES = {"alice": ["I agree."], "bob": ["The bridge needs repair."], "carol": ["We have no money."]}


class Script(TestConfig):  # type: ignore[misc]
    """A model that says one line a turn, and then nothing, which ends the discussion."""

    def create(self) -> Any:
        self.client = getattr(self, "client", None) or TestClient(*self.events, "")
        return self.client


async def discuss() -> None:
    """Run the discussion, and wait until everyone has got everything."""
    hub = await Hub.open(MemoryKnowledgeStore())
    agents = {name: await hub.register(Agent(name, config=Script(*lines))) for name, lines in LINES.items()}
    channel = await agents["alice"].open(type="discussion", target=["bob", "carol"])
    await channel.send("What should the town do?")
    while sum(one.event_type == EV_TEXT for one in await hub.read_wal(channel.channel_id)) < 4:
        await asyncio.sleep(0.01)
    await channel.close()
    last = (await hub.read_wal(channel.channel_id))[-1].envelope_id
    while any(hub.inbox_cursor(agent.agent_id, channel.channel_id) < last for agent in agents.values()):
        await asyncio.sleep(0.01)
    await hub.close()


async def main(exp_id: str) -> None:
    async with Transport(exp_id) as transport:
        with ag2.install(transport):
            await discuss()
    async with EventLog.open(os.environ["MESSAGER_STORE"], create=False) as log:
        async for event in log.read(exp_id):
            if event.kind == "received" and str(event.channel).endswith(EV_TEXT):
                print(f"{event.from_id} -> {event.to_id}: {event.text}")


asyncio.run(main(sys.argv[1]))
