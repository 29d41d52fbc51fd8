"""Rows about live agents: what gates cost, one live agent among many recorded ones, and a test with a recording."""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from messager import Broker, Clock, MemoryBroker, Messager, MessageRecord, RedisBroker, channels
from messager.brokers import kind_of
from messager_store import EventLog, NewEvent, Replay
from messager_store.lockstep import virtual_time
from messager_store.lockstep.cut import load_recording
from messager_store.lockstep.play import Agent, Agents, LiveAgents
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.log.channel_map import ChannelMap
from messager_store.log.event import Event
from messager_store.log.selection import Selection
from messager_store.replay.plan import make_plan

from .measure import Stage, Unavailable, Values
from .startup import RUNS
from .workload import BEGIN, PAYLOAD, STEP, WIRE, channel

TURNS = 3000
"""Questions of the request-reply loop; there is an answer to each."""
SOCIETY = 100
"""Recorded agents beside the live one."""
MESSAGES = 30_300
"""Messages of that society."""


class _Kept:
    """Log hook that keeps the events of several Messagers in memory, as a store would give them."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def before_send(self, records: object) -> None:
        """Do nothing."""

    def after(self, record: MessageRecord) -> None:
        self.events.append(
            Event(
                *(record.ts, 1, len(self.events) + 1, record.kind, record.channel, record.payload),
                *(record.from_id, record.to_id),
                meta=record.meta,
                messager=record.messager,
                arrival=record.arrival,
            )
        )


async def _await_messages(messager: Messager) -> int:
    """Return the number of messages of the next fetch that gives any."""
    while not (messages := await messager.fetch_messages()):
        await asyncio.sleep(0)
    return len(messages)


class _Dialogue:
    """Two agents: one asks and waits for the answer, `TURNS` times."""

    def __init__(self) -> None:
        self.took = 0.0

    async def ask(self, messager: Messager) -> None:
        await messager.subscribe_and_start_listening([messager.get_agent_chat_channel(1)])
        began = time.perf_counter()
        for _ in range(TURNS):
            await messager.send_message(messager.get_agent_chat_channel(2), PAYLOAD, 1, 2)
            await _await_messages(messager)
        self.took = time.perf_counter() - began

    async def answer(self, messager: Messager) -> None:
        await messager.subscribe_and_start_listening([messager.get_agent_chat_channel(2)])
        for _ in range(TURNS):
            await _await_messages(messager)
            await messager.send_message(messager.get_agent_chat_channel(1), PAYLOAD, 2, 1)

    @property
    def agents(self) -> dict[int, Agent]:
        return {1: self.ask, 2: self.answer}


class DialogueInMemory:
    """Messages per second of two live agents that follow the schedule of their recording, and of the same without."""

    def __init__(self, stage: Stage) -> None:
        kept = _Kept()
        asyncio.run(self._free(_Dialogue(), kept))
        self._recording = Recording.of_events("bench", kept.events)

    def broker(self) -> Broker:
        """Return a new broker."""
        return MemoryBroker()

    def ours(self) -> Values:
        dialogue = _Dialogue()
        asyncio.run(self._gated(dialogue))
        return {"rate": 2 * TURNS / dialogue.took}

    def theirs(self) -> Values:
        dialogue = _Dialogue()
        asyncio.run(self._free(dialogue, None))
        return {"rate": 2 * TURNS / dialogue.took}

    async def _gated(self, dialogue: _Dialogue) -> None:
        broker = self.broker()
        await broker.connect()
        await _play(self._recording, broker, dialogue.agents)
        await broker.close()

    async def _free(self, dialogue: _Dialogue, hook: _Kept | None) -> None:
        broker, clock = self.broker(), Clock()
        await broker.connect()
        async with Messager(broker, "bench", clock=clock) as asker, Messager(broker, "bench", clock=clock) as answerer:
            if hook is not None:
                asker.add_log_hook(hook)
                answerer.add_log_hook(hook)
            answering = asyncio.create_task(dialogue.answer(answerer))
            while not answerer.receive_messages_task:
                await asyncio.sleep(0)
            await dialogue.ask(asker)
            await answering
        await broker.close()


class DialogueOverRedis(DialogueInMemory):
    """The same over Redis."""

    def __init__(self, stage: Stage) -> None:
        self._url = stage.server.url
        super().__init__(stage)

    def broker(self) -> Broker:
        return RedisBroker.from_url(self._url)


class DialogueAwake(DialogueOverRedis):
    """The same in an event loop that never sleeps.

    Without gates, the agents poll, so their event loop does not sleep either. With gates it sleeps until a message
    arrives, and waking up takes longer than the gates.
    """

    async def _gated(self, dialogue: _Dialogue) -> None:
        async with _awake():
            await super()._gated(dialogue)

    async def _free(self, dialogue: _Dialogue, hook: _Kept | None) -> None:
        async with _awake():
            await super()._free(dialogue, hook)


@asynccontextmanager
async def _awake() -> AsyncIterator[None]:
    """Context in which the event loop never sleeps."""

    async def poll() -> None:
        while True:
            await asyncio.sleep(0)

    polling = asyncio.create_task(poll())
    try:
        yield
    finally:
        polling.cancel()


class OneAmongMany:
    """Messages per second of one live agent among recorded ones in virtual time, and of the tape at full speed.

    Both begin with the log on disk and end when everything is published and the live agent, or a Messager on its
    channel, has fetched what it gets.
    """

    def __init__(self, stage: Stage) -> None:
        self._path = str(stage.new_path())
        asyncio.run(self._record())

    async def _record(self) -> None:
        """Record a society in which everybody writes to the next one, and agent 0 answers to agent 1."""
        heard = 0
        events: list[NewEvent] = []
        for at in range(MESSAGES):
            ts, sender = BEGIN + at * STEP, at % (SOCIETY + 1)
            to = (sender + 1) % (SOCIETY + 1)
            events.append(
                NewEvent(
                    "sent", ts, channel(to), WIRE, sender, to, messager=f"m{sender}", arrival=heard if not sender else 0
                )
            )
            if to == 0:
                heard += 1
                events.append(NewEvent("received", ts + 1000, channel(0), WIRE, messager="m0", arrival=heard))
        async with EventLog.open(self._path) as log:
            of = await log.create_experiment("bench")
            writer = await log.register(of, role="messager")
            for first in range(0, len(events), 5000):
                await log.append(writer, events[first : first + 5000])

    def ours(self) -> Values:
        began = time.perf_counter()
        recording = asyncio.run(self._load())
        loaded = time.perf_counter() - began
        virtual_time.run(self._live(recording))
        took = time.perf_counter() - began
        return {"rate": MESSAGES / took, "load_s": loaded}

    def theirs(self) -> Values:
        began = time.perf_counter()
        asyncio.run(self._tape())
        return {"rate": MESSAGES / (time.perf_counter() - began)}

    async def _load(self) -> Recording:
        async with EventLog.open(self._path) as log:
            of = await log.experiment("bench")
            plan = await make_plan(
                log,
                of,
                Selection(),
                channel_map=ChannelMap(None, None),
                broker_url=MemoryBroker.url,
                keep_names=True,
            )
            return await load_recording(log, plan)

    async def _live(self, recording: Recording) -> None:
        async def agent(messager: Messager) -> None:
            await messager.subscribe_and_start_listening([channel(0)])
            for _ in range(MESSAGES // (SOCIETY + 1)):
                await messager.send_message(channel(1), PAYLOAD, 0, 1)
                await _await_messages(messager)

        await _play(recording, MemoryBroker(), {0: agent}, virtual_time.virtual_clock())

    async def _tape(self) -> None:
        broker = MemoryBroker()
        async with EventLog.open(self._path) as log, Messager(broker, "bench") as messager:
            await messager.subscribe_and_start_listening([channel(0)])
            await Replay(log, "bench", broker, speed="max").run()
            received = 0
            while received < MESSAGES // (SOCIETY + 1):
                received += await _await_messages(messager)


async def _play(recording: Recording, broker: Broker, agents: Agents, clock: Clock | None = None) -> None:
    """Play a recording with live agents; raises if they did not say what they said there."""
    wire: Callable[[str], bytes] = channels.encode
    lockstep = Lockstep(recording, kind_of(broker.url), wire, ToTheEnd(), live=list(agents))
    async with LiveAgents(lockstep, broker, "bench", agents, clock=clock):
        async for batch in lockstep.releases():
            await broker.publish([(wire(entry.channel or ""), entry.payload) for entry in batch])
    if not lockstep.report.equal:
        raise RuntimeError(f"the live agents diverged: {json.dumps(lockstep.report.to_dict(), default=str)[:1000]}")


_TEST = """
import asyncio
import json

from messager import Messager


async def seller(messager: Messager) -> None:
    await messager.subscribe_and_start_listening([messager.get_agent_chat_channel(3)])
    for _ in range(10):
        while not (messages := await messager.fetch_messages()):
            await asyncio.sleep(1)
        for message in messages:
            asked = json.loads(message["data"])
            await messager.send_message(messager.get_agent_chat_channel(7), {"from": 3, "n": asked["n"] * 2}, 3, 7)


async def buyer(messager: Messager) -> None:
    await messager.subscribe_and_start_listening([messager.get_agent_chat_channel(7)])
    for n in range(10):
        await messager.send_message(messager.get_agent_chat_channel(3), {"from": 7, "n": n}, 7, 3)
        while not await messager.fetch_messages():
            await asyncio.sleep(1)


def test_the_seller_answers_as_it_did(replay):
    replay({3: seller, 7: buyer})
"""


class PluginTest:
    """Processor time (s) that a test with a recording adds to a run of pytest, and that of a run with an empty test."""

    def __init__(self, stage: Stage) -> None:
        if find_spec("pytest") is None:
            raise Unavailable("pytest is not installed here: use --here in the environment of the tests")
        self._with, self._empty = stage.folder / "with_recording", stage.folder / "empty"
        for folder, text in ((self._with, _TEST), (self._empty, "def test_nothing():\n    pass\n")):
            folder.mkdir()
            (folder / "pytest.ini").write_text("[pytest]\n")
            (folder / "test_shop.py").write_text(text)
        self._run(self._with, "--recording=new")
        self._run(self._empty)

    def ours(self) -> Values:
        took = [self._run(self._with) - self._run(self._empty) for _ in range(RUNS)]
        return {"time": max(statistics.median(took), 0.0)}

    def theirs(self) -> Values:
        return {"time": statistics.median(self._run(self._empty) for _ in range(RUNS))}

    def _run(self, folder: Path, *options: str) -> float:
        """Return the processor time of a run, which a busy machine does not stretch."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
