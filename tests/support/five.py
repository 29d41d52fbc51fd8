"""Society of five agents whose messages depend on everything they heard and on how long each of them thought.

| agent | what it does                                                                     |
|-------|----------------------------------------------------------------------------------|
| 1     | ticks                                                                            |
| 2     | answers slowly, through a stub model                                             |
| 3     | sends to several at once with `asyncio.gather`, each after a random time         |
| 4     | is mostly silent                                                                 |
| 5     | leads by marks: logs and announces phases, and ends the run when all others did  |

Every message contains a digest of what its sender had heard, so that one difference changes all later messages.

As a program, each argument is a Messager with the agents that share it:

    URL=redis://... EXP=exp-1 [PACE=0.02] [READY=FOLDER COUNT=4] python -m tests.support.five 1 2,4
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from messager import Messager, open_broker

TICKS = 12
PACE_S = 0.01
"""Time between two ticks; the agents think for about this time."""
SEPARATE: list[tuple[int, ...]] = [(1,), (2,), (3,), (4,), (5,)]
"""Agents of each Messager."""
SHARED: list[tuple[int, ...]] = [(1,), (2, 4), (3,), (5,)]
"""The same, with two agents that share a Messager."""

Ready = Callable[[], Awaitable[Any]]
Agent = Callable[[Messager], Awaitable[None]]


class Member:
    """One agent. `hear` is called with what was fetched for it, also if that is nothing."""

    def __init__(self, messager: Messager, me: int, pace: float, dice: random.Random) -> None:
        self.messager, self.me, self.pace, self.dice = messager, me, pace, dice
        self.heard = 0
        self.ended = False
        self._digest = hashlib.md5()

    async def hear(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self.heard += 1
            self._digest.update(json.dumps(message, sort_keys=True).encode())
            if message["what"] == "end":
                self.ended = True
            if not self.ended:
                await self.on(message)
        if not self.ended:
            await self.after(messages)
            if any(message["what"] == "tick" and message["n"] == TICKS for message in messages):
                await self.send(5, "done")

    async def on(self, message: dict[str, Any]) -> None:
        """React to one message."""

    async def after(self, messages: list[dict[str, Any]]) -> None:
        """React to all that were fetched together."""

    async def think(self, longest: float) -> None:
        await asyncio.sleep(self.dice.random() * longest * self.pace)

    async def send(self, to: int, what: str, **more: Any) -> None:
        channel = self.messager.get_agent_chat_channel(to)
        await self.messager.send_message(channel, self.payload(what, **more), self.me, to)

    async def announce(self, what: str, **more: Any) -> None:
        channel = f"exps:{self.messager.exp_id}:broadcast:{what}"
        await self.messager.send_message(channel, self.payload(what, **more), self.me)

    def payload(self, what: str, **more: Any) -> dict[str, Any]:
        return {"from": self.me, "what": what, "heard": self.heard, "of": self._digest.hexdigest()[:8], **more}


class Ticker(Member):
    n = 0
    due = 0.0

    async def after(self, messages: list[dict[str, Any]]) -> None:
        now = asyncio.get_running_loop().time()
        if self.n < TICKS and now >= self.due:
            self.due = now + self.pace * (0.5 + self.dice.random())
            self.n += 1
            await self.announce("tick", n=self.n)


class Answerer(Member):
    async def after(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if message["what"] == "question":
                answer = await self.model(f"{message['text']} after {self.payload('')}")
                await self.send(message["from"], "answer", text=answer)

    async def model(self, prompt: str) -> str:
        await self.think(3)
        return hashlib.sha1(prompt.encode()).hexdigest()[:10]


class Crier(Member):
    async def on(self, message: dict[str, Any]) -> None:
        if message["what"] == "tick" and message["n"] % 3 == 0:
            news = [(2, "question", "why"), (2, "question", "how"), (1, "news", ""), (4, "news", ""), (5, "news", "")]
            await asyncio.gather(*(self.cry(to, what, text, message["n"]) for to, what, text in news))

    async def cry(self, to: int, what: str, text: str, n: int) -> None:
        await self.think(1)
        await self.send(to, what, text=text, n=n)


class Silent(Member):
    async def on(self, message: dict[str, Any]) -> None:
        if self.heard in (9, 17):
            await self.think(2)
            await self.send(5, "news", text="I was counting")


class Leader(Member):
    phase = 0
    news = 0
    done = 0

    async def on(self, message: dict[str, Any]) -> None:
        self.news += message["what"] == "news"
        self.done += message["what"] == "done"
        if message["what"] == "news" and self.news % 2 == 0:
            self.phase += 1
            self.messager.mark("phase", n=self.phase)
            await self.announce("phase", n=self.phase)
        if message["what"] == "done" and self.done == 5:
            await self.announce("end")


KINDS: dict[int, type[Member]] = {1: Ticker, 2: Answerer, 3: Crier, 4: Silent, 5: Leader}


async def at_once() -> None:
    """Begin without waiting for others."""


async def play(
    messager: Messager, *ids: int, ready: Ready = at_once, pace: float = PACE_S, dice: random.Random | None = None
) -> None:
    """Play agents that share a connected Messager, until the end of the run, as a group of AgentSociety does."""
    dice = dice or random.Random()
    members = [KINDS[me](messager, me, pace, dice) for me in ids]
    own = [messager.get_subtopic_channel(me, "*") for me in ids]
    await messager.subscribe_and_start_listening([*own, f"exps:{messager.exp_id}:broadcast:*"])
    await ready()
    while not all(member.ended for member in members):
        fetched = await messager.fetch_messages()
        await asyncio.gather(*(member.hear(_for(member.me, fetched)) for member in members))
        await asyncio.sleep(pace / 10)


def _for(me: int, fetched: list[dict[str, Any]]) -> list[dict[str, Any]]:
    own = f":agents:{me}:".encode(), b":broadcast:"
    return [json.loads(one["data"]) for one in fetched if any(part in one["channel"] for part in own)]


def agents(
    groups: list[tuple[int, ...]], *, pace: float = PACE_S, dice: random.Random | None = None
) -> dict[tuple[int, ...], Agent]:
    """Return the agents as async functions of a Messager, by the ids of those that share it, in random order."""
    dice = dice or random.Random()
    order = dice.sample(groups, len(groups))
    return {ids: partial(_played, ids=ids, pace=pace, dice=dice) for ids in order}


async def _played(messager: Messager, ids: tuple[int, ...], **options: Any) -> None:
    await play(messager, *ids, **options)


async def together(messagers: dict[tuple[int, ...], Messager], **options: Any) -> None:
    """Play all agents in this process, without gates; nobody speaks before all are subscribed."""
    barrier = asyncio.Barrier(len(messagers))
    await asyncio.gather(*(play(one, *ids, ready=barrier.wait, **options) for ids, one in messagers.items()))


def others_in(folder: Path, count: int) -> Ready:
    """Return a wait until `count` Messagers have put a file into this folder."""

    async def ready() -> None:
        (folder / os.urandom(8).hex()).touch()
        while len(list(folder.iterdir())) < count:
            await asyncio.sleep(0.005)

    return ready


@contextlib.asynccontextmanager
async def _connected(url: str, exp_id: str) -> AsyncIterator[Messager]:
    broker = open_broker(url)
    try:
        async with Messager(broker, exp_id) as messager:
            yield messager
    finally:
        await broker.close()


async def _program(groups: list[tuple[int, ...]]) -> None:
    ready = others_in(Path(os.environ["READY"]), int(os.environ["COUNT"])) if "READY" in os.environ else at_once
    pace = float(os.environ.get("PACE", PACE_S))

    async def one(ids: tuple[int, ...]) -> None:
        async with _connected(os.environ["URL"], os.environ["EXP"]) as messager:
            await play(messager, *ids, ready=ready, pace=pace)

    async with asyncio.timeout(60):
        await asyncio.gather(*map(one, groups))


def main() -> None:
    asyncio.run(_program([tuple(map(int, argument.split(","))) for argument in sys.argv[1:]]))


if __name__ == "__main__":
    main()
