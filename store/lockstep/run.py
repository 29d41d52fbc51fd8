"""Lockstep: a replay in which live agents follow the recorded schedule.

Recorded messages are released in replay order, each after the live messages before it. The gates of the live agents
hold back what comes too early, so the order of release matters only to listeners without gates.

| wait for                          | who waits           | given up, after `patience` without progress              |
|-----------------------------------|---------------------|----------------------------------------------------------|
| receptions before the next act | `gate.fetching`     | first: those whose sending was released are lost         |
| the turn of an act              | `gate.sending`      | second: if nobody fetches, it is said nevertheless       |
| a recipient that is not there yet | `releases`, senders | third: it is absent                                      |
| the next live message             | `releases`          | last: it is missing, and so are later ones of its sender |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from messager import channels
from messager.brokers import Broker
from messager.brokers.kind import BrokerKind
from messager.endpoint import Endpoint
from messager.record import MessageRecord

from ..errors import StoreError
from ..log.event import Event
from ..matching.match import Match
from ..recording.derived_ids import DerivedIds
from ..text import plural
from .cast import Cast, Live, Wire, make_cast
from .following import Company
from .gate import ScheduleGate
from .patience import Patience
from .policy import LockstepStopped, Policy
from .presence import Presence
from .recording import Recording
from .releases import Releases
from .report import CastReport, Divergence, Player
from .schedule import Act, ActState, Key, Part, Reception, key
from .verdicts import HEARD_SHOWN, Verdicts
from .virtual_time import VirtualLoop
from .wire import WireObserver

if TYPE_CHECKING:
    from messager import Messager

    from ..replay.flow_control import Message
    from ..replay.pipeline import Due

PATIENCE_S = 30.0


class LiveAgentFailed(StoreError):
    """The task of a live agent raised. Its error is the cause."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"a live agent failed: {type(error).__name__}: {error}")
        self.__cause__ = error


class Lockstep:
    """One replay with live agents. `wire` gives the channel on which messages of a recorded channel are published.

    `live` are the agents that are live, by id, or "all". `match` decides whether a message is the expected one.
    `patience` is the time (s) without any progress after which `policy` gives up a wait; no time
    counts while `paused` returns True. `admit` is awaited before each message of a live agent of this process, with the
    recorded one in whose place it is said, or None. `instead` is called with each message that was said in the place of
    a recorded one. Raises `CastError`.
    """

    def __init__(
        self,
        recording: Recording,
        kind: BrokerKind,
        wire: Wire,
        policy: Policy,
        *,
        live: Live = "all",
        match: Match | None = None,
        patience: float = PATIENCE_S,
        paused: Callable[[], bool] = lambda: False,
        admit: Callable[[Event | None], Awaitable[None]] | None = None,
        instead: Callable[[Part, Act, MessageRecord], None] | None = None,
        report: CastReport | None = None,
    ) -> None:
        if not patience > 0:
            raise StoreError(f"{patience!r} is not a patience: give seconds, more than zero")
        self.recording = recording
        self.cast: Cast = make_cast(recording, live, wire)
        self.report = CastReport() if report is None else report
        self.policy = policy
        self.patience = Patience(patience, self.policy.expire, lambda: paused() or self._judges, self._thinking_s)
        self.presence = Presence(self.cast.parts)
        self.gates: dict[str, ScheduleGate] = {}
        """Gates of the Messagers in this process, by key of the part."""
        self.admit = admit
        self._instead = instead
        self.kind = kind
        self.wire = wire
        self.match = match or Match()
        self._senders = DerivedIds(recording.sender_rules)
        self._parts = {part.key: part for part in self.cast.parts}
        self.release = Releases(self)
        self._begun = False  # True once it is decided which parts are played in other processes
        self._unannounced: set[str] = set()  # keys of parts whose programs have no Messager
        self.ended: set[str] = set()
        """Keys of the parts whose agents have returned."""
        self._failure: Exception | None = None
        self._verdicts: dict[str, Verdicts] = {}  # by key of the part
        self._observer: WireObserver | None = None
        self.policy.begin(self)

    # Live Messagers

    def attach(
        self,
        messager: Messager | Endpoint,
        agents: Iterable[Any] | int | str | None = None,
        subscribe: Callable[[Part], Awaitable[None]] | None = None,
    ) -> ScheduleGate:
        """Give a Messager of this process, or another endpoint, the part of these agents, and set its gate.

        Call it before its first message. Without `agents`, there must be only one part left. `subscribe` is called with
        the part if the agent fetches before it has subscribed. Raises `StoreError` if no part fits, or several do, if
        the replay has begun, or if the Messager would be recorded into what is replayed.
        """
        if self._begun:
            raise StoreError("the replay has begun: attach Messagers before it runs")
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            self.recording.check_environment(messager.exp_id)
        endpoint = messager if isinstance(messager, Endpoint) else messager.endpoint
        gate = self.take(endpoint, self.cast.parts_of(agents, self.gates), subscribe=subscribe)
        endpoint.set_gate(gate)
        return gate

    def take(
        self,
        endpoint: Endpoint,
        parts: list[Part],
        company: Company | None = None,
        subscribe: Callable[[Part], Awaitable[None]] | None = None,
    ) -> ScheduleGate:
        """Return a gate with which a Messager of this process plays a part, or several weak ones that are joined."""
        part = self.cast.join(parts)
        self.presence.forget(parts[1:])
        gate = ScheduleGate(endpoint, part, self._judged(part, gated=True), self, company, subscribe)
        self.gates[part.key] = gate
        for place, (_, act) in self.cast.expected.items():
            if act.payload is not None:  # said before this Messager had a gate
                gate.hearing.expect(place, act.payload)
        self.presence.attached(part, gate.hearing.subscriptions.hears)
        self.patience.start()
        return gate

    def observer(self, broker: Broker) -> WireObserver:
        """Return an observer of the live programs that have no Messager in this process."""
        self._begun = True
        parts = [part for part in self.cast.parts if part.key not in self.gates]
        self._observer = WireObserver(self, broker, parts, self.match)
        return self._observer

    def observed(self, part: Part) -> Verdicts:
        """Return the verdicts on a part that is played by a program without a gate in this process."""
        return self._verdicts.get(part.key) or self._judged(part, gated=False)

    def unobserved(self, seconds: float) -> None:
        """Note a time (s) in which the connection that observes live programs was lost."""
        self.report.notes.append(
            f"live programs were not observed for {seconds:.1f} s: what they said then counts as missing"
        )

    @property
    def _judges(self) -> bool:
        """True while a judge decides: nobody is given up because of the time that it takes."""
        return any(verdicts.judging for verdicts in self._verdicts.values())

    def _judged(self, part: Part, *, gated: bool) -> Verdicts:
        diverged = self._diverged if gated else partial(self._diverged_elsewhere, part)
        instead = None if self._instead is None else partial(self._instead, part)
        verdicts = self._verdicts[part.key] = Verdicts(part, self.match, diverged, instead, gated=gated)
        self.report.parts.append(verdicts.report)
        return verdicts

    def returned(self, part: Part) -> None:
        """Note that the agents of a part say nothing more."""
        self.ended.add(part.key)
        self.presence.left(part)
        if (awaited := self.release.awaited) is not None and awaited[0] is part:
            self.miss(*awaited)
        self.release.wake()

    def unannounced(self, parts: Iterable[Part]) -> None:
        """Note that these parts are played by programs that cannot announce themselves: what is said, they say."""
        self._unannounced.update(part.key for part in parts)
        self.presence.unannounced(parts)

    def crashed(self, part: Part, error: BaseException) -> None:
        """Note that the task of a live agent raised: `releases` ends with `LiveAgentFailed`."""
        if isinstance(error, LockstepStopped):  # raised by the gates of a stopped fork
            return
        self.report.crashed[part.label] = f"{type(error).__name__}: {error}"
        self.stop(LiveAgentFailed(error))
        self.returned(part)

    def stop(self, error: Exception) -> None:
        """End `releases` with this error."""
        first, self._failure = self._failure is None, self._failure or error
        self.release.wake()
        self.presence.close()
        if first:
            self.policy.stopped(error)

    # Recorded messages

    def releases(self) -> AsyncGenerator[list[Event], None]:
        """Yield the recorded messages when they are to be published (see `Releases.messages`)."""
        return self.release.messages()

    async def batches(self) -> AsyncGenerator[Due, None]:
        """Yield the recorded messages for a `Pipeline`, as `releases` does."""
        async with aclosing(self.releases()) as batches:
            async for batch in batches:
                yield batch, []

    def publishing(self, batch: list[Event], wire: list[Message]) -> None:
        """Note messages that are about to be published."""
        self.policy.releasing(batch)
        if self._observer is not None:
            self._observer.published(wire)

    def published(self, batch: list[Event], dues: list[int] | None) -> None:
        """Note messages that were published, or refused by the broker."""
        self.policy.released()

    def leave(self) -> None:
        """Note that all Messagers of this process are closed: nothing waits here any more."""
        if self.policy.holds:  # what other processes say does not matter
            for gate in self.gates.values():
                gate.finish()
        self.patience.stop()
        self.presence.close()

    def come_back(self) -> None:
        """Note that one of them was opened again: the replay goes on."""
        self.presence.reopen()
        self.patience.stop()
        self.patience.start()

    def finish(self) -> None:
        """End all schedules: what was not said is missing, and the gates are open."""
        self.patience.stop()
        if self.failed and self.policy.holds:
            return
        self.presence.close()
        for part in self.cast.parts:
            gate = self.gates.get(part.key)
            if gate is not None:
                gate.finish()
                continue
            report = self.observed(part).report
            if unsubscribed := self.presence.unsubscribed(part):
                named = ", ".join(map(channels.decode, unsubscribed))
                self.report.notes.append(f"{part.label} has not subscribed to {named}, where the recorded one received")
            report.player = self._player(part, spoken := report.matched + report.different)
            if report.player is Player.ABSENT and spoken:
                self.report.notes.append(
                    f"no live program plays {part.label}: {plural(spoken, 'message')} in its place came from others"
                )
                report.matched = report.different = 0
                report.missing += spoken
                report.unexpected += spoken
            for act in part.acts:
                if act.awaited and not act.settled:
                    self.miss(part, act)
        if self.cast.without_sender:
            self.report.notes.append(
                f"{self.cast.without_sender} messages have neither Messager nor sender: published from the recording"
            )

    def _player(self, part: Part, spoken: int) -> Player:
        """Return who plays a part that no Messager of this process has, and in whose place so much was said."""
        if part.key in self.presence.remote:
            return Player.ELSEWHERE
        if part.key in self._unannounced:
            return Player.OBSERVED if spoken else Player.NOBODY
        return Player.ABSENT if self.policy.needs(part) else Player.NOBODY

    def is_suspended(self, part: Part) -> bool:
        """Return whether the Messager of a part, in this process, is closed before its last message."""
        gate = self.gates.get(part.key)
        return gate is not None and gate.suspended

    @property
    def running(self) -> list[ScheduleGate]:
        """Gates of the Messagers of this process whose agents have not returned."""
        return [gate for key, gate in self.gates.items() if key not in self.ended]

    @property
    def failed(self) -> bool:
        """True once the replay stops."""
        return self._failure is not None

    @property
    def releasing(self) -> bool:
        """True while recorded messages are released in this process."""
        return self.release.released is not None

    # Waits that are given up

    def _thinking_s(self) -> float:
        """Return the time (s) that the awaited agents took in the recording since they had last spoken.

        Only in virtual time, where it costs nothing: patience begins when the message was due.
        """
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            return 0.0
        if (awaited := self.release.awaited) is not None:
            return self._since_last(*awaited)
        return max((self._since_last(gate.part, gate.place.awaited) for gate in self.gates.values()), default=0.0)

    def _since_last(self, part: Part, act: Act | None) -> float:
        if act is None:
            return 0.0
        before = part.acts[act.number - 1].event if act.number else self._first_of(act.event)
        return max(act.event.ts - before.ts, 0) / 1e9

    def _first_of(self, event: Event) -> Event:
        """Return the first event of the same Messager, or of the same recorder if the Messager is unknown."""
        return next(
            one for one in self.recording.events if (one.recorder, one.messager) == (event.recorder, event.messager)
        )

    def arrives(self, reception: Reception) -> bool:
        """Return whether a message that a gate waits for may still be sent."""
        found = self.cast.expected.get(reception.source)
        if found is None:
            return self.releasing and reception.source not in (self.release.released or ())
        part, act = found
        gate = self.gates.get(part.key)
        return not act.settled and (self.releasing or (gate is not None and not gate.suspended))

    def remote(self, reception: Reception) -> str | None:
        """Return the part of the sender of a reception if `releases` of this process do not wait for it."""
        if self.releasing or self.policy.continues:
            return None
        found = self.cast.expected.get(reception.source)
        return "" if found is None else found[0].key

    def may_differ(self, reception: Reception) -> bool:
        """Return whether another message than the recorded one may stand for a reception.

        Recorded messages are published byte for byte, and those of live agents of this process are announced to its
        gates (`claimed`).
        """
        found = self.cast.expected.get(reception.source)
        return found is not None and found[0].key not in self.gates

    def miss(self, part: Part, act: Act) -> None:
        """Give up a message of a live agent."""
        gate = self.gates.get(part.key)
        if gate is not None:
            gate.miss(act)
        else:
            act.settle(ActState.MISSING)
            self.observed(part).missing(act)
        for hearer in self.gates.values():
            hearer.never_said(key(act.event))

    def check_failure(self) -> None:
        """Raise the error with which the replay stops, if it does."""
        if self._failure is not None:
            raise self._failure

    # What gates ask and report

    def progress(self) -> None:
        self.patience.progress()
        if self.policy.holds:  # of the others, nobody asks
            self.policy.progress()

    def sender_of(self, payload: bytes) -> Any:
        """Return the sender that a payload names, by the rules of the recording; None if it names none."""
        return self._senders.from_message(payload, None, sender=True)[0]

    def claimed(self, act: Act, payload: bytes) -> None:
        """Note that a live agent of this process is about to say another payload in the place of a recorded message."""
        act.payload = payload
        for gate in self.gates.values():
            gate.hearing.expect(key(act.event), payload)

    def _diverged_elsewhere(self, part: Part, divergence: Divergence) -> None:
        """Add to a divergence what was heard: a gate in another process hands over what was heard in the recording."""
        hears = self.presence.remote.get(part.key)
        if hears is not None and divergence.index is not None and not divergence.heard:
            needs = part.acts[divergence.index].needs
            before = [one for one in part.receptions[:needs] if hears(one.channel)]
            divergence.heard = [(channels.decode(one.channel), one.payload) for one in before[-HEARD_SHOWN:]]
        self._diverged(divergence)

    def _diverged(self, divergence: Any) -> None:
        self.report.add(divergence)
        self.policy.diverged(divergence)

    def spoke(self, part: Part, act: Act) -> None:
        """Note that a sender has said a message in the place of a recorded one."""
        self.release.spoke(part, act)

    def origin(self, place: Key) -> tuple[str, int] | None:
        if not self.policy.origins:
            return None
        uuid = self.recording.uuids.get(place[0])
        return None if uuid is None else (uuid, place[1])
