"""A society of five agents that can be forked, and the check that a fork repeats its parent."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

from messager import MemoryBroker, Messager
from messager.brokers import Broker
from messager_store import Event, EventLog, Fork
from messager_store.lockstep.cut import closed_cut
from messager_store.lockstep.recording import Recording, is_own_mark
from messager_store.log.lineage import parent_of
from messager_store.maintenance.verify import verify
from tests.support.logs import listed

AT = "mark:phase#3"
"""Point at which most tests fork the society."""
LEADER, TICKER, THINKER, CASTER, QUIET = range(1, 6)
Agent = Callable[[Messager], Awaitable[None]]


class Society:
    """Five agents: one leads by marks, one ticks, one answers slowly, one sends to several at once, one is mostly
    silent. What they say depends on everything that they have heard, and on `words` of the leader, one for each phase.
    """

    def __init__(self, words: str, *, pause: float = 0.05, seed: int | None = None) -> None:
        self._words = words
        self._pause = pause
        self._random = random.Random(seed)

    @property
    def agents(self) -> dict[Any, Agent]:
        """The functions of the agents, by id."""
        return {
            LEADER: self._lead,
            TICKER: self._tick,
            THINKER: self._think,
            CASTER: self._cast,
            QUIET: self._keep_quiet,
        }

    async def _lead(self, messager: Messager) -> None:
        me = await _Member.of(messager, LEADER)
        await asyncio.sleep(self._pause)  # the others subscribe
        for word in self._words:
            messager.mark("phase", word=word)
            for other in (TICKER, THINKER, CASTER, QUIET):
                await me.say(other, word)
            await asyncio.sleep(self._pause * 2)
            await me.hear()
        for other in (TICKER, THINKER, CASTER, QUIET):
            await me.say(other, "end")

    async def _tick(self, messager: Messager) -> None:
        me = await _Member.of(messager, TICKER)
        while "end" not in await me.hear():
            await asyncio.sleep(self._pause / 3)
            await me.say(QUIET, "tick")

    async def _think(self, messager: Messager) -> None:
        me = await _Member.of(messager, THINKER)
        heard: list[str] = []
        while "end" not in heard:
            heard = await me.hear()
            if heard:
                await asyncio.sleep(self._pause * self._random.random())
                await me.say(LEADER, "thought")
            await asyncio.sleep(self._pause / 5)

    async def _cast(self, messager: Messager) -> None:
        me = await _Member.of(messager, CASTER)
        heard: list[str] = []
        while "end" not in heard:
            heard = await me.hear()
            if heard:
                await asyncio.gather(*(me.say(other, "all") for other in (TICKER, THINKER, QUIET)))
            await asyncio.sleep(self._pause / 5)

    async def _keep_quiet(self, messager: Messager) -> None:
        me = await _Member.of(messager, QUIET)
        heard: list[str] = []
        while "end" not in heard:
            heard = await me.hear()
            if me.count // 12 > me.said:
                await me.say(LEADER, "enough")
            await asyncio.sleep(self._pause / 5)


class _Member:
    """One agent: what it says tells everything that it has heard."""

    def __init__(self, messager: Messager, agent: int) -> None:
        self._messager = messager
        self._agent = agent
        self._memory = hashlib.sha256()
        self.count = self.said = 0

    @classmethod
    async def of(cls, messager: Messager, agent: int) -> _Member:
        await messager.subscribe_and_start_listening([messager.get_subtopic_channel(agent, "*")])
        return cls(messager, agent)

    async def hear(self) -> list[str]:
        words = []
        for message in await self._messager.fetch_messages():
            data = message["data"] if isinstance(message, dict) else message.payload  # on MQTT
            self._memory.update(data)
            self.count += 1
            words.append(json.loads(data)["word"])
            if words[-1] == "end":  # what is received later was not fetched in every recording
                break
        return words

    async def say(self, other: int, word: str) -> None:
        self.said += 1
        payload = {"word": word, "heard": self.count, "memory": self._memory.hexdigest()[:8]}
        channel = self._messager.get_agent_chat_channel(other)
        await self._messager.send_message(channel, payload, self._agent, other)


async def recorded(broker: Broker, recorder: Any, exp_id: str, agents: dict[Any, Agent], clock: Any = None) -> None:
    """Run agents, each with a Messager, until all have returned, and record them with this hook."""
    messagers = [Messager(broker, exp_id, clock=clock) for _ in agents]
    for messager in messagers:
        messager.add_log_hook(recorder)
        await messager.init()
    await asyncio.gather(*(agent(messager) for agent, messager in zip(agents.values(), messagers, strict=True)))
    for messager in messagers:
        await messager.close()


def fork(log: EventLog, into: str = "exp-2", **options: Any) -> Fork:
    """Return a fork in memory of exp-1 at the third phase."""
    given: dict[str, Any] = {"at": AT, "patience": 10, **options}
    return Fork(log, given.pop("of", "exp-1"), into, given.pop("broker", None) or MemoryBroker(), **given)


def society(words: str = "abXY") -> dict[Any, Any]:
    return Society(words, pause=0.02, seed=2).agents


async def whole_part(log: EventLog, into: str = "exp-2") -> list[Event]:
    """Assert that a stopped fork has only events of its parent, each once, and is clean. Return them."""
    uuids = {row.ordinal: row.uuid for row in await log.recorders(await log.experiment("exp-1"))}
    theirs = {(uuids[entry.recorder], entry.seq) for entry in await listed(log.read("exp-1", until=AT))}
    events = await listed(log.read(into))
    origins = [entry.origin for entry in events if entry.origin is not None]
    assert len(origins) == len(set(origins)) and set(origins) <= theirs
    own = [entry for entry in events if entry.origin is None]
    assert all(map(is_own_mark, own))
    assert (await verify(log, await log.experiment(into))).problems == []
    return events


async def check_fork(log: EventLog, parent: str, into: str, at: Any) -> list[Event]:
    """Assert that a fork has each event of the prefix once and as it was, knows its parent, and is clean.

    Return its events.
    """
    of = await log.experiment(parent)
    rows = await log.recorders(of)
    uuids = {row.ordinal: row.uuid for row in rows}
    recording = Recording.of_events(parent, await listed(log.read(of)))
    fork = await log.experiment(into)
    known = parent_of(fork)
    assert known is not None and known.exp_id == parent
    cursor = known.position({uuid: ordinal for ordinal, uuid in uuids.items()})
    assert cursor is not None
    if at is not None:
        first = (await listed(log.read(of, since=at, limit=1)))[0]
        assert first.cursor == cursor
    cut = closed_cut(recording, cursor)
    expected = {(uuids[entry.recorder], entry.seq): entry for entry in recording.events if entry in cut}
    events = await listed(log.read(fork))
    repeated = [entry for entry in events if entry.origin is not None]
    origins = [entry.origin for entry in repeated]
    assert len(origins) == len(set(origins)), "an event is repeated twice"
    assert set(origins) == expected.keys()
    told = {entry.origin: _facts(entry, into) for entry in repeated if entry.origin is not None}
    differ = {origin: (fact, _facts(expected[origin], into)) for origin, fact in told.items()}
    wrong = [pair for pair in differ.values() if pair[0] != pair[1]]
    assert not wrong, wrong
    for order in _orders(repeated, lambda entry: entry.origin):
        told = [expected[origin] for origin in order]
        assert told == sorted(told, key=lambda entry: entry.cursor)
    verdict = await verify(log, fork)
    assert verdict.problems == [], verdict.problems
    return events


def _facts(entry: Event, into: str) -> tuple[Any, ...]:
    channel = None if entry.channel is None else entry.channel.replace("/", ":")
    if channel is not None and channel.startswith("exps:"):
        channel = ":".join(["exps", into, *channel.split(":")[2:]])
    if is_own_mark(entry):
        return entry.kind, channel
    return entry.kind, channel, entry.payload, entry.from_id, entry.to_id, (entry.meta or {}).get("name"), entry.arrival


def _orders(events: list[Event], of: Callable[[Event], Any]) -> list[list[Any]]:
    """Return the acts, and the receptions, of each Messager in order."""
    found: dict[Any, list[Any]] = {}
    for entry in events:
        if entry.messager is not None and not is_own_mark(entry):
            found.setdefault((entry.messager, entry.kind == "received"), []).append(of(entry))
    return list(found.values())
