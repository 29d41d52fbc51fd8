"""Three agents of AgentScope 2 that hear each other through their inboxes and say what they heard.

    python agentscope_society.py PORT ROUNDS NAME...

Each line of standard input is a run: `messagers` or `hooks`, its exp_id, and a file of MESSAGER_REPLAY or `-`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
from contextlib import AsyncExitStack
from typing import Any

from agentscope.agent import Agent
from agentscope.app._bus_ops import deliver_to_inbox, publish_session_event
from agentscope.app.message_bus import MessageBusKeys, RedisMessageBus
from agentscope.app.middleware._inbox_middleware import InboxMiddleware
from agentscope.message import HintBlock, TextBlock, UserMsg
from agentscope.model import ChatModelBase, ChatResponse
from agentscope.state import AgentState

from messager import RedisConfig, Transport
from messager.compat import agentscope_bus

NAMES = "alice", "bob", "carol"


class Formatter:
    """Formatter that leaves the messages as they are."""

    supported_input_media_types: tuple[str, ...] = ()

    async def format(self, messages: list[Any], *args: Any, **options: Any) -> list[Any]:
        return messages


class Stub(ChatModelBase):
    """Model that thinks for a random time, and says what it was told since it spoke last."""

    def __init__(self, name: str) -> None:
        super().__init__(None, "stub", None, stream=False)
        self.formatter = Formatter()
        self.name, self.heard, self.times = name, 0, 0

    async def _call_api(self, model_name: str, messages: list[Any], *args: Any, **options: Any) -> ChatResponse:
        await asyncio.sleep(random.random() / 20)
        hints = re.findall(r"<said>(\w+ \d+)", json.dumps([one.model_dump(mode="json") for one in messages]))
        new, self.heard, self.times = hints[self.heard :], len(hints), self.times + 1
        return ChatResponse(content=[TextBlock(text=f"{self.name} {self.times}: {', '.join(new)}")], is_last=True)


async def live(bus: Any, name: str, rounds: int) -> list[str]:
    """Play one agent; return what it said."""
    agent = Agent(
        name, f"You are {name}", Stub(name), middlewares=[InboxMiddleware(bus)], state=AgentState(session_id=name)
    )
    said = []
    for _ in range(rounds):
        await asyncio.sleep(random.random() / 20)
        answer = await agent.reply(UserMsg(name="clock", content="tick"))
        text = answer.get_text_content()
        said.append(text)
        await publish_session_event(bus, name, {"type": "TEXT", "delta": text})
        for other in NAMES:
            if other != name:
                hint = HintBlock(hint=f"<said>{text}</said>", source=json.dumps({"label": "team", "sublabel": name}))
                await deliver_to_inbox(
                    bus, user_id="u", session_id=other, agent_id=other, payload=hint.model_dump(mode="json")
                )
    return said


async def play(how: str, exp_id: str, port: int, rounds: int, names: list[str]) -> None:
    """Play one run: say when the bus is there, begin when told to, say what was said, end when told to."""
    async with AsyncExitStack() as stack:
        if how == "messagers":
            bus = agentscope_bus.MessagerBus(RedisConfig(server="127.0.0.1", port=port), exp_id, *names)
        else:
            transport = await stack.enter_async_context(Transport(exp_id))
            stack.enter_context(agentscope_bus.install(transport))
            bus = RedisMessageBus(port=port)
        await stack.enter_async_context(bus)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        said = await asyncio.gather(*(live(bus, name, rounds) for name in names))
        print(json.dumps(dict(zip(names, said, strict=True))), flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # the others may still send
        if how != "messagers":  # there is no dispatcher
            await bus.queue_drain(MessageBusKeys.wakeup_queue(), max_count=1000)


def main() -> None:
    port, rounds, *names = sys.argv[1:]
    for line in sys.stdin:
        how, exp_id, replay = line.split()
        if replay != "-":
            os.environ["MESSAGER_REPLAY"] = replay
        asyncio.run(play(how, exp_id, int(port), int(rounds), names))
        print("ended", flush=True)


if __name__ == "__main__":
    main()
