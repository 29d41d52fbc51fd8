"""The society of the demo, structured as in AgentSociety: a driver and groups of agents.

Each has its own `Messager`, all with one exp_id. Agents exchange chat messages, JSON inside JSON, with day and time;
the driver marks ticks, sends a survey without ids, and counts paybacks; an interceptor blocks the messages of one
agent to another.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from messager import Messager, MessageRecord, Msg, RedisConfig
from messager.time_limit import time_limit

from ..log.event_log import EventLog
from ..recording.closing import close
from ..recording.recorder import Durability, Recorder

GROUPS = {"north": (1, 2, 3), "south": (4, 5, 6), "shop": (7, 8)}
QUARREL = (2, 5)
"""Sender and recipient whose messages the interceptor blocks."""
TICK_SECONDS = 0.4
POLL_SECONDS = 0.05
MOST_SECONDS = 5.0
"""Maximum wait at the end for messages in flight: one lost by Redis never arrives."""
OPENINGS = (
    "The bakery is out of bread again. Did you get any?",
    "They want to close the bridge for a week. What do you think?",
    "I saw smoke over the mill this morning.",
    "¿Vienes al mercado esta tarde?",
    "明天你去集市吗?",
)
REPLIES = (
    "Not today. Ask at the shop, they may know more.",
    "I would not worry, it was the same last year.",
    "Good that you say so, I shall tell the others.",
    "Ja, das habe ich auch gehört.",
)


class Quarrel:
    """An interceptor that blocks the messages of one agent to another."""

    async def forward(self, from_id: Any, to_id: Any, message: str) -> bool:
        return (from_id, to_id) != QUARREL


class InFlight:
    """A log hook of all Messagers that counts messages being sent, and delivered but not received yet."""

    def __init__(self) -> None:
        self._sending = 0
        self._delivered = 0  # negative if a message is received before its sender gets the answer
        self._none = asyncio.Event()
        self._none.set()

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        self._sending += len(records)
        self._none.clear()

    def after(self, record: MessageRecord) -> None:
        if record.kind in ("sent", "failed"):
            self._sending -= 1
            self._delivered += record.receivers or 0
        elif record.kind == "received":
            self._delivered -= 1
        if self._sending == self._delivered == 0:
            self._none.set()
        else:
            self._none.clear()

    async def none(self) -> None:
        """Return when no message is in flight, or after `MOST_SECONDS`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._none.wait(), MOST_SECONDS)


class Group:
    """One group of agents, which handles messages like the AgentGroup of AgentSociety."""

    def __init__(self, messager: Messager, members: tuple[int, ...], dice: random.Random) -> None:
        self._messager = messager
        self._members = members
        self._dice = dice
        self._everyone = [agent for group in GROUPS.values() for agent in group]
        self.day, self.t = 0, 0

    async def begin(self) -> asyncio.Task[None]:
        """Subscribe for every member, and start dispatching."""
        exp_id = self._messager.exp_id
        await self._messager.subscribe_and_start_listening(
            [f"exps:{exp_id}:agents:{member}:*" for member in self._members]
        )
        return asyncio.create_task(self._dispatch())

    async def step(self, day: int, t: int) -> None:
        """Run one tick: some members send a message to another agent."""
        self.day, self.t = day, t
        talks = []
        for member in self._members:
            if self._dice.random() < 0.7:
                other = self._dice.choice([agent for agent in self._everyone if agent != member])
                talks.append(self._say(member, other, self._dice.choice(OPENINGS), 1))
        if 2 in self._members:
            talks.append(self._say(*QUARREL, "And another thing!", 1))
        await asyncio.gather(*talks)

    async def _say(self, from_id: int, to_id: int, text: str, round_: int) -> None:
        payload = {
            "from": from_id,
            "content": json.dumps({"content": text, "propagation_count": round_}, ensure_ascii=False),
            "type": "social",
            "timestamp": int(time.time() * 1000),
            "day": self.day,
            "t": self.t,
        }
        await self._messager.send_message(self._messager.get_agent_chat_channel(to_id), payload, from_id, to_id)

    async def _dispatch(self) -> None:
        while True:
            for message in await self._messager.fetch_messages():
                _, _, _, agent, topic = message["channel"].decode("utf-8").strip(":").split(":")
                payload = json.loads(message["data"])
                if topic == "agent-chat":
                    said = json.loads(payload["content"])
                    if said["propagation_count"] < 3:
                        reply = self._dice.choice(REPLIES)
                        await self._say(int(agent), payload["from"], reply, said["propagation_count"] + 1)
                elif topic == "user-survey":
                    channel = self._messager.get_user_payback_channel()
                    await self._messager.send_message(channel, {"count": 1})
            await asyncio.sleep(POLL_SECONDS)


async def live(log: EventLog, config: RedisConfig, exp_id: str, ticks: int, durability: Durability) -> None:
    """Run the society for a number of ticks, recorded by every Messager, and close the experiment."""
    described: dict[str, Any] = {"name": "demo society", "tags": ["demo"], "meta": {"seed": 7, "ticks": ticks}}
    in_flight = InFlight()
    async with AsyncExitStack() as stack:

        async def member(**described: Any) -> Messager:
            recorder = await stack.enter_async_context(Recorder(log, exp_id, durability=durability, **described))
            messager = Messager(config, exp_id, Quarrel())
            messager.add_log_hook(in_flight)
            messager.add_log_hook(recorder)
            return await stack.enter_async_context(messager)

        driver = await member(**described)
        await driver.subscribe_and_start_listening([driver.get_user_payback_channel()])
        dice = random.Random(7)
        groups = [Group(await member(), members, random.Random(dice.random())) for members in GROUPS.values()]
        dispatching = [await group.begin() for group in groups]
        for tick in range(ticks):
            day, t = tick // 4, 21600 * (tick % 4)
            driver.mark("tick", number=tick, day=day, t=t)
            await asyncio.gather(*(group.step(day, t) for group in groups))
            if tick == ticks // 2:
                await _survey(driver)
            await asyncio.sleep(TICK_SECONDS)
        await driver.send_message(f"exps:{exp_id}:news", Msg("town crier", "All is well.", "assistant"))
        driver.mark("end")
        for task in dispatching:
            task.cancel()
        await asyncio.gather(*dispatching, return_exceptions=True)
        await in_flight.none()  # so that the log has every reception
    await close(log, await log.experiment(exp_id))


async def _survey(driver: Messager) -> None:
    """Send a survey to every agent, without ids as in AgentSociety, and wait for the paybacks."""
    driver.mark("survey", questions=1)
    agents = [agent for group in GROUPS.values() for agent in group]
    payload = {
        "from": "none",
        "survey_id": "6f8e",
        "timestamp": int(time.time() * 1000),
        "data": {"id": "6f8e", "title": "The bridge", "questions": ["Should the bridge be closed?"]},
    }
    await asyncio.gather(*(driver.send_message(driver.get_user_survey_channel(agent), payload) for agent in agents))
    waiting = len(agents)
    async with time_limit(10):
        while waiting > 0:
            waiting -= len(await driver.fetch_messages())
            await asyncio.sleep(POLL_SECONDS)
