"""A small society for the rows of lockstep: three agents that can be live, and one that is only recorded.

Agent 1 asks 2 and 3 in each round; 2 answers it and tells 3; 3 answers when it has heard both; 4 ticks. Every message
contains a sum of everything that its sender had heard, so it differs if only the order of what was heard differs.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from messager import MemoryBroker, Messager, PublishError
from messager.brokers import open_broker
from messager_store import EventLog, Fork, LiveReplay, Recorder
from messager_store.errors import StoreError
from messager_store.lockstep.policy import LockstepStopped

from .evidence import number_of

LIVE = (1, 2, 3)
TICKER = 4
EACH = 1000
"""Numbers of messages are those of their sender times this, plus 1, 2, 3 ..."""
THINKS = 0.01
"""Maximum time that an agent thinks, s."""


class Crash(Exception):
    """The error of an agent that crashes on purpose."""


class Agent:
    """One agent. `said` is called before each message, with its number among the messages of this agent.

    It waits `give_up` seconds for the others, once: from then on it waits only a moment. It raises `Crash` in place of
    its message `crash`.
    """

    def __init__(
        self,
        messager: Messager,
        me: int,
        dice: random.Random,
        *,
        give_up: float = 60,
        said: Callable[[int], None] = lambda number: None,
        crash: int = 0,
    ) -> None:
        self._messager, self._me, self._dice = messager, me, dice
        self._give_up, self._said, self._crash = give_up, said, crash
        self._heard: list[int] = []
        self._count = 0

    async def listen(self) -> None:
        """Subscribe."""
        await self._messager.subscribe_and_start_listening([self._messager.get_subtopic_channel(self._me, "*")])

    async def run(self, rounds: int) -> None:
        """Play all rounds."""
        for number in range(rounds):
            if self._me == 1:
                await asyncio.gather(self._send(2), self._send(3))
                await self._hear(number, 2, 3)
            elif self._me == 2:
                await self._hear(number, 1)
                await asyncio.sleep(self._dice.uniform(0, THINKS))
                await self._send(1)
                await self._send(3)
            elif self._me == 3:
                await self._hear(number, 1, 2)
                await self._send(1)
            else:
                await self._send(self._dice.choice(LIVE))
                await asyncio.sleep(self._dice.uniform(0, THINKS))

    async def _send(self, to: int) -> None:
        self._count += 1
        if self._count == self._crash:
            raise Crash
        self._said(self._count)
        payload = {"n": self._me * EACH + self._count, "heard": crc32(repr(self._heard).encode())}
        try:
            await self._messager.send_message(self._messager.get_agent_chat_channel(to), payload, self._me, to)
        except PublishError:
            pass  # the agent goes on without it

    async def _hear(self, number: int, *others: int) -> None:
        """Fetch until these agents have said more than `number` messages to this one, or it gives up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._give_up
        while not all(sum(n // EACH == other for n in self._heard) > number for other in others):
            found = [number_of(message["data"]) for message in await self._messager.fetch_messages()]
            self._heard += [n for n in found if n is not None]
            if not found:
                if loop.time() > deadline:
                    self._give_up = 0.0
                    return
                await asyncio.sleep(0.002)


async def record(store: Path, exp: str, rounds: int, dice: random.Random) -> None:
    """Record the society, all agents live, without a server."""
    broker = MemoryBroker()
    async with EventLog.open(str(store)) as log, Recorder(log, exp) as recorder, asyncio.TaskGroup() as tasks:
        agents = []
        for me in (*LIVE, TICKER):
            messager = Messager(broker, exp)
            messager.add_log_hook(recorder)
            await messager.init()
            agents.append(Agent(messager, me, dice))
            if me != TICKER:
                await agents[-1].listen()
        for agent in agents:
            tasks.create_task(agent.run(rounds))


async def together() -> None:
    """Return once the harness has put a file `go` into the folder."""
    while not Path("go").exists():
        await asyncio.sleep(0.002)


async def live(
    say: Callable[..., None],
    broker: str,
    exp: str,
    replay: str,
    me: int,
    rounds: int,
    seed: int,
    crash: int = 0,
    store: str | None = None,
) -> None:
    """Play one agent in a process of its own, once all are ready, and record it in strict if there is a store.

    Writes `ready`, `said` with each message, `stopped` if the gate ended it, and `done`.
    """
    os.environ["MESSAGER_REPLAY"] = replay
    if store is not None:
        os.environ |= {"MESSAGER_STORE": store, "MESSAGER_DURABILITY": "strict"}
    carrier = open_broker(broker)
    patience = json.loads(Path(replay).read_text())["patience"]
    say("ready")
    await together()
    async with Messager(carrier, exp) as messager:
        agent = Agent(
            messager,
            me,
            random.Random(seed),
            give_up=3 * patience,
            said=lambda number: say("said", number),
            crash=crash,
        )
        try:
            await agent.listen()
            await agent.run(rounds)
        except LockstepStopped:  # its fork cannot be completed
            say("stopped")
    await carrier.close()
    say("done")


async def around(say: Callable[..., None], store: str, exp: str, broker: str, to_exp: str, patience: float) -> None:
    """Publish what the ticker said, around live agents of other processes, and write the report.

    Writes `ready`, and `done`, or `failed` if the replay ended with an error.
    """
    carrier = open_broker(broker)
    async with EventLog.open(store, create=False) as log:
        replay = LiveReplay(log, exp, carrier, live=list(LIVE), to_exp=to_exp, patience=patience)
        say("ready")
        await together()
        try:
            await replay.run()
        except StoreError:
            say("failed")
        if replay.lockstep is not None:
            report = replay.report.to_dict()
            Path("observed.json").write_text(json.dumps({**report["live"], "published": report["published"]}))
    await carrier.close()
    say("done")


async def fork_around(
    say: Callable[..., None], store: str, exp: str, broker: str, to_exp: str, patience: float, at: str
) -> None:
    """Fork the recording around live agents of other processes, and write the report.

    Writes `ready`, and `done`, or `failed` if the fork stopped.
    """
    carrier = open_broker(broker)
    async with EventLog.open(store, create=False) as log:
        options = {"durability": "strict"}
        async with Fork(log, exp, to_exp, carrier, at=at, live=list(LIVE), patience=patience, recorder=options) as fork:
            say("ready")
            await together()
            try:
                await fork.run()
            except StoreError:
                say("failed")
            Path("observed.json").write_text(json.dumps(fork.report.to_dict()))
    await carrier.close()
    say("done")
