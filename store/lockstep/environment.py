"""Lockstep across processes: with `MESSAGER_REPLAY` set, every Messager takes its part of the schedule from the log.

`messager` finds `begin` as an entry point of the group `messager.gates`. There is no coordinator: the gates are local,
and the only thing that live programs tell each other is which of them are subscribed (`announcing`). A Messager finds
the recorded Messager it stands for by its subscriptions, then by its senders.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from messager import channels
from messager.brokers import Broker, kind_of
from messager.calls.exchange import CallRefused
from messager.endpoint import Endpoint
from messager.hooks import LogHook, say
from messager.record import MessageRecord
from messager.variables import CALLS, INTO

from ..errors import StoreError, StoreUnavailable
from ..experiments import registry
from ..experiments.records import Experiment
from ..log.channel_map import ChannelMap
from ..log.event import Cursor
from ..log.event_log import EventLog
from ..log.lineage import PREFIX, STOPPED, parent_of
from ..log.selection import Selection
from ..replay.plan import make_plan
from ..text import plural
from .announcing import Announcing, is_announcement
from .calls import Calls, answered_by
from .cut import closed_cut, load_recording
from .divergence_text import short_lines
from .gate import ScheduleGate
from .policy import Policy
from .prefix import Prefix
from .report import KEPT, PartReport, first_of
from .run import Lockstep
from .schedule import Part
from .settings import AGENTS, VARIABLE, Settings
from .to_the_end import ToTheEnd

_runs: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Task[Run]]] = WeakKeyDictionary()
"""Replays of this process, by event loop and exp_id of their Messagers."""
_CLOSED = "its Messager was closed before its last message, and goes on if the same Messager is opened again"


async def begin(endpoint: Endpoint, broker: Broker) -> LateGate:
    """Return the gate of the endpoint of a Messager. Raises `StoreError` if the schedule cannot be read."""
    loop = asyncio.get_running_loop()
    runs = _runs.setdefault(loop, {})
    known = runs.get(endpoint.exp_id)
    if known is not None and known.done():
        if known.cancelled() or known.exception():
            known = None
        elif (before := known.result()).ended:
            before.say_what_is_left()
            known = None
    if known is None:
        known = runs[endpoint.exp_id] = loop.create_task(_load(endpoint.exp_id, broker))
    run = await asyncio.shield(known)
    run.brokers.append(broker)
    return LateGate(run, endpoint, broker)


async def _load(exp_id: str, broker: Broker) -> Run:
    settings = Settings.from_environment()
    assert settings.store is not None
    async with EventLog.open(settings.store, create=False) as log:
        of = await log.experiment(settings.experiment)
        if of.exp_id == (os.environ.get(INTO) or exp_id) and os.environ.get("MESSAGER_STORE"):
            raise StoreError(
                f"the recording {of.exp_id} cannot be replayed into itself: give the live Messagers another exp_id, or "
                "unset MESSAGER_STORE"
            )
        plan = await make_plan(
            log,
            of,
            Selection(),
            channel_map=ChannelMap(settings.map, exp_id),
            broker_url=broker.url,
            keep_names=False,
        )
        recording = await load_recording(log, plan, calls=os.environ.get(CALLS) == "serve")
        cursor = await _fork_cursor(log, of, exp_id)
    kind, wire = kind_of(broker.url), plan.channel_map
    if cursor is None:
        policy: Policy = ToTheEnd(on_timeout=settings.on_timeout)
    else:
        policy = Prefix(closed_cut(recording, cursor).keys, others=True)
    given: dict[str, Any] = {"live": settings.live, "match": settings.match, "patience": settings.patience}
    return Run(settings, Lockstep(recording, kind, wire, policy, **given), exp_id, broker)


async def _fork_cursor(log: EventLog, of: Experiment, exp_id: str) -> Cursor | None:
    """Return where the prefix ends if the live experiment is a fork of the recording; None if it is not.

    The fork is in the store that is recorded into, or in that of the recording. Raises `StoreError` if it was forked
    from another experiment of the same exp_id.
    """
    fork = await registry.by_exp_id(log.database, exp_id)
    target = os.environ.get("MESSAGER_STORE")
    if target is not None and (fork is None or parent_of(fork) is None):
        with contextlib.suppress(StoreUnavailable):  # the recorder will create it
            async with EventLog.open(target, create=False) as other:
                fork = await registry.by_exp_id(other.database, exp_id)
    parent = None if fork is None else parent_of(fork)
    if fork is None or parent is None or parent.exp_id != of.exp_id:
        return None
    if (state := str(fork.meta.get(PREFIX))).startswith(STOPPED):
        raise StoreError(f"the fork {exp_id} is not continued ({state}): fork {of.exp_id} again, with a new exp_id")
    cursor = parent.position({row.uuid: row.ordinal for row in await log.recorders(of)})
    if cursor is None:
        raise StoreError(
            f"{exp_id} was forked from another recording of {of.exp_id} than that in {log.location}. Name the store of "
            "its parent, as `store` in the file of MESSAGER_REPLAY"
        )
    return cursor


class Run:
    """One replay, as the Messagers of this process see it."""

    def __init__(self, settings: Settings, lockstep: Lockstep, exp_id: str, broker: Broker) -> None:
        self.settings = settings
        self.lockstep = lockstep
        self.brokers: list[Broker] = []
        """Those of the Messagers that are connected."""
        self.ended = False
        self._broker_of: dict[str, Broker] = {}
        """Brokers of the Messagers that have a part, by its key."""
        self._closed: set[str] = set()
        """Keys of the parts of closed Messagers."""
        exp = lockstep.recording.exp_id
        self._loose = Calls(lockstep.cast.loose, PartReport("", "endpoints without agents", [], False), exp)
        self._exp_id = exp_id
        self._announcing = Announcing(
            broker,
            exp_id,
            lockstep.presence,
            kind_of(broker.url),
            failed=lambda error: say(str(error)),
            note=say,
            stopped=lockstep.policy.stopped_elsewhere,
        )
        lockstep.policy.stop_together(self._announcing)
        if settings.live == "all" and not lockstep.policy.holds:
            self._say_recorded()

    def candidates(self, patterns: Sequence[str], sender: Any) -> list[Part]:
        """Return the parts that a Messager with these subscriptions and this sender (None: unknown) may stand for."""
        free = [part for part in self.lockstep.cast.parts if part.key not in self.lockstep.gates]
        if (agents := self.settings.agents) is not None:
            free = [part for part in free if any(_same(one, agent) for one in part.agents for agent in agents)]
        subscribed = {channels.encode(pattern) for pattern in patterns}
        fitting = [part for part in free if part.exact and set(map(self.lockstep.wire, part.patterns)) == subscribed]
        own = {parsed.agent_id for pattern in patterns if (parsed := channels.parse(pattern)) is not None}
        fitting = fitting or [part for part in free if any(_same(one, agent) for one in part.agents for agent in own)]
        if sender is not None:
            fitting = [part for part in fitting or free if any(_same(one, sender) for one in part.agents)]
        return fitting or (free if len(free) == 1 and agents is not None else [])

    def why_none(self) -> str:
        """Return what would let a Messager without a part have one."""
        cast = self.lockstep.cast.parts
        known = ", ".join(part.label for part in cast[:10]) or "no live agents"
        if (agents := self.settings.agents) is not None and not any(
            _same(one, agent) for part in cast for one in part.agents for agent in agents
        ):
            return f"{AGENTS} is {', '.join(map(str, agents))}; the recording has {known}."
        taken = [part.label for part in cast if part.key in self.lockstep.gates]
        if taken:
            return (
                f"{AGENTS}=ID names the agents that it plays; other Messagers of this process play {', '.join(taken)}."
                + "".join(f" {gate.part.label}: {_CLOSED}." for gate in self._left())
            )
        return f"{AGENTS}=ID names the agents that it plays; the recording has {known}."

    def may_subscribe_to_more(self, patterns: Sequence[str]) -> bool:
        """Return whether a recorded Messager that is free had these subscriptions and more: they may still come."""
        subscribed = {channels.encode(pattern) for pattern in patterns}
        free = [part for part in self.lockstep.cast.parts if part.key not in self.lockstep.gates]
        return any(subscribed < set(part.covered) for part in free)

    def take(self, endpoint: Endpoint, broker: Broker, parts: list[Part]) -> ScheduleGate:
        """Give a Messager a part, or the parts of several agents of a recording without Messagers."""
        gate = self.lockstep.take(endpoint, parts, self)
        part = gate.part
        self._broker_of[part.key] = broker
        named = "" if part.exact else " (what was heard is not recorded, so the order of the replay is used)"
        say(f"a Messager of {endpoint.exp_id} plays {part.label} of {self.lockstep.recording.exp_id}{named}")
        return gate

    async def announce(self, key: str, patterns: Sequence[str]) -> None:
        """Tell the other live programs what a Messager is subscribed to."""
        await self._announcing.announce(key, list(patterns))

    def closing(self, key: str) -> None:
        """Say what a Messager has said so far."""
        self._report(self.lockstep.gates[key])

    async def left(self, key: str) -> None:
        """Note that a Messager is closed."""
        self._closed.add(key)
        await self.gone(self._broker_of[key])

    async def gone(self, broker: Broker) -> None:
        """Note that a Messager with this broker is closed."""
        self.brokers.remove(broker)
        if self.brokers:
            await self._announcing.use(self.brokers[0])  # the Messager may close its own
        else:
            self.ended = True
            self.lockstep.leave()
            await self._announcing.close()

    def returned(self, key: str) -> None:
        """Note that a Messager was opened again: it goes on at its place."""
        if key not in self._closed:
            return
        self._closed.discard(key)
        self.back(self._broker_of[key])
        gate = self.lockstep.gates[key]
        if (following := gate.place.awaited) is not None:
            say(
                f"a Messager of {self._exp_id} plays {gate.part.label} again, from message {following.index + 1} of "
                f"{len(gate.part.sends)} on. What was published while it was closed is lost"
            )

    def back(self, broker: Broker) -> None:
        """Note that a Messager with this broker was opened again."""
        if not self.brokers:
            self._announcing.broker = broker
        self.brokers.append(broker)
        self.ended = False
        self.lockstep.come_back()

    def loose_answer(self, question: MessageRecord) -> MessageRecord:
        """Return the recorded answer to a question of an endpoint without a part: the first with the same request that
        has no place in a schedule. Raises `CallRefused`."""
        answer = self._loose.claim(question).answer
        if answer is None:
            raise CallRefused(f"{self.lockstep.recording.exp_id} ends before this call was answered")
        return answered_by(answer)

    def say_what_is_left(self) -> None:
        """Say which schedules were not played to their end."""
        for gate in self._left():
            say(f"a new replay of {self.lockstep.recording.exp_id} begins. {gate.part.label}: {_CLOSED}")

    def _left(self) -> list[ScheduleGate]:
        """Return the gates of closed Messagers that have not said everything."""
        return [gate for gate in self.lockstep.gates.values() if gate.suspended and gate.place.awaited is not None]

    def _say_recorded(self) -> None:
        """Say that nobody in the cast says some messages, and who publishes them."""
        recording = self.lockstep.recording
        if recorded := len(recording.messages) - len(self.lockstep.cast.expected):
            say(
                f"{recorded} messages of {recording.exp_id} have no live sender: "
                f"`messager replay {recording.exp_id} --live ...` publishes them"
            )

    def _report(self, gate: ScheduleGate) -> None:
        """Say what a Messager has said so far, compared with the recording."""
        unsaid = gate.verdicts.unsaid()
        report = replace(gate.report, missing=gate.report.missing + len(unsaid))
        counts = ", ".join(
            f"{getattr(report, name)} {name}"
            for name in ("matched", "different", "missing", "unexpected", "late", "early")
            if name not in ("late", "early") or getattr(report, name)
        )
        pace = ", timed out" if report.timed_out else ""
        pace += "" if report.order_known else ", order of reception not known"
        say(f"{report.label}: {plural(report.expected, 'message')} expected, {counts}{pace}")
        if unheard := sum(not gate.hearing.subscriptions.hears(one.channel) for one in gate.part.receptions):
            recorded = ", ".join(map(channels.decode, gate.part.covered)) or "nothing"
            say(
                f"  {plural(unheard, 'message')} of the recording could not reach it: it was subscribed to "
                f"{', '.join(gate.hearing.subscriptions.patterns) or 'nothing'}, and the recorded one to {recorded}"
            )
        if report.timed_out and not self._announcing.replayed and self.settings.live != "all":
            self._say_recorded()
        own = [*(one for one in self.lockstep.report.divergences if one.part == report.label), *unsaid][:KEPT]
        if (first := first_of(own)) is not None:
            for line in short_lines(first, own):
                say(line)
            if self.settings.report is None:
                say(f'  all of them: set "report" to a folder in the JSON file that {VARIABLE} names')
        if self.settings.report is not None:
            folder = Path(self.settings.report)
            text = json.dumps({**report.to_dict(), "divergences": [one.to_dict() for one in own]}, indent=2)
            file = folder / f"{report.key.replace(' ', '-').replace('/', '_')}.json"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                file.write_text(text + "\n")
            except OSError as error:
                say(f"cannot write the report {file}: {error.strerror or error}. Name another folder as `report`")


class LateGate:
    """Gate of a Messager that does not know yet which recorded Messager it stands for (see `messager.gate.Gate`).

    Once that is known, the gate of the part takes its place; a Messager that stands for none keeps it.
    """

    def __init__(self, run: Run, endpoint: Endpoint, broker: Broker) -> None:
        self._run = run
        self._endpoint = endpoint
        self._broker = broker
        self._patterns: list[str] = []
        self._held: list[dict[str, Any]] | None = []  # None if the Messager stands for none
        self._gate: ScheduleGate | None = None  # for the calls that are under way
        self._closed = False

    def check(self, hook: LogHook) -> None:
        self._run.lockstep.recording.check(hook)

    async def subscribed(self, patterns: Sequence[str]) -> None:
        self._patterns = list(patterns)
        if self._gate is not None:
            await self._gate.subscribed(self._patterns)
        elif self._undecided:
            agent = self._endpoint.agent
            found = self._run.candidates(self._patterns, agent)
            if len(found) == 1 and (agent is not None or not self._run.may_subscribe_to_more(self._patterns)):
                await self._take(found)

    def arrived(self, message: dict[str, Any]) -> None:
        if self._held is not None:
            self._held.append(message)
        elif not is_announcement(message["channel"]):
            self._endpoint.deliver(message)

    async def fetching(self) -> None:
        if self._undecided:
            found = self._run.candidates(self._patterns, self._endpoint.agent)
            if len(found) > 1 and all(part.exact for part in found):
                if any(part.acts and part.acts[0].needs for part in found):
                    raise StoreError(_ambiguous(found))
                return  # each of them speaks before it receives anything: its sender tells which it is
            await self._take(found)
        if self._gate is not None:
            await self._gate.fetching()

    async def sending(self, record: MessageRecord) -> None:
        if self._undecided:
            found = self._run.candidates(self._patterns, record.from_id)
            if len(found) > 1 and all(part.exact for part in found):
                raise StoreError(_ambiguous(found))
            await self._take(found)
        if self._gate is not None:
            await self._gate.sending(record)

    def passed(self, record: MessageRecord, done: bool) -> None:
        if self._gate is not None:
            self._gate.passed(record, done)

    async def asking(self, question: MessageRecord) -> MessageRecord:
        """Return the recorded answer to a question to a model. Raises `CallRefused`."""
        if self._undecided:
            found = self._run.candidates(self._patterns, question.from_id)
            if len(found) > 1 and all(part.exact for part in found):
                raise StoreError(_ambiguous(found))
            await self._take(found)
        return self._run.loose_answer(question) if self._gate is None else await self._gate.asking(question)

    def asking_now(self, question: MessageRecord) -> MessageRecord:
        """Return the recorded answer without waiting. Raises `CallRefused`."""
        return self._run.loose_answer(question) if self._gate is None else self._gate.asking_now(question)

    def marked(self, record: MessageRecord) -> None:
        """Do nothing: nobody knows which mark it repeats."""

    async def close(self) -> None:
        self._closed = True
        self._release_held()
        await self._run.gone(self._broker)

    def connected(self) -> None:
        if self._closed:
            self._closed = False
            self._patterns, self._held = [], []  # it may have a part now
            self._run.back(self._broker)

    async def _take(self, parts: list[Part]) -> None:
        """Give the Messager the gate of a part, or let everything pass."""
        if not parts:
            if not (self._run.lockstep.cast.loose and self._endpoint.agent is None):  # which has calls only
                say(
                    f"a Messager of {self._endpoint.exp_id} stands for none of {self._run.lockstep.recording.exp_id}: "
                    f"it runs without a gate. {self._run.why_none()}"
                )
            self._release_held()
            return
        self._gate = self._run.take(self._endpoint, self._broker, parts)
        try:
            await self._gate.subscribed(self._patterns)
        finally:  # what arrives meanwhile comes behind what was held
            held, self._held = self._held or [], None
            for message in held:
                self._gate.arrived(message)
            self._endpoint.set_gate(self._gate)

    @property
    def _undecided(self) -> bool:
        """True until the Messager has a part, or none."""
        return self._gate is None and self._held is not None

    def _release_held(self) -> None:
        """Deliver what arrived before it was known which part this Messager plays."""
        held, self._held = self._held or [], None
        for message in held:
            self.arrived(message)


def _ambiguous(parts: Sequence[Part]) -> str:
    named = "; ".join(part.label for part in parts[:5])
    return (
        f"a live Messager may stand for {named}: they had the same subscriptions. Set {AGENTS}=ID in the environment "
        "of its process, or `agents` in the file of MESSAGER_REPLAY"
    )


def _same(one: Any, other: Any) -> bool:
    """Return whether two ids are the same agent; in channels and variables 5 is also "5"."""
    return bool(one == other) or str(one) == str(other)
