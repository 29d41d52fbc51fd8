"""Recordings made by hand, and live agents that play in them in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from messager import MemoryBroker, Messager, channels
from messager.brokers import kind_of
from messager.record import CLOSED, SUBSCRIBED, MessageRecord
from messager_store.lockstep import virtual_time
from messager_store.lockstep.play import LiveAgents
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.report import CastReport
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.log.event import Event

Agent = Callable[[Messager], Awaitable[Any]]
MEMORY = kind_of(MemoryBroker.url)


class Scene:
    """A recording in which each agent has a Messager, on a broker that delivers at once."""

    def __init__(self, *, schedule: bool = True) -> None:
        """Without `schedule`, the recording is that of a tap or of an older version: it names no Messager."""
        self.events: list[Event] = []
        self._schedule = schedule
        self._patterns: dict[str, list[str]] = {}
        self._arrived: dict[str, int] = {}
        self._fetched: dict[str, int] = {}

    def subscribe(self, who: Any, *channels: str) -> None:
        """Subscribe the Messager of an agent, or of several that share it."""
        name = _messager(who)
        self._patterns.setdefault(name, []).extend(channels)
        if self._schedule:
            meta = {"name": SUBSCRIBED, "fields": {"patterns": list(self._patterns[name])}}
            self._add("mark", None, b"", messager=name, arrival=self._fetched.get(name, 0), meta=meta)

    def say(self, who: Any, channel: str, content: Any, *, kind: str = "sent", sender: Any = ..., **more: Any) -> Event:
        """Send a message; `who` is the agent, or the agents of its Messager, and then `sender` is the agent."""
        name, payload = _messager(who), json.dumps(content).encode()
        sender = (who if not isinstance(who, tuple) else None) if sender is ... else sender
        if self._schedule:
            more |= {"messager": name, "arrival": self._fetched.get(name, 0)}
        said = self._add(kind, channel, payload, from_id=sender, **more)
        if kind == "sent":
            self.deliver(channel, content)
        return said

    def deliver(self, channel: str, content: Any, *only: Any) -> None:
        """Deliver a message to all who are subscribed, or only to some, also if its sending was not recorded."""
        names = [_messager(who) for who in only] or list(self._patterns)
        for name in names:
            for pattern in self._patterns.get(name, ()):
                if self._schedule and MEMORY.matches(pattern, channel.encode()):
                    self._arrived[name] = self._arrived.get(name, 0) + 1
                    arrival = self._arrived[name]
                    self._add("received", channel, json.dumps(content).encode(), messager=name, arrival=arrival)

    def fetch(self, *who: Any) -> None:
        """Fetch everything that has arrived."""
        for name in map(_messager, who):
            self._fetched[name] = self._arrived.get(name, 0)

    def mark(self, who: Any, name: str) -> None:
        """Log a mark."""
        messager = _messager(who)
        arrival = self._fetched.get(messager, 0)
        self._add("mark", None, b"", messager=messager, arrival=arrival, meta={"name": name, "fields": {}})

    def close(self, who: Any) -> None:
        """Close the Messager of an agent."""
        self.mark(who, CLOSED)

    def recording(self) -> Recording:
        """Return the recording, experiment `e` of recorder `r`."""
        return Recording.of_events("e", self.events, {1: "r"})

    def skewed(self, offsets: Mapping[Any, int]) -> Recording:
        """Return the recording with a recorder for each Messager, whose clocks are fast by so many events."""
        shifts = {_messager(who): offset for who, offset in offsets.items()}
        recorders: dict[str | None, int] = {}
        seqs: dict[int, int] = {}
        events = []
        for entry in self.events:
            recorder = recorders.setdefault(entry.messager, len(recorders) + 1)
            seq = seqs[recorder] = seqs.get(recorder, 0) + 1
            shift = shifts.get(entry.messager or "", 0)
            events.append(replace(entry, ts=entry.ts + shift * 1000, recorder=recorder, seq=seq))
        return Recording.of_events("e", events, {recorder: f"r{recorder}" for recorder in seqs})

    def _add(self, kind: str, channel: str | None, payload: bytes, **more: Any) -> Event:
        at = len(self.events) + 1
        self.events.append(Event(at * 1000, 1, at, kind, channel, payload, **more))
        return self.events[-1]


def _messager(who: Any) -> str:
    return "messager-of-" + "-".join(map(str, who if isinstance(who, tuple) else (who,)))


@dataclass
class Played:
    """Result of a replay with live agents."""

    report: CastReport
    lockstep: Lockstep
    released: list[Any] = field(default_factory=list)
    """Contents of the messages that were published from the recording, in order."""
    records: dict[Any, list[MessageRecord]] = field(default_factory=dict)
    """What each live Messager logged."""
    seconds: float = 0.0
    """Virtual time until the replay ended, s."""

    def said(self, who: Any) -> list[Any]:
        """Return what an agent said, in order."""
        return [json.loads(one.payload) for one in self.records[who] if one.kind == "sent"]

    def heard(self, who: Any) -> list[Any]:
        """Return what was delivered to the Messager of an agent, in order."""
        return [json.loads(one.payload) for one in self.records[who] if one.kind == "received"]

    def counts(self) -> dict[str, int]:
        """Return the counts of the report that are not zero."""
        names = ("expected", "matched", "different", "missing", "unexpected", "withheld", "lost", "late", "early")
        return {name: count for name in names if (count := self.report.total(name))}


def played(scene: Scene | Recording, agents: Mapping[Any, Agent], *, live: Any = ..., **options: Any) -> Played:
    """Replay a scene with these live agents, in memory and in virtual time; by default, these agents are live."""
    recording = scene.recording() if isinstance(scene, Scene) else scene
    live = [one for ids in agents for one in (ids if isinstance(ids, tuple) else (ids,))] if live is ... else live
    return virtual_time.run(_play(recording, agents, live, options))


async def _play(recording: Recording, agents: Mapping[Any, Agent], live: Any, options: dict[str, Any]) -> Played:
    broker = MemoryBroker()
    given = {"patience": 10.0, "policy": ToTheEnd(), **options}
    lockstep = Lockstep(recording, MEMORY, channels.encode, live=live, **given)
    result = Played(lockstep.report, lockstep)
    names = iter(agents)

    def connected(messager: Messager) -> None:
        messager.add_log_hook(_Hook(result.records.setdefault(next(names), [])))

    clock = virtual_time.virtual_clock()
    loop = asyncio.get_running_loop()
    async with LiveAgents(lockstep, broker, "e", agents, clock=clock, connected=connected):
        async for batch in lockstep.releases():
            result.released += [json.loads(event.payload) for event in batch]
            await broker.publish([(channels.encode(event.channel or ""), event.payload) for event in batch])
        result.seconds = loop.time()
    return result


class _Hook:
    def __init__(self, records: list[MessageRecord]) -> None:
        self._records = records

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Do nothing."""

    def after(self, record: MessageRecord) -> None:
        self._records.append(record)


def faithful(scene: Scene, who: Any) -> Agent:
    """Return an agent that says what it said, after it has heard as much, each time after a second."""
    name = _messager(who)
    own = [entry for entry in scene.events if entry.messager == name]
    marks = [(entry.meta or {})["fields"] for entry in own if entry.kind == "mark"]
    patterns = [pattern for fields in marks for pattern in fields.get("patterns", [])]

    async def agent(messager: Messager) -> None:
        await messager.subscribe_and_start_listening(patterns)
        heard = 0
        for entry in own:
            if entry.kind != "sent":
                continue
            await asyncio.sleep(1)
            while heard < (entry.arrival or 0):
                heard += len(await fetched(messager))
            await messager.send_message(entry.channel or "", json.loads(entry.payload), entry.from_id)

    return agent


async def fetched(messager: Messager) -> list[Any]:
    """Return the contents of the next messages; wait until there are some."""
    while True:
        if messages := [json.loads(message["data"]) for message in await messager.fetch_messages()]:
            return messages
        await asyncio.sleep(0.01)


def questions() -> Scene:
    """Agent 1 asks, and agent 3 answers twice."""
    made = Scene()
    made.subscribe(1, "exps:e1:agents:1:*")
    made.subscribe(3, "exps:e1:agents:3:*")
    for number in range(2):
        made.say(1, "exps:e1:agents:3:q", f"q{number}")
        made.fetch(3)
        made.say(3, "exps:e1:agents:1:a", f"a{number}")
        made.fetch(1)
    return made
