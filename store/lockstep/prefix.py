"""Prefix: the lockstep of a fork. Live agents repeat the part before a cut, and are then on their own.

    REPEATING ──> all said ──> DRAINING ──> all received ──> OPEN
        │                         │
        └──── divergence, or no progress for `patience` ────> STOPPED, in all processes

A gate opens when its own part of the prefix is done: its sayings are out, and its receptions have arrived. What is not
part of the prefix, because a gate elsewhere is open already, is held back until then, and so is what the agent says
after its last saying. Nothing that differs from the prefix is sent. In a stopped prefix, nothing more is sent or handed
over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from messager import channels
from messager.brokers import Broker
from messager.brokers.kind import BrokerKind
from messager.endpoint import Endpoint
from messager.errors import NotConnected
from messager.record import MessageRecord

from ..matching.match import Match
from ..text import safe
from .announcing import Announcing
from .cast import Live, Wire
from .following import Following
from .gate import ScheduleGate
from .recording import Recording, key
from .report import Divergence
from .run import PATIENCE_S, Lockstep, LockstepStopped
from .schedule import Key, Part, Reception, Saying, SayingState, Verdict
from .stop_notice import StopNotice
from .verdicts import Verdicts
from .wire import WireObserver


class PrefixDiverged(LockstepStopped):
    """A live agent did not repeat the prefix; nothing that differs was sent."""

    def __init__(self, divergence: Divergence) -> None:
        which = "a message" if divergence.index is None else f"message {divergence.index + 1} of {divergence.of}"
        what = {"missing": "was not said", "unexpected": "is not in the recording"}.get(divergence.kind, "differs")
        at = f" (at {safe(divergence.path)})" if divergence.path else ""
        super().__init__(
            f"the fork stopped: {which} of {safe(divergence.part)} on {safe(divergence.channel)} {what}{at}. Make "
            "the agents repeat the recording, give a `match` that accepts the difference, or fork at an earlier point."
        )
        self.divergence = divergence


class ProgramsMissing(LockstepStopped):
    """Nobody plays some parts of the prefix. `strangers` are programs that were started without `MESSAGER_REPLAY`."""

    def __init__(self, parts: Sequence[Part], patience: float, parent: str, strangers: Sequence[str] = ()) -> None:
        named = ", ".join(part.label for part in parts)
        without = f" Without MESSAGER_REPLAY, {', '.join(strangers)} recorded into the fork." if strangers else ""
        super().__init__(
            f"the fork stopped: no live program plays {named}, and none came within {patience:g} s.{without} Start "
            f"each with MESSAGER_REPLAY={parent} in its environment and the exp_id of the fork, or raise the patience."
        )
        self.parts, self.patience, self.parent = parts, patience, parent


class PrefixGate(ScheduleGate):
    """Gate of one live Messager of a fork."""

    def __init__(self, messager: Endpoint, part: Part, verdicts: Verdicts, replay: Following) -> None:
        self._stopped: str | None = None
        self._held: list[asyncio.Future[None]] = []  # sendings that wait until the gate is open
        self.on_claim: Callable[[Saying, bytes], None] = lambda saying, payload: None
        """Called before a message is sent in the place of a recorded one."""
        super().__init__(messager, part, verdicts, replay)
        self._recorded = {one.origin for one in self.part.receptions}  # not those that only stand for a sending
        self.pairing.by_order = False  # surplus messages may be live already

    @property
    def marks_left(self) -> int:
        """Number of marks of the prefix that were not repeated yet."""
        return len(self._marks)

    @property
    def waits_for(self) -> str | None:
        """Text that says what the gate waits for; None if it is open, or if its agent is to go on."""
        if self.open:
            return None
        limit = len(self.part.receptions) if self._all_said else self._limit()
        absent = [one for one in self.part.receptions[:limit] if one.message is None and not (one.handed or one.lost)]
        if not absent or not (self._fetches or self._turns.waiting or self._all_said):
            return None
        on = channels.decode(absent[0].channel)
        return f"{self.part.label} waits for message {absent[0].arrival}, on {on}"

    @property
    def _expects_more(self) -> bool:
        """True if a message of the prefix was not said yet. Those on their way may be sent at once with live ones."""
        left = self.part.sayings[self._next :]
        return any(one.state is SayingState.PENDING and one.awaited for one in left)

    async def subscribed(self, patterns: Sequence[str]) -> None:
        await super().subscribed(patterns)
        self._advance()

    def arrived(self, message: dict[str, Any]) -> None:
        if self._stopped is not None:
            return
        super().arrived(message)

    async def fetching(self) -> None:
        self.check_stopped()
        await super().fetching()
        self.check_stopped()

    async def sending(self, record: MessageRecord) -> None:
        self.check_stopped()
        await super().sending(record)
        self.check_stopped()

    def marked(self, record: MessageRecord) -> None:
        super().marked(record)
        self._replay.progress()

    async def close(self) -> None:
        await super().close()
        self._refuse_held(NotConnected("not sent: the Messager was closed meanwhile. Send before closing it."))

    def give_up_marks(self) -> None:
        """Expect no more marks of the prefix: a later one is live."""
        self._marks.clear()

    def finish(self) -> None:
        """End the prefix: if it is not complete, the gate is stopped."""
        if self.open or self._stopped is not None:
            return
        super().finish()
        if not self.open:
            self.stop("the prefix of the fork was not completed")

    def stop(self, reason: str) -> None:
        """Send and hand over nothing more: calls raise `LockstepStopped`."""
        if self._stopped is not None:
            return
        self._stopped = reason
        for waiting in self._fetches:
            if not waiting.done():
                waiting.set_exception(LockstepStopped(reason))
        self._fetches = []
        self._turns.refuse(LockstepStopped(reason))
        self._refuse_held(LockstepStopped(reason))

    def expect(self, source: Key, payload: bytes) -> None:
        """Expect the receptions of a sending with this payload, which matches the recorded one."""
        changed = [one for one in self.part.receptions if one.source == source and one.payload != payload]
        for reception in changed:
            reception.payload = payload
        self.pairing.add(changed)

    def _origin_of(self, reception: Reception) -> tuple[str, int] | None:
        return super()._origin_of(reception) if reception.origin in self._recorded else None

    def _refuse_held(self, error: Exception) -> None:
        held, self._held = self._held, []
        for waiting in held:
            if not waiting.done():
                waiting.set_exception(error)

    def check_stopped(self) -> None:
        if self._stopped is not None:
            raise LockstepStopped(self._stopped)

    async def _claim(self, record: MessageRecord) -> Saying | None:
        """Return the saying that a message repeats. Any other message waits until the gate is open, and is live then.

        Raises `LockstepStopped` for one that differs, or has no place in the prefix.
        """
        saying = await super()._claim(record)
        if saying is None:
            if self._expects_more:
                self._note_unexpected(record)
            while not self.open:
                self.check_stopped()
                waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._held.append(waiting)
                await waiting
        elif saying.verdict is Verdict.DIFFERENT:
            self.verdicts.said(saying, record)
        else:
            self.on_claim(saying, record.payload)
        self.check_stopped()
        return saying

    def _open(self) -> None:
        if self.open or self._stopped is not None:
            return
        if not self._hand(len(self.part.receptions)):
            return
        super()._open()
        held, self._held = self._held, []
        for waiting in held:
            if not waiting.done():
                waiting.set_result(None)


class PrefixObserver(WireObserver):
    """Observer of live programs that repeat a prefix. Their gates send nothing that differs, so any other message is
    live already."""

    async def _said(self, channel: bytes, payload: bytes) -> None:
        expected = [one.event.payload for unclaimed in self._unclaimed.values() for one in unclaimed.on(channel)]
        own = self._own[channel, payload] > 0
        if own or self._match.judge is not None or any(self._match.same(one, payload) for one in expected):
            await super()._said(channel, payload)


class PrefixLockstep(Lockstep):
    """Lockstep of the part `cut` of a recording, whose keys are those of its events; then its live agents go on.

    `recording` is the complete one, so that also an agent that is silent in the prefix is known. `released_on` says
    whether recorded messages of a channel are published. The other arguments are those of `Lockstep`.
    """

    GATE = PrefixGate

    def __init__(
        self,
        recording: Recording,
        cut: frozenset[Key],
        kind: BrokerKind,
        wire: Wire,
        *,
        live: Live = "all",
        match: Match | None = None,
        patience: float = PATIENCE_S,
        begun: frozenset[Key] = frozenset(),
        released_on: Callable[[str], bool] = lambda channel: True,
        paused: Callable[[], bool] = lambda: False,
    ) -> None:
        """`begun` are the events that are part of the checkpoints of the agents, which do not repeat them."""
        super().__init__(
            recording,
            kind,
            wire,
            live=live,
            match=match,
            patience=patience,
            on_timeout="stop",
            continues=True,
            origins=True,
            paused=paused,
        )
        played = cut - begun
        dropped = {
            key(entry)
            for entry in recording.messages
            if key(entry) not in self.cast.expected and not released_on(entry.channel or "")
        }
        for part in self.cast.parts:
            part.sayings = [one for one in part.sayings if key(one.event) in played]
            part.receptions = [one for one in part.receptions if one.origin in played and one.source not in dropped]
            part.marks = [one for one in part.marks if key(one) in played]
            part.number()
        self.cast.expected = {place: found for place, found in self.cast.expected.items() if place in played}
        self.recording = Recording(
            recording.exp_id,
            [entry for entry in recording.events if key(entry) in cut],
            [entry for entry in recording.messages if key(entry) in played and key(entry) not in dropped],
            recording.uuids,
        )
        self.on_progress: Callable[[], None] = lambda: None
        """Called after each event that live agents repeat."""
        self.on_stop: Callable[[StopNotice], None] = lambda notice: None
        """Called once, with the reason, when the prefix stops."""
        self._moved = asyncio.Event()
        self._all_released = False
        self._programs: set[str] = set()  # keys of the parts that programs of other processes are to announce
        self._by_order = False

    @property
    def repeats(self) -> frozenset[Key]:
        """Events of the prefix that live agents are expected to repeat."""
        found = set(self.cast.expected)
        for part in self.cast.parts:
            found.update(one.origin for one in part.receptions)
            found.update(map(key, part.marks))
        return frozenset(found)

    def is_settled(self, place: Key) -> bool:
        """Return False for a message of a live agent that is still to be said."""
        found = self.cast.expected.get(place)
        return found is None or found[1].settled or not found[1].awaited

    def take(self, messager: Endpoint, parts: list[Part]) -> ScheduleGate:
        gate = super().take(messager, parts)
        assert isinstance(gate, PrefixGate)
        gate.on_claim = self._claimed
        gate.pairing.by_order = self._by_order
        return gate

    def expect_others(self) -> None:
        """Note that live agents of other processes take part. If the judge accepts another payload there, only the
        order tells here for which message it stands."""
        self._by_order = self.match.judge is not None
        for gate in self.gates.values():
            gate.pairing.by_order = self._by_order

    def observer(self, broker: Broker) -> WireObserver:
        return PrefixObserver(
            self, broker, [part for part in self.cast.parts if part.key not in self.gates], self.match
        )

    def stop_together(self, announcing: Announcing) -> None:
        """Stop with the live programs of other processes, and tell them why this one stops."""
        self.on_stop = lambda notice: announcing.stopped(notice.to_dict())
        announcing.on_stopped = self._stopped_elsewhere

    def _stopped_elsewhere(self, data: dict[str, Any]) -> None:
        notice = StopNotice.of_dict(data, self.cast.parts)
        divergence = notice.divergence
        if divergence is None:
            self.stop(LockstepStopped(notice.reason))
            return
        part = next(one for one in self.cast.parts if one.label == divergence.part)
        self.observed(part).elsewhere(divergence)

    async def until_there(self, parts: list[Part]) -> None:
        """Wait until the Messagers of these parts, in other processes, have announced themselves.

        Those that only send, or have nothing in the prefix, are not waited for; nor are those that only listened, if
        there are live Messagers in this process, as such a listener is part of no agent that could be played. Raises
        `ProgramsMissing` if one does not come for `patience` after the one before.
        """
        programs = [one for one in parts if one.patterns and not self._leave_out(one)]
        self._programs = {part.key for part in programs}
        for part in programs:
            self.patience.progress()
            await super().until_there([part])
        self.patience.progress()
        self._check()

    def _missing(self) -> list[Part]:
        """Return the parts that are waited for and that nobody has announced.

        What was seen on the wire does not count: programs without a gate may say the same.
        """
        waited = self.presence.awaited
        if self._released is None:
            waited |= self._programs
        elif self.awaited is not None and not self._has_begun(self.awaited[0]):
            waited |= {part.key for part in self.cast.parts if any(one.awaited for one in part.sayings)}
        there = self.gates.keys() | self.presence.remote.keys()
        return [part for part in self.cast.parts if part.key in waited - there]

    def needs(self, part: Part) -> bool:
        return bool(part.sayings or (part.receptions and not self.gates))

    def _leave_out(self, part: Part) -> bool:
        """Return whether a part is not waited for; nobody waits for its subscription either, then."""
        needed = self.needs(part)
        if not needed:
            self.presence.left(part)
        return not needed

    def stop(self, error: Exception) -> None:
        first = self._failure is None
        super().stop(error)
        if first:
            for part in self.cast.parts:
                if part.key not in self.gates:
                    report = self.observed(part).report
                    report.gated, report.attached = True, part.key in self.presence.remote
            self.on_stop(StopNotice(str(error), error.divergence if isinstance(error, PrefixDiverged) else None))
        for gate in self.gates.values():
            if isinstance(gate, PrefixGate) and not gate.open:
                gate.stop(str(error))
        self._moved.set()

    def leave(self) -> None:
        for gate in self.gates.values():  # not what other processes say, which this one does not see
            gate.finish()
        super().leave()

    def finish(self) -> None:
        if self._failure is None:
            super().finish()
        self.patience.stop()

    async def _tail(self) -> None:
        """Wait until all gates of this process are open, and all marks are repeated.

        Programs of other processes must have announced themselves by then: others would have recorded no origins.
        """
        self._all_released = True
        await self.presence.started(one for one in self.cast.parts if one.sayings and one.key not in self.gates)
        while self._failure is None and any(
            isinstance(gate, PrefixGate) and (not gate.open or gate.marks_left) for gate in self.gates.values()
        ):
            self._moved.clear()
            await self._moved.wait()

    def _expire(self) -> None:
        """Stop. Marks that are not repeated are given up: nobody depends on them."""
        if missing := self._missing():
            self.stop(ProgramsMissing(missing, self.patience.seconds, self.recording.exp_id))
            return
        gates = [gate for gate in self.gates.values() if isinstance(gate, PrefixGate)]
        if self._all_released and all(gate.open for gate in gates):
            for gate in gates:
                gate.give_up_marks()
            self._moved.set()
            return
        waits = next((what for gate in gates if (what := gate.waits_for) is not None), None)
        if self.awaited is not None:
            part, saying = self.awaited
            if waits is None or saying.state is SayingState.PENDING:
                self._timed_out(part)
                waits = f"{part.label} did not say message {saying.number + 1} of {len(part.sayings)}"
        if waits is None and self._released is None:
            return  # no recorded messages in this process: its agents may think as long as they like
        waits = waits or "a live Messager did not subscribe"
        self.stop(
            LockstepStopped(
                f"the fork stopped: {waits}, and nothing happened for {self.patience.seconds:g} s. Raise the "
                "patience, or fork at an earlier point."
            )
        )

    def crashed(self, part: Part, error: BaseException) -> None:
        if not isinstance(error, LockstepStopped):  # which the gates of a stopped prefix raise
            super().crashed(part, error)

    def _claimed(self, saying: Saying, payload: bytes) -> None:
        """Tell the gates that a message differs, by what `match` accepts, from the recorded one."""
        if payload != saying.event.payload:
            for gate in self.gates.values():
                if isinstance(gate, PrefixGate):
                    gate.expect(key(saying.event), payload)

    def _has_begun(self, part: Part) -> bool:
        """Return False for a part of another process of which nothing was seen yet."""
        there = part.key in self.gates or part.key in self.presence.remote
        return there or any(saying.settled for saying in part.sayings)

    def progress(self) -> None:
        super().progress()
        self._moved.set()
        self.on_progress()

    def _diverged(self, divergence: Any) -> None:
        super()._diverged(divergence)
        self.stop(PrefixDiverged(divergence))
