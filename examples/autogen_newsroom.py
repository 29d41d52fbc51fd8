"""A newsroom of three agents of AutoGen core: topics for everyone, and a question to one of them.

    MESSAGER_STORE=messager.db python examples/autogen_newsroom.py monday

prints who said what to whom in the experiment `monday`. It needs autogen-core 0.7.
"""

import asyncio
import os
import sys
from dataclasses import dataclass

import autogen_core as core

from messager import Transport
from messager.compat import autogen
from messager_store import EventLog


@dataclass
class News:
    content: str


@core.default_subscription
class Reader(core.RoutedAgent):  # type: ignore[misc]
    @core.message_handler  # type: ignore[untyped-decorator]
    async def read(self, message: News, ctx: core.MessageContext) -> News | None:
        return News(f"{len(message.content)} characters") if ctx.is_rpc else None


@core.default_subscription
class Reporter(Reader):
    """Has each headline checked, and publishes a story."""

    @core.message_handler  # type: ignore[untyped-decorator]
    async def read(self, message: News, ctx: core.MessageContext) -> None:
        if ctx.sender is None:
            checked = await self.send_message(message, core.AgentId("editor", "default"))
            await self.publish_message(News(f"{message.content}! ({checked.content})"), core.DefaultTopicId())


async def main(exp_id: str) -> None:
    async with Transport(exp_id) as transport:
        with autogen.install(transport):
            runtime = core.SingleThreadedAgentRuntime()
            await Reporter.register(runtime, "reporter", lambda: Reporter("writes"))
            for name in ("editor", "intern"):
                await Reader.register(runtime, name, lambda: Reader("reads"))
            runtime.start()
            await runtime.publish_message(News("Fire at the mill"), core.DefaultTopicId())
            await runtime.stop_when_idle()
    async with EventLog.open(os.environ["MESSAGER_STORE"], create=False) as log:
        async for event in log.read(exp_id):
            if event.kind == "received":
                print(f"{event.from_id or 'the program'} -> {event.to_id}: {event.text}")


asyncio.run(main(sys.argv[1]))
