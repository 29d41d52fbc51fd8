"""Program in the style of AgentSociety, unchanged except for an import. A process is one group or the driver.

Arguments: driver|group EXP_ID REDIS_PORT STORE FIRST LAST
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, cast

from messager import Messager, RedisConfig
from messager_store import EventLog, Recorder

AGENTS = range(1, 7)
ROUNDS = 3


class Interceptor:
    """Interceptor that refuses the messages of agent 1 to agent 2."""

    async def forward(self, from_id: int, to_id: int, message: str) -> bool:
        return (from_id, to_id) != (1, 2)


class AgentGroup:
    """Group that uses its messager as AgentSociety's AgentGroup does."""

    def __init__(self, messager: Messager, agents: range) -> None:
        self.messager = messager
        self._id2agent = {agent: [] for agent in agents}
        self.paybacks = 0
        self._exp_id = messager.exp_id

    async def init(self) -> None:
        channels = [f"exps:{self._exp_id}:agents:{agent}:*" for agent in self._id2agent]
        await self.messager.subscribe_and_start_listening(channels)
        self._message_dispatch_task = asyncio.create_task(self._message_dispatch())

    async def _message_dispatch(self) -> None:
        while True:
            messages = await self.messager.fetch_messages()
            for message in messages:
                channel = cast(bytes, message["channel"]).decode("utf-8")
                payload = json.loads(cast(bytes, message["data"]).decode("utf-8"))
                _, _, _, agent, topic_type = channel.strip(":").split(":")
                agent_id = int(agent)
                if agent_id in self._id2agent:
                    self._id2agent[agent_id].append((topic_type, payload))
                    if topic_type == "user-survey":
                        await self.messager.send_message(self.messager.get_user_payback_channel(), {"count": 1})
                        self.paybacks += 1
            await asyncio.sleep(0.05)

    async def step(self, round_: int) -> None:
        for agent in self._id2agent:
            for other in AGENTS:
                if other != agent:
                    payload = {
                        "from": agent,
                        "content": json.dumps({"content": f"round {round_}", "propagation_count": 1}),
                        "type": "social",
                        "timestamp": int(time.time() * 1000),
                        "day": 0,
                        "t": round_,
                    }
                    channel = self.messager.get_subtopic_channel(other, "agent-chat")
                    await self.messager.send_message(channel, payload, agent, other)


def say(word: str) -> None:
    print(word, flush=True)


async def told() -> None:
    await asyncio.to_thread(sys.stdin.readline)


async def group(messager: Messager, agents: range) -> None:
    members = AgentGroup(messager, agents)
    await members.init()
    say("ready")
    await told()
    for round_ in range(ROUNDS):
        await members.step(round_)
    say("stepped")
    while members.paybacks < len(agents):
        await asyncio.sleep(0.02)
    await told()
    expected = sum(ROUNDS for agent in agents for other in AGENTS if other != agent and (other, agent) != (1, 2)) + len(
        agents
    )
    async with asyncio.timeout(60):
        while sum(len(inbox) for inbox in members._id2agent.values()) < expected:
            await asyncio.sleep(0.02)
    members._message_dispatch_task.cancel()
    say(json.dumps({"received": expected, "log_list": len(messager.get_log_list())}))


async def driver(messager: Messager) -> None:
    await messager.subscribe_and_start_listening([messager.get_user_payback_channel()])
    say("ready")
    await told()
    payload: dict[str, Any] = {"from": "none", "survey_id": 1, "timestamp": int(time.time() * 1000), "data": {}}
    tasks = [messager.send_message(messager.get_user_survey_channel(agent), payload) for agent in AGENTS]
    await asyncio.gather(*tasks)
    remain = len(AGENTS)
    async with asyncio.timeout(60):
        while remain > 0:
            remain -= len(await messager.fetch_messages())
            await asyncio.sleep(0.02)
    say("stepped")
    await told()
    say(json.dumps({"received": len(AGENTS), "log_list": len(messager.get_log_list())}))


async def take_part(role: str, exp_id: str, port: str, store: str, first: str, last: str) -> None:
    async with EventLog.open(store) as log, Recorder(log, exp_id, name="society") as recorder:
        messager = Messager(RedisConfig(server="127.0.0.1", port=int(port)), exp_id, Interceptor())
        messager.add_log_hook(recorder)
        await messager.init()
        if role == "driver":
            await driver(messager)
        else:
            await group(messager, range(int(first), int(last)))
        await messager.close()


def main() -> None:
    asyncio.run(take_part(*sys.argv[1:]))
