"""Lockstep: a replay in which live agents follow the recorded schedule.

Recorded messages are released in replay order, each after the live messages before it. The gates of the live agents
hold back what comes too early, so the order of release matters only to listeners without gates.

| wait for                          | who waits           | given up, after `patience` without progress              |
|-----------------------------------|---------------------|----------------------------------------------------------|
| receptions before the next saying | `gate.fetching`     | first: those whose sending was released are lost         |
| the turn of a saying              | `gate.sending`      | second: if nobody fetches, it is said nevertheless       |
| a recipient that is not there yet | `releases`, senders | third: it is absent                                      |
| the next live message             | `releases`          | last: it is missing, and so are later ones of its sender |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from messager import channels
from messager.brokers import Broker
from messager.brokers.kind import BrokerKind
from messager.endpoint import Endpoint
from messager.hooks import LogHook

from ..errors import StoreError
from ..log.event import Event
from ..matching.match import Match
from ..text import plural
from .cast import Cast, Live, Wire, make_cast, weak_receptions
from .ending import QUIET_S, until_quiet
from .gate import ScheduleGate
from .order import release_order
from .patience import Patience
from .presence import Presence
from .recording import Recording, key
from .report import CastReport, Divergence
from .schedule import Key, Part, Reception, Saying, SayingState
from .verdicts import HEARD_SHOWN, Verdicts
from .virtual_time import VirtualLoop
from .wire import WireObserver

if TYPE_CHECKING:
    from messager import Messager

PATIENCE_S = 30.0
TOGETHER = 500
"""Maximum number of recorded messages that are released together."""
OnTimeout = Literal["continue", "stop"]


class LiveAgentFailed(StoreError):
    """The task of a live agent raised. Its error is the cause."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"a live agent failed: {type(error).__name__}: {error}")
        self.__cause__ = error


class LockstepStopped(StoreError):
    """A wait was given up, and the replay was to stop then."""


class Lockstep:
    """One replay with live agents. `wire` gives the channel on which messages of a recorded channel are published.

    `live` are the agents that are live, by id, or "all". `match` decides whether a message is the expected one.
    `patience` is the time (s) without any progress after which a wait is given up, and `on_timeout` says whether the
    replay continues then. A sender that was waited for in vain is silent: what follows is missing at once until it
    speaks again, or, up to `chances` times in a row, until it hears something new. With `continues`, live agents may
    say more after their last recorded message. With `origins`, the records of live Messagers name the recorded events
    that they repeat. Raises `CastError`.
    """

    GATE = ScheduleGate
    """Class of the gates."""

    def __init__(
        self,
        recording: Recording,
        kind: BrokerKind,
        wire: Wire,
        *,
        live: Live = "all",
        match: Match | None = None,
        patience: float = PATIENCE_S,
        on_timeout: OnTimeout = "continue",
        continues: bool = False,
        origins: bool = False,
        chances: int = 3,
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        if not patience > 0:
            raise StoreError(f"{patience!r} is not a patience: give seconds, more than zero")
        if on_timeout not in ("continue", "stop"):
            raise StoreError(f"unknown on_timeout {on_timeout!r}: give continue or stop")
        self.recording = recording
        self.cast: Cast = make_cast(recording, live, wire)
        self.report = CastReport()
        self.patience = Patience(patience, self._expire, lambda: paused() or self._judges, self._thinking_s)
        self.presence = Presence(self.cast.parts)
        self.gates: dict[str, ScheduleGate] = {}
        """Gates of the Messagers in this process, by key of the part."""
        self.on_divergence: Callable[[], None] = lambda: None
        """Called after each divergence."""
        self.admit: Callable[[Event | None], Awaitable[None]] | None = None
        """Awaited before each message of a live agent of this process (see `ScheduleGate.admit`)."""
        self.kind = kind
        self.wire = wire
        self.match = match or Match()
        self._on_timeout = on_timeout
        self._chances = chances
        self.continues = continues
        self._origins = origins
        self._parts = {part.key: part for part in self.cast.parts}
        self._run: list[tuple[Part, Saying]] = []  # live messages that `releases` waits for, in order
        self._run_at = 0  # those before are settled
        self._waiting: asyncio.Future[None] | None = None  # of `releases`
        self._begun = False  # True once it is decided which parts are played in other processes
        self._released: set[Key] | None = None  # keys of the released messages, while `releases` runs
        self._silent: dict[tuple[str, str], tuple[int, int]] = {}
        """Senders that were waited for in vain: how often in a row, and how much came before the last such saying."""
        self._unannounced: set[str] = set()  # keys of parts whose programs have no Messager
        self._ended: set[str] = set()  # keys of parts whose agents have returned
        self._failure: Exception | None = None
        self._verdicts: dict[str, Verdicts] = {}  # by key of the part

    # Live Messagers

    def attach(self, messager: Messager | Endpoint, agents: Iterable[Any] | int | str | None = None) -> ScheduleGate:
        """Give a Messager of this process, or another endpoint, the part of these agents, and set its gate.

        Call it before its first message.

        Without `agents`, there must be only one part left. Raises `StoreError` if no part fits, or several do, or if
        the replay has begun, or the Messager would be recorded into what is replayed.
        """
        if self._begun:
            raise StoreError("the replay has begun: attach Messagers before it runs")
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            self.recording.check_environment(messager.exp_id)
        endpoint = messager if isinstance(messager, Endpoint) else messager.endpoint
        gate = self.take(endpoint, self.cast.parts_of(agents, self.gates))
        endpoint.set_gate(gate)
        return gate

    def take(self, messager: Endpoint, parts: list[Part]) -> ScheduleGate:
        """Return a gate with which a Messager of this process plays a part, or several weak ones that are joined."""
        part = self.cast.join(parts)
        self.presence.forget(parts[1:])
        gate = self.GATE(messager, part, self._judged(part, gated=True), self)
        self.gates[part.key] = gate
        self.presence.attached(part, gate.subscriptions.hears)
        self.patience.start()
        return gate

    def observer(self, broker: Broker) -> WireObserver:
        """Return an observer of the live programs that have no Messager in this process."""
        self._begun = True
        return WireObserver(self, broker, [part for part in self.cast.parts if part.key not in self.gates], self.match)

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
        verdicts = self._verdicts[part.key] = Verdicts(part, self.match, diverged, gated=gated)
        self.report.parts.append(verdicts.report)
        return verdicts

    def ended(self, part: Part) -> None:
        """Note that the agents of a part say nothing more."""
        self._ended.add(part.key)
        self.presence.left(part)
        if (awaited := self.awaited) is not None and awaited[0] is part:
            self._miss(*awaited)
        self._wake()

    def unannounced(self, parts: Iterable[Part]) -> None:
        """Note that these parts are played by programs that cannot announce themselves: what is said, they say."""
        self._unannounced.update(part.key for part in parts)
        self.presence.unannounced(parts)

    def needs(self, part: Part) -> bool:
        """Return whether a part must be played by a live program."""
        return part.key not in self._unannounced

    def crashed(self, part: Part, error: BaseException) -> None:
        """Note that the task of a live agent raised: `releases` ends with `LiveAgentFailed`."""
        self.report.crashed[part.label] = f"{type(error).__name__}: {error}"
        self.stop(LiveAgentFailed(error))
        self.ended(part)

    def stop(self, error: Exception) -> None:
        """End `releases` with this error."""
        self._failure = self._failure or error
        self._wake()
        self.presence.close()

    # Recorded messages

    async def releases(self) -> AsyncGenerator[list[Event], None]:
        """Yield the recorded messages when they are to be published, and wait for the live ones between them.

        Raises `LiveAgentFailed`, and `LockstepStopped` if a wait was given up and `on_timeout` is "stop".
        """
        self._released = set()
        self.patience.start()
        await self.presence.started([part for part in self.cast.parts if not part.exact and part.key in self.gates])
        expected = self.cast.expected
        batch: list[Event] = []
        run: list[tuple[Part, Saying]] = []
        try:
            for entry in release_order(self.recording, self.cast):
                place = key(entry)
                found = expected.get(place)
                if found is not None:
                    if batch:
                        yield batch
                        self.progress()
                        batch = []
                    if not found[1].settled:
                        run.append(found)
                    continue
                if run:
                    await self._until_said(run)
                    run = []
                    self._check()
                if self.presence.lacks_recipient(place):
                    if batch:
                        yield batch
                        batch = []
                    if (wait := self.presence.wait_for(place)) is not None:
                        await wait
                self._released.add(place)
                batch.append(entry)
                if len(batch) == TOGETHER:
                    yield batch
                    self.progress()
                    batch = []
                    self._check()
            if batch:
                yield batch
            await self._until_said(run)
            self._check()
            await self._tail()
            self._check()
        finally:
            self.finish()

    async def until_there(self, parts: list[Part]) -> None:
        """Wait until the Messagers of these parts, in other processes, have announced themselves."""
        self.patience.start()
        await self.presence.started(parts)

    def leave(self) -> None:
        """Note that all Messagers of this process are closed: nothing waits here any more."""
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
        self.presence.close()
        self._run = []
        for part in self.cast.parts:
            gate = self.gates.get(part.key)
            if gate is not None:
                gate.finish()
                continue
            report = self.observed(part).report
            if unsubscribed := self.presence.unsubscribed(part):
                named = ", ".join(map(channels.decode, unsubscribed))
                self.report.notes.append(f"{part.label} has not subscribed to {named}, where the recorded one received")
            report.gated = report.elsewhere = part.key in self.presence.remote
            spoken = report.matched + report.different
            report.attached = report.gated or (spoken > 0 and part.key in self._unannounced)
            report.absent = self.needs(part) and not report.attached
            if report.absent and spoken:
                self.report.notes.append(
                    f"no live program plays {part.label}: {plural(spoken, 'message')} in its place came from others"
                )
                report.matched = report.different = 0
                report.missing += spoken
                report.unexpected += spoken
            for saying in part.sayings:
                if saying.awaited and not saying.settled:
                    self._miss(part, saying)
        if self.cast.without_sender:
            self.report.notes.append(
                f"{self.cast.without_sender} messages have neither Messager nor sender: published from the recording"
            )

    async def _until_said(self, run: list[tuple[Part, Saying]]) -> None:
        """Wait until live messages are out, or given up."""
        self._run, self._run_at = run, 0
        while self._failure is None and (awaited := self.awaited) is not None:
            part, saying = awaited
            if (part.key in self._ended or self._is_silent(part, saying)) and saying.state is SayingState.PENDING:
                self._miss(part, saying)
                continue
            last = run[-1][1]
            if self._silent or self._ended or last.settled:
                last = saying  # else the last one is enough: nobody is given up without a call of `_wake`
            self._waiting = last.waiting = asyncio.get_running_loop().create_future()
            await self._waiting
            last.waiting = None
        self._run = []

    @property
    def awaited(self) -> tuple[Part, Saying] | None:
        """The first live message that `releases` waits for; None if there is none."""
        while self._run_at < len(self._run) and self._run[self._run_at][1].settled:
            self._run_at += 1
        return self._run[self._run_at] if self._run_at < len(self._run) else None

    def _wake(self) -> None:
        """Let `releases` look again for what it has to wait for."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _is_silent(self, part: Part, saying: Saying) -> bool:
        """Return whether the sender was waited for in vain, as often as it may, or has heard nothing since."""
        times, needs = self._silent.get((part.key, repr(saying.event.from_id)), (0, -1))
        if (gate := self.gates.get(part.key)) is not None and gate.closed:
            return any(silent == part.key for silent, _ in self._silent)
        return times >= self._chances or (times > 0 and saying.needs <= needs)

    async def _tail(self) -> None:
        """Wait for messages after the last one that others wait for: blocked ones, and unexpected ones."""
        if self.continues or not self.recording.events:
            return
        sayings = [saying for part in self.cast.parts for saying in part.sayings if saying.awaited]
        last = max((saying.event.ts for saying in sayings), default=self.recording.events[0].ts)
        await until_quiet(
            max(self.recording.events[-1].ts - last, 0) / 1e9,
            min(QUIET_S, self.patience.seconds) if self.report.timed_out else self.patience.seconds,
            others=any(part.key not in self.gates and self.observed(part).report.matched for part in self.cast.parts),
            idle=lambda: self._failure is not None or all(self.gates[key].idle for key in self._running),
            returned=lambda: not self._running,
        )

    @property
    def _running(self) -> set[str]:
        """Keys of the parts of this process whose agents have not returned."""
        return self.gates.keys() - self._ended

    # Waits that are given up

    def _thinking_s(self) -> float:
        """Return the time (s) that the awaited agents took in the recording since they had last spoken.

        Only in virtual time, where it costs nothing: patience begins when the message was due.
        """
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            return 0.0
        if (awaited := self.awaited) is not None:
            return self._since_last(*awaited)
        return max((self._since_last(gate.part, gate.next_saying) for gate in self.gates.values()), default=0.0)

    def _since_last(self, part: Part, saying: Saying | None) -> float:
        if saying is None:
            return 0.0
        before = part.sayings[saying.number - 1].event if saying.number else self._first_of(saying.event)
        return max(saying.event.ts - before.ts, 0) / 1e9

    def _first_of(self, event: Event) -> Event:
        """Return the first event of the same Messager, or of the same recorder if the Messager is unknown."""
        return next(
            one for one in self.recording.events if (one.recorder, one.messager) == (event.recorder, event.messager)
        )

    def _expire(self) -> None:
        """Give up one wait, in the order of the table above."""
        if sum(gate.lost(self._arrives) for gate in self.gates.values()):
            return self._given_up("a message did not arrive")
        if sum(gate.release() for gate in self.gates.values()):
            return self._given_up("an agent speaks before it has fetched what it had heard in the recording")
        if (absent := self.presence.give_up()) is not None:
            if self._released is None:  # each gate is on its own, and one of them has waited
                for gate in self.gates.values():
                    gate.report.timed_out = True
            return self._given_up(f"{absent} did not subscribe")
        if (awaited := self.awaited) is not None:
            part, saying = awaited
            sender = part.key, repr(saying.event.from_id)
            self._silent[sender] = self._silent.get(sender, (0, 0))[0] + 1, saying.needs
            self._timed_out(part)
            self._miss(part, saying)
            self._wake()
            return self._given_up(f"{part.label} did not say message {saying.number + 1}")
        if self._released is None:  # no recorded messages in this process: each gate is on its own
            for gate in [gate for gate in self.gates.values() if not gate.waits]:
                if (silent := gate.next_saying) is not None:
                    gate.report.timed_out = True
                    for hearer in self.gates.values():
                        hearer.silence(gate.part.key)
                    self._miss(gate.part, silent)
        return None

    def _given_up(self, what: str) -> None:
        if self._on_timeout == "stop":
            self.stop(LockstepStopped(f"{what} within {self.patience.seconds:g} s. Raise the patience, or continue."))

    def _arrives(self, reception: Reception) -> bool:
        """Return whether a message that a gate waits for may still be sent."""
        if reception.source is None:
            return False
        found = self.cast.expected.get(reception.source)
        if found is None:
            return self._released is not None and reception.source not in self._released
        part, saying = found
        gate = self.gates.get(part.key)
        return not saying.settled and (self._released is not None or (gate is not None and not gate.closed))

    def remote(self, reception: Reception) -> str | None:
        """Return the part of the sender of a reception if `releases` of this process do not wait for it."""
        if self._released is not None or self.continues or reception.source is None:
            return None
        found = self.cast.expected.get(reception.source)
        return "" if found is None else found[0].key

    def may_differ(self, reception: Reception) -> bool:
        """Return whether another message than the recorded one may stand for a reception.

        Recorded messages are published byte for byte. Those of live agents differ only once they are said, as far as
        this process knows.
        """
        if reception.source is None:
            return True
        found = self.cast.expected.get(reception.source)
        return found is not None and (found[1].settled or found[0].key not in self.gates)

    def _miss(self, part: Part, saying: Saying) -> None:
        gate = self.gates.get(part.key)
        if gate is not None:
            gate.miss(saying)
        else:
            saying.settle(SayingState.MISSING)
            self.observed(part).missing(saying)
        for hearer in self.gates.values():
            hearer.never_said(key(saying.event))

    def _timed_out(self, part: Part) -> None:
        self.observed(part).report.timed_out = True

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # What gates ask and report

    def check(self, hook: LogHook) -> None:
        """Refuse a log hook that records into the recording."""
        self.recording.check(hook)

    def weak_receptions(self, copies: Callable[[bytes], int]) -> list[Reception]:
        """Return the receptions of a part whose schedule is not exact, by the copies that it gets of a message."""
        return weak_receptions(self.recording, self.wire, copies)

    def ready(self, message: Key) -> Awaitable[None] | None:
        """Return a wait until those are subscribed who received a message in the recording; None if they are."""
        return self.presence.wait_for(message)

    def subscribed(self, part: Part) -> None:
        """Note that the Messager of a part has subscribed, or is subscribed no more."""
        self.presence.subscribed(part)

    def begun(self, part: Part) -> None:
        """Note that the Messager of a part has spoken."""
        self.presence.begun(part)

    def progress(self) -> None:
        self.patience.progress()

    def spoke(self, part: Part, saying: Saying, payload: bytes) -> None:
        """Note that a sender has said this payload in the place of a recorded message."""
        if self._silent:
            self._silent.pop((part.key, repr(saying.event.from_id)), None)
        if payload != saying.event.payload:
            self._wake_gates()

    def _diverged_elsewhere(self, part: Part, divergence: Divergence) -> None:
        """Add to a divergence what was heard: a gate in another process hands over what was heard in the recording."""
        hears = self.presence.remote.get(part.key)
        if hears is not None and divergence.index is not None and not divergence.heard:
            needs = part.sayings[divergence.index].needs
            before = [one for one in part.receptions[:needs] if hears(one.channel)]
            divergence.heard = [(channels.decode(one.channel), one.payload) for one in before[-HEARD_SHOWN:]]
        self._diverged(divergence)

    def _diverged(self, divergence: Any) -> None:
        self.report.add(divergence)
        self._wake_gates()
        self.on_divergence()

    def _wake_gates(self) -> None:
        """Let all fetches look again: another message than the recorded one may stand for a reception now."""
        for gate in self.gates.values():
            gate.wake()

    def origin(self, place: Key) -> tuple[str, int] | None:
        if not self._origins:
            return None
        uuid = self.recording.uuids.get(place[0])
        return None if uuid is None else (uuid, place[1])
