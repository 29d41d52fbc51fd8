"""Traffic of realistic size, replayed with one agent live.

The agent says again what it said in the recording, each message after it has received what it had received then. So all
its messages match; one that is altered is the first and only divergence. Set MESSAGER_TEST_DATA to a folder of
`.jsonl.gz` files to use those besides the generated ones (see `support.traffic`).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager, open_broker
from messager.brokers import Broker, kind_of
from messager_store import EventLog, Replay, import_jsonl
from messager_store.replay.lockstep.report import CastReport
from tests.support.traffic import FILES, lines_of, made

MOST_SAYINGS = 400
RATE = 4000
"""Messages per second over MQTT, where a replay needs a limit."""
LAG = 8
"""In a generated schedule, the agent has not fetched up to this many of the latest messages when it speaks."""
BROKERS = ("memory", "redis", "mqtt")
CASES = [(file, broker) for file in FILES for broker in BROKERS]


@dataclass
class Script:
    """What one agent of a recording received and said."""

    agent: Any
    receives: list[tuple[str, Any]]
    """Channel and value of each message, in order. Its own messages come back as it encodes them."""
    says: list[tuple[int, str, str]]
    """Number of messages received before, channel and payload of each message that it says."""

    @property
    def channels(self) -> list[str]:
        return sorted({channel for _, channel, _ in self.says})


@dataclass
class Repeater:
    """Agent that follows a script; the saying `altered` differs in one value."""

    script: Script
    renamed: dict[str, str]
    altered: int | None = None
    received: list[tuple[str, Any]] = field(default_factory=list)
    spoke_after: list[int] = field(default_factory=list)

    async def __call__(self, messager: Messager) -> None:
        await messager.subscribe_and_start_listening([self.renamed[channel] for channel in self.script.channels])
        recorded = {wire: channel for channel, wire in self.renamed.items()}
        for number, (heard, channel, payload) in enumerate(self.script.says):
            while len(self.received) < heard:
                for message in await messager.fetch_messages():
                    self.received.append((recorded[message["channel"].decode()], json.loads(message["data"])))
            self.spoke_after.append(len(self.received))
            said = json.loads(payload)
            if number == self.altered:
                said["altered"] = True
            await messager.send_message(self.renamed[channel], said, from_id=self.script.agent)


def talkative(lines: list[dict[str, Any]]) -> Any:
    """Return the sender with the most messages, of those with at most `MOST_SAYINGS`."""
    counted = Counter((type(line["from_id"]), line["from_id"]) for line in lines)
    return next(sender for (_, sender), count in counted.most_common() if count <= MOST_SAYINGS)


def is_from(line: dict[str, Any], agent: Any) -> bool:
    return type(line["from_id"]) is type(agent) and bool(line["from_id"] == agent)


def unscheduled(lines: list[dict[str, Any]]) -> Script:
    """Return the script of an agent of a recording without a schedule: it gets all that precedes in replay order."""
    agent = talkative(lines)
    ordered = [lines[at] for at in sorted(range(len(lines)), key=lambda at: (lines[at]["ts"], at))]
    channels = {line["channel"] for line in ordered if is_from(line, agent)}
    script = Script(agent, [], [])
    for line in ordered:
        if is_from(line, agent):
            script.says.append((len(script.receives), line["channel"], line["payload"]))
        if line["channel"] in channels:
            script.receives.append((line["channel"], json.loads(line["payload"])))
    return script


def scheduled(lines: list[dict[str, Any]], file: Path) -> Script:
    """Write a recording with the schedule of an agent that lags behind, and return its script."""
    dice = random.Random(16)
    agent = talkative(lines)
    ordered = [lines[at] for at in sorted(range(len(lines)), key=lambda at: (lines[at]["ts"], at))]
    channels = {line["channel"] for line in ordered if is_from(line, agent)}
    script = Script(agent, [], [])
    heard = 0
    told: list[dict[str, Any]] = [{"format": "messager/2"}]
    for line in ordered:
        mine = is_from(line, agent)
        if mine:
            heard = max(heard, len(script.receives) - dice.randrange(LAG))
            script.says.append((heard, line["channel"], line["payload"]))
        whose = {"recorder": 2, "messager": "live", "arrival": heard} if mine else {"messager": "others", "arrival": 0}
        told.append({**line, **whose})
        if line["channel"] in channels:
            script.receives.append((line["channel"], json.loads(line["payload"])))
            reception = {"kind": "received", "recorder": 2, "messager": "live", "arrival": len(script.receives)}
            told.append({**line, **reception})
    file.write_text("".join(json.dumps(line) + "\n" for line in told))
    return script


@asynccontextmanager
async def two_brokers(name: str, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Broker, Broker]]:
    """The broker of the replay and that of the live agent: the same in memory, else connections of their own."""
    if name == "memory":
        shared = MemoryBroker()
        yield shared, shared
        return
    url = request.getfixturevalue(name).url
    first, second = open_broker(url), open_broker(url)
    try:
        yield first, second
    finally:
        await second.close()
        await first.close()


async def replayed(
    log: EventLog, brokers: tuple[Broker, Broker], agent: Repeater, mapping: dict[str, str]
) -> CastReport:
    """Replay the experiment with this agent live, and return what it said compared with the recording."""
    rate = None if kind_of(brokers[0].url).reports_subscribers else RATE
    replay = Replay(log, "source", brokers[0], live=[agent.script.agent], mapping=mapping, rate=rate, patience=60)
    async with Messager(brokers[1], "again") as messager:
        await replay.attach(messager, [agent.script.agent])
        playing = asyncio.create_task(agent(messager))
        report = await replay.run()
        await playing
    assert report.cast is not None
    return report.cast


async def check(log: EventLog, script: Script, brokers: tuple[Broker, Broker], broker: str, pace: str) -> None:
    """Replay with a faithful agent, then with one that alters one message."""
    used = {channel for channel, _ in script.receives}
    mapping = {name: name.replace(":", "/").replace("#", "") for name in used if "#" in name and broker == "mqtt"}
    renamed = {name: mapping.get(name) or (name.replace(":", "/") if broker == "mqtt" else name) for name in used}
    number = len(script.says)

    faithful = Repeater(script, renamed)
    cast = await replayed(log, brokers, faithful, mapping)
    assert cast.equal and cast.divergences == [], cast.divergences[:1]
    assert [cast.total(name) for name in ("expected", "matched", "unexpected", "lost")] == [number, number, 0, 0]
    assert cast.pace == pace
    assert faithful.spoke_after == [heard for heard, _, _ in script.says]
    assert faithful.received == script.receives[: len(faithful.received)]

    altered = number // 2
    cast = await replayed(log, brokers, Repeater(script, renamed, altered), mapping)
    assert [cast.total(name) for name in ("matched", "different", "missing", "unexpected")] == [number - 1, 1, 0, 0]
    [divergence] = cast.divergences
    assert cast.first is divergence and not cast.timed_out
    assert (divergence.kind, divergence.index, divergence.of) == ("different", altered, number)
    assert (divergence.path, divergence.channel) == ("$.altered", renamed[script.says[altered][1]])


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("file", "broker"), CASES, ids=[f"{file.name}-{broker}" for file, broker in CASES])
async def test_an_agent_that_repeats_recorded_traffic_matches_and_an_altered_answer_is_the_only_divergence(
    log: EventLog, file: Path, broker: str, request: pytest.FixtureRequest
) -> None:
    script = unscheduled(lines_of(file))
    await import_jsonl(log, file, "source")
    async with two_brokers(broker, request) as brokers:
        await check(log, script, brokers, broker, "weaker")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("broker", "schedule"),
    [
        pytest.param(
            broker,
            schedule,
            id=f"{broker}-{'with' if schedule else 'without'}-schedule",
            marks=() if (broker, schedule) in (("memory", True), ("redis", False)) else pytest.mark.nightly,
        )
        for broker in BROKERS
        for schedule in (True, False)
    ],
)
async def test_an_agent_that_repeats_generated_traffic_matches_and_an_altered_answer_is_the_only_divergence(
    log: EventLog, broker: str, schedule: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = made(tmp_path, 4000)
    if schedule:
        script = scheduled(lines_of(file), tmp_path / "scheduled.jsonl")
        file = tmp_path / "scheduled.jsonl"
    else:
        script = unscheduled(lines_of(file))
    await import_jsonl(log, file, "source")
    async with two_brokers(broker, request) as brokers:
        await check(log, script, brokers, broker, "lockstep" if schedule else "weaker")
