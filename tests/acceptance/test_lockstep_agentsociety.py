"""AgentSociety 1.3.7, recorded and reproduced: its own driver, groups and group loop.

The group loop fetches every 3 s and hands each message to its agent by the name of the channel. The agents take random
times to answer, so that every run without gates is another one. What they answer tells everything that they have heard.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager
from messager.brokers import kind_of
from messager.compat import agentsociety as compat
from messager.testing import RedisServer
from messager_store import Event, EventLog
from messager_store.lockstep import virtual_time
from messager_store.lockstep.recorder_thread import RecorderThread
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.report import CastReport
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.lockstep.virtual_time import virtual_clock
from messager_store.log.channel_map import ChannelMap
from messager_store.matching.match import Match
from tests.support import agentsociety_1_3, until

ROUNDS = 3
DEPTH = 3
CHATS_OF_A_ROUND = 3 * 2 * (1 + DEPTH)
"""Messages of the three citizens: each begins a chat with both others, which is answered `DEPTH` times."""
CHATS = ROUNDS * CHATS_OF_A_ROUND
INTERVIEWED = [5, 6]
MESSAGES = CHATS + ROUNDS * 2 * len(INTERVIEWED)
WALL_CLOCK = ["timestamp", "_date_time"]
"""Fields that AgentSociety fills with the wall clock."""
SIMULATED_CLOCK = ["day", "t"]
"""Fields with the time of the simulation. Driver and groups share it beside the messages, so it is not reproduced where
the groups fetch every few seconds of real time."""


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with agentsociety_1_3.society(monkeypatch) as module:
        yield module
    compat.uninstall()


@pytest.fixture
def patient_simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with agentsociety_1_3.society(monkeypatch, patient=True) as module:
        yield module


class Talk:
    """The conversations of a run: `seconds` is the longest time that a citizen thinks.

    A round begins when the chats of the earlier ones have ended. The driver begins rounds by calls, not by messages: a
    chat that ran into the next round of the recording might end before it otherwise.
    """

    def __init__(self, seed: int, seconds: float) -> None:
        self._dice = random.Random(seed)
        self._seconds = seconds
        self.chats = 0
        """Chat messages that have been sent."""

    async def begin(self, rounds: int) -> None:
        """Wait until a round may begin, after so many."""
        while self.chats < rounds * CHATS_OF_A_ROUND:
            await asyncio.sleep(0.01)

    async def think(self) -> None:
        await asyncio.sleep(self._dice.random() * self._seconds)

    def config(self, port: int = 1) -> Any:
        """Return the configuration of a society whose citizens talk."""
        rounds = [
            {"type": "step", "steps": 1},
            {"type": "interview", "target_agent": INTERVIEWED, "interview_message": "How are you?"},
        ]
        config = agentsociety_1_3.config(port, rounds * ROUNDS)
        agents = agentsociety_1_3.agents()
        [citizens] = agents["citizens"]
        citizens["agent_class"] = self._citizen(citizens["agent_class"])
        config.agents = type(config.agents).model_validate(agents)
        return config

    def _citizen(self, base: Any) -> Any:
        talk = self

        class Citizen(base):  # type: ignore[misc]
            def __init__(self, *given: Any, **named: Any) -> None:
                super().__init__(*given, **named)
                self._heard: list[str] = []
                self._steps = 0

            async def forward(self) -> None:
                await talk.begin(self._steps)
                await talk.think()
                self._steps += 1
                for other in {5, 6, 7} - {self.id}:
                    await self._say(other, f"round {self._steps}", 0)

            async def process_agent_chat_response(self, payload: dict[str, Any]) -> str:
                self._heard.append(payload["content"])
                await talk.think()
                depth = json.loads(payload["content"])["propagation_count"]
                if depth < DEPTH:
                    digest = hashlib.sha256("".join(self._heard).encode()).hexdigest()
                    await self._say(payload["from"], f"{len(self._heard)} heard: {digest}", depth + 1)
                return ""

            async def _say(self, other: int, content: str, depth: int) -> None:
                await self.send_message_to_agent(other, json.dumps({"content": content, "propagation_count": depth}))
                talk.chats += 1

        return Citizen


async def live(simulation: Any, talk: Talk, port: int = 1) -> str:
    """Run a society until nobody has anything left to say; return its exp_id."""
    society = simulation.AgentSociety(talk.config(port))
    await society.init()
    try:
        await society.run()
        await until(lambda: talk.chats == CHATS, seconds=60)
    finally:
        await society.close()
    return str(society.exp_id)


async def said(log: EventLog, exp_id: str) -> list[Event]:
    return [event async for event in log.read(exp_id, kinds=("sent",))]


def words(events: list[Event]) -> list[tuple[Any, ...]]:
    """Return what was said, by sender, in order, without the clocks and the exp_id."""
    found = []
    for event in events:
        clocks = WALL_CLOCK + SIMULATED_CLOCK
        payload = {name: value for name, value in json.loads(event.payload).items() if name not in clocks}
        found.append((str(event.from_id), str(event.channel).split(":", 2)[2], json.dumps(payload, sort_keys=True)))
    return sorted(found, key=lambda each: each[0])  # the order between senders is not part of the schedule


async def test_it_is_reproduced_over_redis_by_a_variable_in_the_environment(
    simulation: Any, redis: RedisServer, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nightly: bool
) -> None:
    monkeypatch.setenv("MESSAGER_STORE", store)
    with compat.install():
        recorded = await live(simulation, Talk(0, 0.02), redis.port)
    runs = {}
    for seed in range(1, 5 if nightly else 3):
        ungated = seed == 1
        settings = {
            "experiment": recorded,
            "match": {"framework": "agentsociety", "ignore": SIMULATED_CLOCK},
            "patience": 20,
            "report": str(tmp_path / str(seed)),
        }
        (tmp_path / "replay.json").write_text(json.dumps(settings))
        monkeypatch.setenv("MESSAGER_REPLAY", "" if ungated else str(tmp_path / "replay.json"))
        with compat.install():
            runs[seed] = await live(simulation, Talk(seed, 0.02), redis.port)
    async with EventLog.open(store, create=False) as log:
        expected = words(await said(log, recorded))
        found = {seed: words(await said(log, exp_id)) for seed, exp_id in runs.items()}
    assert len(expected) == MESSAGES
    assert found.pop(1) != expected, "without gates, the random times decide what is said"
    for seed, repeated in found.items():
        assert repeated == expected, seed
        reports = [json.loads(path.read_text()) for path in (tmp_path / str(seed)).glob("*.json")]
        assert sum(report["matched"] for report in reports) == MESSAGES
        assert len(reports) == 3 and not any(report["timed_out"] or report["divergences"] for report in reports)


def test_it_is_reproduced_in_virtual_time_with_its_own_pace(
    patient_simulation: Any, store: str, monkeypatch: pytest.MonkeyPatch, nightly: bool
) -> None:
    """Each run is more than a minute of virtual time: 3 s between two fetches, and up to 8 s of thinking."""
    from agentsociety.simulation import agentgroup, agentsociety

    def with_messagers(begin: Callable[[Messager, list[str]], None]) -> None:
        broker = MemoryBroker()

        class InMemory(Messager):
            def __init__(self, config: Any, exp_id: str, message_interceptor: Any = None) -> None:
                super().__init__(broker, "town", message_interceptor, clock=virtual_clock())

            async def subscribe_and_start_listening(self, patterns: list[str]) -> None:
                patterns = [":".join(["exps", "town", *pattern.split(":")[2:]]) for pattern in patterns]
                begin(self, patterns)
                await super().subscribe_and_start_listening(patterns)

        for module in (agentgroup, agentsociety):
            monkeypatch.setattr(module, "Messager", InMemory)

    async def record() -> None:
        async with RecorderThread.open(store, "recorded") as recorder:
            with_messagers(lambda messager, _: messager.add_log_hook(recorder))
            await live(patient_simulation, Talk(0, 8.0))

    async def loaded() -> Recording:
        async with EventLog.open(store, create=False) as log:
            return Recording.of_events("recorded", [event async for event in log.read("recorded")])

    async def again(seed: int) -> tuple[CastReport, float]:
        lockstep = Lockstep(
            recording, kind_of("memory://"), ChannelMap(), ToTheEnd(), match=Match.agentsociety(), patience=1000
        )

        def attach(messager: Messager, patterns: list[str]) -> None:
            [part] = [part for part in lockstep.cast.parts if part.patterns == patterns]
            messager.set_gate(lockstep.take(messager.endpoint, [part]))

        with_messagers(attach)
        releasing = asyncio.create_task(_released(lockstep))
        await live(patient_simulation, Talk(seed, 8.0))
        await releasing
        return lockstep.report, asyncio.get_running_loop().time()

    virtual_time.run(record())
    recording = asyncio.run(loaded())
    assert len(recording.messages) == MESSAGES
    for seed in range(1, 11 if nightly else 2):
        report, lasted = virtual_time.run(again(seed))
        assert report.equal and report.total("matched") == MESSAGES, (seed, report.divergences[:1])
        assert lasted > 60


async def _released(lockstep: Lockstep) -> None:
    async for batch in lockstep.releases():
        assert not batch, "everybody is live"
