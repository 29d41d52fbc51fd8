"""Schedule gate: holds the messages of one live Messager until their place in the recorded schedule.

    broker ──> arrived ──> Hearing ─────────────┬──> fetching: delivers what comes before the next act
                                              Place
    send_message ──> sending ──> Claims, Turns ─┴──> passed: settles the act

`fetching` delivers exactly the receptions that come before the next recorded act, in recorded order. An act has its
turn when these were delivered, and when the earlier acts of this Messager are done. Both depend only on what
happened before in the recording, so faithful agents cannot block each other; patience ends the waits of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, Protocol

from messager import channels
from messager.calls.exchange import CallRefused
from messager.endpoint import Endpoint
from messager.errors import MessagerError, NotConnected
from messager.hooks import LogHook
from messager.record import MessageRecord

from ..errors import JudgeFailed
from .announcing import is_announcement
from .calls import Calls, RecordedCall, answered_by
from .claims import Claims
from .hearing import Hearing
from .patience import Turns
from .policy import LockstepStopped
from .schedule import Act, ActState, Key, Part, Place, Reception, Verdict
from .shared import Shared
from .verdicts import Verdicts


class GateState(Enum):
    """State of a gate.

        FOLLOWING <──> UNBOUND     a sending waited for a fetch in vain ──> the next fetch
          │   ^  │
          v   │  └──> STOPPED      the fork stops, in every process
        SUSPENDED                  closed ──> opened again

        ENDED ──> OPEN <──> IDLE   a fetch that found nothing ──> the next delivery

    The last recorded act leads from the states of the first three rows to OPEN, or to ENDED if the recorded
    Messager was closed with messages that it had not fetched; the end of the replay leads from ENDED to OPEN.
    """

    FOLLOWING = "follows the schedule"
    UNBOUND = "follows the schedule, but sendings wait for no fetch"
    SUSPENDED = "its Messager is closed"
    ENDED = "everything was said and delivered; the rest, which had not been fetched, is held back"
    OPEN = "everything is delivered when it arrives"
    IDLE = "open, and the agent has fetched in vain"
    STOPPED = "nothing is sent or delivered any more"


class Company(Protocol):
    """What hears of the gates of a process whose Messagers found their parts by themselves: a `Run`."""

    async def announce(self, key: str, patterns: Sequence[str]) -> None:
        """Tell the other live programs to what the Messager of a part is subscribed."""

    def closing(self, key: str) -> None:
        """Note that the Messager of a part is about to be closed."""

    async def left(self, key: str) -> None:
        """Note that the Messager of a part is closed."""

    def returned(self, key: str) -> None:
        """Note that the Messager of a part is opened; before it was ever closed, nothing happens."""


class ScheduleGate:
    """Gate of one live Messager (see `messager.gate.Gate`)."""

    def __init__(
        self,
        endpoint: Endpoint,
        part: Part,
        verdicts: Verdicts,
        lockstep: Shared,
        company: Company | None = None,
        subscribe: Callable[[Part], Awaitable[None]] | None = None,
    ) -> None:
        """`company` hears of a Messager that found its part by itself. `subscribe` is called with the part if the agent
        fetches before it has subscribed."""
        self.part = part
        self.verdicts = verdicts
        self.report = verdicts.report
        self.state = GateState.FOLLOWING
        self.open = False
        """True in the states OPEN and IDLE. An attribute, as it is asked several times for each message."""
        self.place = Place(part, continues=lockstep.policy.continues)
        self.hearing = Hearing(self.place, endpoint, verdicts, lockstep)
        self._claims = Claims(part, lockstep.match, verdicts)
        self._calls = Calls(part.acts, verdicts.report, lockstep.recording.exp_id)
        self._lockstep = lockstep
        self._policy = lockstep.policy
        self._company = company
        self._subscribe = subscribe
        self._turns = Turns()
        self._fetches: list[asyncio.Future[None]] = []
        self._held: list[asyncio.Future[None]] = []  # sendings that wait until the gate is open
        self._stop_reason = ""
        self._marks = deque(part.marks)
        self._advance()

    @property
    def suspended(self) -> bool:
        """True while the Messager is closed before its last message: the schedule stands at its place."""
        return self.state is GateState.SUSPENDED

    @property
    def idle(self) -> bool:
        """True after a fetch that found nothing, since nothing is held back that is to be delivered."""
        return self.state is GateState.IDLE or (self.state is GateState.ENDED and not self.hearing.unfetched)

    def _enter(self, state: GateState) -> None:
        self.state = state
        self.open = state in (GateState.OPEN, GateState.IDLE)

    # What arrives

    def check(self, hook: LogHook) -> None:
        self._lockstep.recording.check(hook)

    async def subscribed(self, patterns: Sequence[str]) -> None:
        self._subscribe = None
        self.hearing.subscribed(patterns)
        self._lockstep.presence.subscribed(self.part)
        self._advance()
        await self._announce()

    def arrived(self, message: dict[str, Any]) -> None:
        if is_announcement(message["channel"]) or self.state is GateState.STOPPED:
            return
        if self.open:
            if self.state is GateState.IDLE:
                self._enter(GateState.OPEN)
            self.hearing.deliver(message)
            return
        self.hearing.arrived(message)
        if self._all_done:
            self._drain()
        self._wake_fetches()

    async def fetching(self) -> None:
        self.check_stopped()
        if self._subscribe is not None and not self.suspended:
            await self._subscribe(self.part)
        if self.state is GateState.UNBOUND:
            self._enter(GateState.FOLLOWING)
        while not (self.open or self.suspended or self._hand(self.place.limit())):
            waiting = asyncio.get_running_loop().create_future()
            self._fetches.append(waiting)
            await waiting
            self.check_stopped()
        if self._all_done and not self.open:
            self._drain()
        self.check_stopped()
        if self.open and not self.hearing.unfetched:
            self._enter(GateState.IDLE)
        self.hearing.unfetched = False

    async def _announce(self) -> None:
        if self._company is not None:
            for key in (self.part.key, *self.part.joined):
                await self._company.announce(key, self.hearing.subscriptions.patterns)

    def check_stopped(self) -> None:
        """Raise `LockstepStopped` if the gate was stopped."""
        if self.state is GateState.STOPPED:
            raise LockstepStopped(self._stop_reason)

    # What is said

    async def sending(self, record: MessageRecord) -> None:
        self.check_stopped()
        lockstep = self._lockstep
        if self.place.furthest < 0:
            lockstep.presence.begun(self.part)
        if self.open or self.state is GateState.ENDED:
            act = self._claims.late(record)
        else:
            act, same = self._claims.find(record)
            if act is not None and not same:  # the usual path has no coroutine of its own
                act = await self._judged(act, record)
        if act is None:
            if self._policy.holds:
                await self._until_open(record)
            if lockstep.admit is not None:
                await lockstep.admit(None)
            self._note_unexpected(record)
            return
        self._claims.claim(act, record)
        self.place.furthest = max(self.place.furthest, act.number)
        place = act.event.recorder, act.event.seq
        if self._policy.origins:
            record.origin = lockstep.origin(place)
        if record.payload != act.event.payload or act.payload is not None:
            lockstep.claimed(act, record.payload)
        try:
            if not self._has_turn(act):
                await self._turns.wait(act.number)
            if (ready := lockstep.presence.wait_for(place)) is not None:
                await ready
            if lockstep.admit is not None:
                await lockstep.admit(act.event)
            self.check_stopped()
        except BaseException:
            self._claims.pop(record)
            self._claims.put_back(act)
            raise

    def passed(self, record: MessageRecord, done: bool) -> None:
        act = self._claims.pop(record)
        if act is None:
            return
        not_sent = record.kind == "failed" and (record.meta or {}).get("outcome") != "unknown"
        if not done or (act.awaited and not_sent):
            self._claims.put_back(act)  # it was not published: the agent may send it again
            return
        self.verdicts.sent(act, record)
        if act.verdict is Verdict.MATCHED and self.part.exact and self.place.handed < act.needs:
            self.verdicts.early(act, record)
        self._lockstep.spoke(self.part, act)
        act.settle(ActState.DONE)
        self._advance()

    # What is asked

    async def asking(self, question: MessageRecord) -> MessageRecord:
        """Return the recorded answer to a question to a model, once it is its turn.

        Raises `CallRefused` if the recording has no such call.
        """
        call = self._begin_call(question)
        if call.answer is None:
            raise CallRefused(f"{self._lockstep.recording.exp_id} ends before this call was answered")
        if not self._has_turn(call.answer):
            await self._turns.wait(call.answer.number)
        return self._give_answer(call.answer)

    def asking_now(self, question: MessageRecord) -> MessageRecord:
        """Return the recorded answer, in the thread of the event loop, which cannot wait for its turn meanwhile.

        Raises `CallRefused` also if it is not its turn yet.
        """
        call = self._begin_call(question)
        if call.answer is None or not self._has_turn(call.answer):
            self._calls.put_back(call)
            raise CallRefused(
                "a synchronous call in the thread of the event loop cannot wait for its recorded turn: call the client "
                "with `await asyncio.to_thread(...)`, or use its async form"
            )
        return self._give_answer(call.answer)

    def _begin_call(self, question: MessageRecord) -> RecordedCall:
        self.check_stopped()
        if self.place.furthest < 0:
            self._lockstep.presence.begun(self.part)
        call = self._calls.claim(question)
        self.place.furthest = max(self.place.furthest, call.question.number)
        self._settle(call.question)
        return call

    def _give_answer(self, act: Act) -> MessageRecord:
        self.check_stopped()
        self._settle(act)
        return answered_by(act)

    def _settle(self, act: Act) -> None:
        if not act.settled:
            act.taken = True
            act.settle(ActState.DONE)
        self._advance()

    def marked(self, record: MessageRecord) -> None:
        name = (record.meta or {}).get("name")
        for at, mark in enumerate(self._marks):
            if (mark.meta or {}).get("name") == name:
                record.origin = self._lockstep.origin((mark.recorder, mark.seq))
                del self._marks[at]
                self._lockstep.progress()
                return

    async def close(self) -> None:
        if self._company is not None:
            self._company.closing(self.part.key)
        self._subscribe = None
        if self.state in (GateState.FOLLOWING, GateState.UNBOUND):
            self._enter(GateState.SUSPENDED)
        self._wake_fetches()
        self._turns.release()
        if self._all_done:
            self._open()
        else:
            self.hearing.subscriptions.set(())  # messages for it wait until it is subscribed again
            self._lockstep.presence.subscribed(self.part)
        _resolve(self._held, NotConnected("not sent: the Messager was closed meanwhile. Send before closing it."))
        if self._company is not None:
            if not self.open:
                with contextlib.suppress(MessagerError):  # the others wait for it in vain, until patience ends
                    await self._announce()
            await self._company.left(self.part.key)

    def connected(self) -> None:
        if self._company is not None:
            self._company.returned(self.part.key)
        if self.suspended:
            self.report.reopened += 1
            self._enter(GateState.FOLLOWING)

    def finish(self) -> None:
        """End the schedule: what was not said is missing, and everything is delivered.

        In a fork, what was not said stops it, and an open gate has all behind it.
        """
        if self.state is GateState.STOPPED or (self.open and self._policy.holds):
            return
        for act in self.part.acts:
            if not act.settled and act.bounds:  # one that is on its way may be late
                act.settle(ActState.MISSING)
                self.verdicts.missing(act)
        self.place.advance()
        self._open()
        if not self.open:
            self.stop("the prefix of the fork was not completed")

    def stop(self, reason: str) -> None:
        """Send and deliver nothing more: calls raise `LockstepStopped`."""
        if self.state is GateState.STOPPED:
            return
        self._enter(GateState.STOPPED)
        self._stop_reason = reason
        error = LockstepStopped(reason)
        _resolve(self._fetches, error)
        _resolve(self._held, error)
        self._turns.refuse(error)

    # What is given up

    def lost(self, arrives: Callable[[Reception], bool]) -> bool:
        """Give up the receptions that the agent waits for and that no longer arrive; return whether there were any."""
        if not (self.waits and self.hearing.lost(arrives)):
            return False
        self.report.timed_out = True
        self._wake_fetches()
        return True

    @property
    def waits(self) -> bool:
        """True if the agent waits for others, in a fetch or for its turn."""
        return bool(self._fetches or self._turns.waiting)

    def expect(self, source: Key, payload: bytes) -> None:
        """Expect a recorded message with this payload: a live agent of this process is about to say it."""
        self.hearing.expect(source, payload)

    def never_said(self, source: Key) -> None:
        """Do not wait for a message that its sender did not say."""
        if self.hearing.never_said(source):
            self._wake_fetches()

    def release(self) -> bool:
        """Let a call continue that waits only for a fetch that does not come; return whether there was any.

        Later calls do not wait for a fetch either, until there is one.
        """
        following = self.place.following()
        if not self.waits and following is not None and not following.awaited:
            self.report.timed_out = True
            self.miss(following)  # it was blocked: nobody waits for it but the next fetch
            return True
        first = self._turns.first
        if self._fetches or first is None:
            return False
        if first > self.place.number:
            if (before := self.place.awaited) is None or before.state is not ActState.PENDING:
                return False
            self.report.timed_out = True
            self.miss(before)  # the agent goes on with a later one
            return True
        self._enter(GateState.UNBOUND)
        self.report.timed_out = True
        self._wake_turns()
        return True

    def miss(self, act: Act) -> None:
        """Give up an act."""
        if not act.settled:
            act.settle(ActState.MISSING)
            self.verdicts.missing(act)
            self._advance()

    @property
    def marks_left(self) -> int:
        """Number of recorded marks that were not repeated yet."""
        return len(self._marks)

    def give_up_marks(self) -> None:
        """Expect no more recorded marks: a later one is live."""
        self._marks.clear()

    @property
    def waits_for(self) -> str | None:
        """Text that names the message that the gate waits for; None if it is open, or if its agent is to go on."""
        all_done = self._all_done
        if self.open or not (self.waits or all_done):
            return None
        absent = self.hearing.absent(len(self.part.receptions) if all_done else self.place.limit())
        if absent is None:
            return None
        return f"{self.part.label} waits for message {absent.arrival}, on {channels.decode(absent.channel)}"

    # The end

    @property
    def _all_done(self) -> bool:
        """True if no act is left that others wait for."""
        return self.place.awaited is None and not len(self._claims)

    def _drain(self) -> None:
        """Open after the last act, when all has arrived that the recorded Messager had fetched after it.

        It may have spoken no more because of that: an agent that ticks until it is told to stop. One that ticks a
        number of times would hear more than it did if it got what the Messager had not fetched when it was closed: the
        gate stays shut then, and fetches find nothing, until the replay ends. If the recording does not tell what was
        fetched, everything received counts. A Messager that never spoke gets everything when it arrives.
        """
        end = self.place.end
        if not self.part.acts or (self._hand(end) and end == len(self.part.receptions)):
            self._open()
        elif self.place.handed >= end and self.state in (GateState.FOLLOWING, GateState.UNBOUND):
            self._enter(GateState.ENDED)

    def _open(self) -> None:
        """Deliver everything, and let everything pass from now on; in a fork, only if all of the prefix is there."""
        if self.open or self.state is GateState.STOPPED:
            return
        if self._policy.holds and not self._hand(len(self.part.receptions)):
            return
        was_ended = self.state is GateState.ENDED
        self._enter(GateState.OPEN)
        self.hearing.hand_rest(withheld=was_ended)
        self._wake_fetches()
        self._turns.release()
        _resolve(self._held)
        self._lockstep.progress()

    # What goes on

    def _hand(self, limit: int) -> bool:
        """Deliver the receptions before `limit` if all of them have arrived; return False to wait."""
        handed = self.place.handed
        if not self.hearing.hand(limit):
            return False
        if self.place.handed > handed:
            self._wake_turns()
            self._lockstep.progress()
        return True

    def _advance(self) -> None:
        """Go to the next act, after one was settled; open after the last one."""
        self.place.advance()
        self._wake_fetches()
        if self._all_done:
            self._drain()
        else:
            self._wake_turns()
        self._lockstep.progress()

    def _has_turn(self, act: Act) -> bool:
        return self.open or self.place.has_turn(act, unbound=self.state is GateState.UNBOUND)

    def _wake_fetches(self) -> None:
        if self._fetches:
            _resolve(self._fetches)

    def _wake_turns(self) -> None:
        if self._turns.waiting:
            self._turns.wake(self.place.number, lambda number: self._has_turn(self.part.acts[number]))

    # What was not expected

    async def _judged(self, act: Act, record: MessageRecord) -> Act | None:
        """Return the recorded act in whose place another message is said; None if that is unexpected."""
        try:
            found = await self._claims.judge(act, record)
        except JudgeFailed as error:
            self._lockstep.stop(error)  # also if the agent handles the error of its call
            raise
        if found is not None and self._policy.holds and found.verdict is Verdict.DIFFERENT:
            self.verdicts.sent(found, record)  # which stops the fork
        self.check_stopped()
        return found

    async def _until_open(self, record: MessageRecord) -> None:
        """Hold what was not recorded until the gate is open. It is a divergence if a recorded message is awaited."""
        left = self.part.acts[self.place.number :]
        if not self.open and any(one.awaited and one.state is ActState.PENDING for one in left):
            self._note_unexpected(record)
        while not self.open:
            self.check_stopped()
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held.append(waiting)
            await waiting
        self.check_stopped()

    def _note_unexpected(self, record: MessageRecord) -> None:
        if not (self.open and self._policy.continues):
            self.verdicts.unexpected(record)


def _resolve(waiting: list[asyncio.Future[None]], error: Exception | None = None) -> None:
    """End these waits, and empty the list."""
    ended = waiting[:]
    waiting.clear()
    for one in ended:
        if not one.done():
            if error is None:
                one.set_result(None)
            else:
                one.set_exception(error)
