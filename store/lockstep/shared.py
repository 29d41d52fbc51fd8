"""Shared state of a lockstep replay: what its gates, its releases and its observer know of it and of each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from messager import channels
from messager.brokers.kind import BrokerKind
from messager.record import MessageRecord

from ..errors import StoreError
from ..log.event import Event
from ..matching.match import Match
from ..recording.derived_ids import DerivedIds
from .cast import Cast, Live, Wire, make_cast
from .patience import Patience
from .policy import Policy
from .presence import Presence
from .recording import Recording
from .report import CastReport, Divergence
from .schedule import Act, ActState, Key, Part, Reception, key
from .verdicts import HEARD_SHOWN, Verdicts

PATIENCE_S = 30.0


class Gated(Protocol):
    """A Messager of this process with a gate: a `ScheduleGate`."""

    @property
    def suspended(self) -> bool:
        """True while it is closed before its last message."""

    def expect(self, source: Key, payload: bytes) -> None:
        """Expect a recorded message with another payload."""

    def miss(self, act: Act) -> None:
        """Give up an act."""

    def never_said(self, source: Key) -> None:
        """Do not wait for a message that its sender did not say."""


class Shared:
    """State of a `Lockstep`, whose arguments these are."""

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
        self.patience = Patience(patience, policy.expire, lambda: paused() or self._judges, self._thinking_s)
        self.presence = Presence(self.cast.parts)
        self.gates: Mapping[str, Gated] = {}
        """Gates of the Messagers in this process, by key of the part."""
        self.admit = admit
        self.kind = kind
        self.wire = wire
        self.match = match or Match()
        self.ended: set[str] = set()
        """Keys of the parts whose agents have returned."""
        self.released: set[Key] | None = None
        """Keys of the released messages; None if this process releases none."""
        self.silent: dict[tuple[str, str], tuple[int, int]] = {}
        """Senders that were waited for in vain: how often in a row, and how much came before the last such act."""
        self.waiting: asyncio.Future[None] | None = None
        """Of the releases, while they wait for live messages."""
        self._instead = instead
        self._senders = DerivedIds(recording.sender_rules)
        self._failure: Exception | None = None
        self._verdicts: dict[str, Verdicts] = {}  # by key of the part
        self._set_up()

    def _set_up(self) -> None:
        """Complete the state, before any agent is attached."""

    def _thinking_s(self) -> float:
        """Return the time (s) that the awaited agents took in the recording since they had last spoken."""
        return 0.0

    # Verdicts

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

    def _diverged_elsewhere(self, part: Part, divergence: Divergence) -> None:
        """Add to a divergence what was heard: a gate in another process hands over what was heard in the recording."""
        hears = self.presence.remote.get(part.key)
        if hears is not None and divergence.index is not None and not divergence.heard:
            needs = part.sends[divergence.index].needs
            before = [one for one in part.receptions[:needs] if hears(one.channel)]
            divergence.heard = [(channels.decode(one.channel), one.payload) for one in before[-HEARD_SHOWN:]]
        self._diverged(divergence)

    def _diverged(self, divergence: Any) -> None:
        self.report.add(divergence)
        self.policy.diverged(divergence)

    # The end

    def stop(self, error: Exception) -> None:
        """End `releases` with this error."""
        first, self._failure = self._failure is None, self._failure or error
        self.wake()
        self.presence.close()
        if first:
            self.policy.stopped(error)

    def wake(self) -> None:
        """Let the releases look again for what they have to wait for."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    @property
    def failed(self) -> bool:
        """True once the replay stops."""
        return self._failure is not None

    @property
    def releasing(self) -> bool:
        """True while recorded messages are released in this process."""
        return self.released is not None

    # Live messages

    def is_suspended(self, part: Part) -> bool:
        """Return whether the Messager of a part, in this process, is closed before its last message."""
        gate = self.gates.get(part.key)
        return gate is not None and gate.suspended

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

    def progress(self) -> None:
        """Note that something has happened that others may wait for."""
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
            gate.expect(key(act.event), payload)

    def spoke(self, part: Part, act: Act) -> None:
        """Note that a sender has said a message in the place of a recorded one."""
        if self.silent:
            self.silent.pop((part.key, repr(act.event.from_id)), None)

    def origin(self, place: Key) -> tuple[str, int] | None:
        """Return what is recorded as the origin of a repeated event."""
        if not self.policy.origins:
            return None
        uuid = self.recording.uuids.get(place[0])
        return None if uuid is None else (uuid, place[1])
