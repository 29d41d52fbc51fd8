"""Schedule gate: holds the messages of one live Messager until their place in the recorded schedule.

    broker ──> arrived ──> paired with a recorded reception ──> fetching ──> queue of the Messager
                       └─> surplus: withheld until the last act
    send_message ──> sending: claims a recorded act, waits for its turn ──> passed

`fetching` delivers exactly the receptions that come before the next recorded act, in recorded order. An act has
its turn when these were delivered, and when the earlier acts of this Messager are done. Both depend only on what
happened before in the recording, so faithful agents cannot block each other; patience ends the waits of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any

from messager import channels
from messager.endpoint import Endpoint
from messager.errors import MessagerError, NotConnected
from messager.hooks import LogHook
from messager.record import MessageRecord

from ..errors import JudgeFailed
from .announcing import is_announcement
from .following import Company, Following
from .pairing import Pairing
from .patience import Turns
from .policy import LockstepStopped
from .presence import Subscriptions
from .schedule import Act, ActState, Key, Part, Reception, Verdict
from .verdicts import Unclaimed, Verdicts

_MESSAGE = attrgetter("message")


class GateState(Enum):
    """State of a gate.

        FOLLOWING <──> UNBOUND     a sending waited for a fetch in vain ──> the next fetch
          │   ^  │
          v   │  └──> STOPPED      the fork stops, in every process
        SUSPENDED                  closed ──> opened again

        ENDED ──> OPEN <──> IDLE   a fetch that found nothing ──> the next delivery

    The last recorded message leads from the states of the first three rows to OPEN, or to ENDED if the recorded
    Messager was closed with messages that it had not fetched; the end of the replay leads from ENDED to OPEN.
    """

    FOLLOWING = "follows the schedule"
    UNBOUND = "follows the schedule, but sendings wait for no fetch"
    SUSPENDED = "its Messager is closed"
    ENDED = "everything was said and delivered; the rest, which had not been fetched, is held back"
    OPEN = "everything is delivered when it arrives"
    IDLE = "open, and the agent has fetched in vain"
    STOPPED = "nothing is sent or delivered any more"


class ScheduleGate:
    """Gate of one live Messager (see `messager.gate.Gate`)."""

    def __init__(
        self,
        endpoint: Endpoint,
        part: Part,
        verdicts: Verdicts,
        replay: Following,
        company: Company | None = None,
        subscribe: Callable[[Part], Awaitable[None]] | None = None,
    ) -> None:
        """`subscribe` is called with the part if the agent fetches before it has subscribed."""
        self.part = part
        self.verdicts = verdicts
        self.report = verdicts.report
        self.state = GateState.FOLLOWING
        self.open = False
        """True in the states OPEN and IDLE. An attribute, as it is asked several times for each message."""
        self.subscriptions = Subscriptions(replay.kind, part.covered)
        """Subscriptions of the live Messager."""
        self._endpoint = endpoint
        self._replay = replay
        self._company = company
        self._subscribe = subscribe
        self._policy = replay.policy
        self._holds = replay.policy.holds
        self._match = replay.match
        self._furthest = -1  # highest number of an act that was claimed
        self._boundary = 0  # acts before this one do not limit what is fetched
        self._next = 0  # number of the first act that is awaited and not settled
        self._handed = 0  # receptions before this one were delivered, or are lost
        asked = self._unheard, replay.may_differ, self._found
        self.pairing = Pairing(replay.match, replay.sender_of, *asked, by_order=self._policy.by_order)
        """Arrivals and the receptions for which they stand."""
        self._unclaimed = Unclaimed(part.sends)
        self._turns = Turns()
        self._fetches: list[asyncio.Future[None]] = []
        self._claimed: dict[int, Act] = {}  # by id of the record
        self._silent: set[str] = set()  # senders in other processes that are not waited for
        self._held: list[asyncio.Future[None]] = []  # sendings that wait until the gate is open
        self._unfetched = True  # False from a fetch until the next delivery
        self._stop_reason = ""
        self._marks = deque(part.marks)
        self.pairing.add(part.receptions)
        self.pairing.add_unreceived(part.unreceived)
        self._advance()

    @property
    def suspended(self) -> bool:
        """True while the Messager is closed before its last message: the schedule stands at its place."""
        return self.state is GateState.SUSPENDED

    @property
    def idle(self) -> bool:
        """True after a fetch that found nothing, since nothing is held back that is to be delivered."""
        return self.state is GateState.IDLE or (self.state is GateState.ENDED and not self._unfetched)

    def _enter(self, state: GateState) -> None:
        self.state = state
        self.open = state in (GateState.OPEN, GateState.IDLE)

    # What arrives

    def check(self, hook: LogHook) -> None:
        self._replay.check(hook)

    async def subscribed(self, patterns: Sequence[str]) -> None:
        self.subscriptions.set(patterns)
        self._subscribe = None
        if not self.part.exact:
            self._add_weak_receptions()
        for reception in self.part.receptions[self._handed :]:
            if reception.unheard and self.subscriptions.copies(reception.channel):
                reception.unheard = reception.lost = False
                self.report.unsubscribed -= 1
        self.pairing.recount(self.part.receptions)
        self._replay.subscribed(self.part)
        self._advance()
        await self._announce()

    def arrived(self, message: dict[str, Any]) -> None:
        if is_announcement(message["channel"]) or self.state is GateState.STOPPED:
            return
        if self.open:
            self._deliver_now(message)
            return
        reception = self.pairing.arrived(message)
        if self._silent and reception is not None:
            self._spoke_again(reception)
        if self._all_said:
            self._drain()
        self.wake()

    async def fetching(self) -> None:
        self.check_stopped()
        if self._subscribe is not None and not self.suspended:
            await self._subscribe(self.part)
        if self.state is GateState.UNBOUND:
            self._enter(GateState.FOLLOWING)
        while not (self.open or self.suspended or self._hand(self._limit())):
            waiting = asyncio.get_running_loop().create_future()
            self._fetches.append(waiting)
            await waiting
            self.check_stopped()
        if self._all_said and not self.open:
            self._drain()
        self.check_stopped()
        if self.open and not self._unfetched:
            self._enter(GateState.IDLE)
        self._unfetched = False

    async def _announce(self) -> None:
        if self._company is not None:
            for key in (self.part.key, *self.part.joined):
                await self._company.announce(key, self.patterns)

    def check_stopped(self) -> None:
        """Raise `LockstepStopped` if the gate was stopped."""
        if self.state is GateState.STOPPED:
            raise LockstepStopped(self._stop_reason)

    # What is said

    async def sending(self, record: MessageRecord) -> None:
        if self.state is GateState.STOPPED:
            self.check_stopped()
        if self._furthest < 0:
            self._replay.begun(self.part)
        if self.open or self.state is GateState.ENDED:
            act = self._left(record)
        else:
            channel = channels.encode(record.channel or "")
            act, same = self._unclaimed.find(channel, record.from_id, record.payload, self._match)
            if act is not None and same:  # the usual path has no coroutine of its own
                self._unclaimed.remove(act)
                act.verdict = Verdict.MATCHED
            elif act is not None:
                act = await self._claim(act, record)
        if act is None:
            if self._holds:
                await self._until_open(record)
            if self._replay.admit is not None:
                await self._replay.admit(None)
            self._note_unexpected(record)
            return
        act.state, act.taken = ActState.CLAIMED, True
        self._furthest = max(self._furthest, act.number)
        self._claimed[id(record)] = act
        place = act.event.recorder, act.event.seq
        if self._policy.origins:
            record.origin = self._replay.origin(place)
        if record.payload != act.event.payload or act.payload is not None:
            self._replay.claimed(act, record.payload)
        try:
            if not self._has_turn(act):
                await self._turns.wait(act.number)
            if (ready := self._replay.ready(place)) is not None:
                await ready
            if self._replay.admit is not None:
                await self._replay.admit(act.event)
            if self.state is GateState.STOPPED:
                self.check_stopped()
        except BaseException:
            del self._claimed[id(record)]
            self._unclaim(act)
            raise

    def passed(self, record: MessageRecord, done: bool) -> None:
        act = self._claimed.pop(id(record), None)
        if act is None:
            return
        not_sent = record.kind == "failed" and (record.meta or {}).get("outcome") != "unknown"
        if not done or (act.awaited and not_sent):
            self._unclaim(act)  # it was not published: the agent may send it again
            return
        self.verdicts.sent(act, record)
        if act.verdict is Verdict.MATCHED and self.part.exact and self._handed < act.needs:
            self.verdicts.early(act, record)
        self._replay.spoke(self.part, act)
        act.settle(ActState.DONE)
        self._advance()

    def marked(self, record: MessageRecord) -> None:
        name = (record.meta or {}).get("name")
        for at, mark in enumerate(self._marks):
            if (mark.meta or {}).get("name") == name:
                record.origin = self._replay.origin((mark.recorder, mark.seq))
                del self._marks[at]
                self._replay.progress()
                return

    async def close(self) -> None:
        if self._company is not None:
            self._company.closing(self.part.key)
        self._subscribe = None
        if self.state in (GateState.FOLLOWING, GateState.UNBOUND):
            self._enter(GateState.SUSPENDED)
        self.wake()
        self._turns.release()
        if self._all_said:
            self._open()
        else:
            self.subscriptions.set(())  # messages for it wait until it is subscribed again
            self._replay.subscribed(self.part)
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
        if self.state is GateState.STOPPED or (self.open and self._holds):
            return
        for act in self.part.acts:
            if not act.settled and act.bounds:  # one that is on its way may be late
                act.settle(ActState.MISSING)
                self.verdicts.missing(act)
        self._next = len(self.part.acts)
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
        """Give up the receptions that a fetch waits for and that no longer arrive; return whether there were any."""
        if not self.waits:
            return False
        deaf = not self.patterns  # nothing arrives at all
        found = [
            reception
            for reception in self.part.receptions[self._handed : None if deaf else self._limit()]
            if reception.message is None and not reception.lost and (deaf or not arrives(reception))
        ]
        for reception in found:
            unsubscribed = not self.subscriptions.copies(reception.channel)
            if unsubscribed:
                self.subscriptions.miss(reception.channel)
            self._give_up(reception, unheard=unsubscribed)
            if not unsubscribed and (sender := self._replay.remote(reception)) is not None:
                self.silence(sender)
        if found:
            self.report.timed_out = True
            self.wake()
        return bool(found)

    @property
    def waits(self) -> bool:
        """True if the agent waits for others, in a fetch or for its turn."""
        return bool(self._fetches or self._turns.waiting)

    def silence(self, sender: str) -> None:
        """Do not wait for messages of a sender, until one arrives."""
        self._silent.add(sender)

    def never_said(self, source: Key) -> None:
        """Do not wait for a message that its sender did not say."""
        for reception in self.pairing.of_source(source):
            if reception.message is None and not reception.lost and not reception.handed:
                self._give_up(reception)
                self.wake()

    def release(self) -> bool:
        """Let a call continue that waits only for a fetch that does not come; return whether there was any.

        Later calls do not wait for a fetch either, until there is one.
        """
        following = self._following()
        if not self.waits and following is not None and not following.awaited:
            self.report.timed_out = True
            self.miss(following)  # it was blocked: nobody waits for it but the next fetch
            return True
        first = self._turns.first
        if self._fetches or first is None:
            return False
        if first > self._next:
            if (before := self.next_saying) is None or before.state is not ActState.PENDING:
                return False
            self.report.timed_out = True
            self.miss(before)  # the agent says a later one
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
    def next_saying(self) -> Act | None:
        """The first act that is awaited and not settled; None after the last one."""
        return self.part.acts[self._next] if self._next < len(self.part.acts) else None

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
        if self.open:
            return None
        limit = len(self.part.receptions) if self._all_said else self._limit()
        absent = [one for one in self.part.receptions[:limit] if one.message is None and not (one.handed or one.lost)]
        if not absent or not (self.waits or self._all_said):
            return None
        return f"{self.part.label} waits for message {absent[0].arrival}, on {channels.decode(absent[0].channel)}"

    @property
    def patterns(self) -> list[str]:
        """Patterns to which the live Messager is subscribed."""
        return self.subscriptions.patterns

    # Receptions

    def _add_weak_receptions(self) -> None:
        """Add the receptions of new subscriptions, in replay order; what was delivered stays so."""
        known = {one.origin for one in self.part.receptions}
        handed = self.part.receptions[: self._handed]
        last = handed[-1].arrival if handed else 0
        found = self._replay.weak_receptions(self.subscriptions.copies)
        added = [one for one in found if one.origin not in known and one.arrival > last]
        rest = sorted([*self.part.receptions[self._handed :], *added], key=lambda one: one.arrival)
        self.part.receptions = handed + rest
        self.part.number()
        self.pairing.add(added)

    def _limit(self) -> int:
        """Return the number of receptions before the next act."""
        following = self._following()
        return self._end if following is None else following.needs

    def _following(self) -> Act | None:
        """Return the next act; a failed one does not count, and a blocked one only until a later one is said."""
        acts = self.part.acts
        while self._boundary < len(acts):
            act = acts[self._boundary]
            if act.state is ActState.CLAIMED:
                return act
            left_out = act.number < self._furthest and not act.awaited
            if act.state is ActState.PENDING and act.bounds and not left_out:
                return act
            self._boundary += 1
        return None

    def _hand(self, limit: int) -> bool:
        """Deliver the receptions before `limit` if all of them have arrived; return False to wait."""
        if limit <= self._handed:
            return True
        receptions = self.part.receptions
        # Most arrive in order: all others are looked at when the last one is there, not for each arrival.
        arrived = receptions[limit - 1].message is not None and all(map(_MESSAGE, receptions[self._handed : limit]))
        if not arrived and not self.pairing.complete(receptions, self._handed, limit):
            return False
        for reception in receptions[self._handed : limit]:
            if reception.message is not None:
                self._deliver(reception)
            reception.handed = True  # also if it was lost: a later arrival is withheld
        self._handed = limit
        self.report.order_known = self.pairing.order_known
        if self._turns.waiting:
            self._wake_turns()
        self._replay.progress()
        return True

    def _unheard(self, reception: Reception) -> bool:
        """Give a reception up if the live Messager will not subscribe to its channel, or if its sender is silent."""
        if (
            self.patterns
            and not self.subscriptions.copies(reception.channel)
            and not self.subscriptions.may_come(reception.channel)
        ):
            self._give_up(reception, unheard=True)
        elif self._silent and not reception.lost and self._replay.remote(reception) in self._silent:
            self._give_up(reception)
        return reception.lost

    def _give_up(self, reception: Reception, *, unheard: bool = False) -> None:
        """Do not wait for a reception: it is lost, or the live Messager is not subscribed to its channel."""
        self.pairing.give_up(reception)
        reception.unheard = unheard
        if unheard:
            self.report.unsubscribed += 1
        else:
            self.report.lost += 1

    def _found(self, reception: Reception) -> None:
        """Note that a reception has arrived that was given up."""
        self.report.lost -= 1
        self._spoke_again(reception)

    def _spoke_again(self, reception: Reception) -> None:
        if (sender := self._replay.remote(reception)) is not None:
            self._silent.discard(sender)

    def _deliver(self, reception: Reception) -> None:
        assert reception.message is not None
        reception.handed = self._unfetched = True
        message, reception.message = reception.message, None
        self.verdicts.heard(message["channel"], message["data"])
        origin = None
        # In a fork, a reception that only stands for its sending repeats no event.
        if self._policy.origins and not (self._holds and not self.part.exact and reception.origin == reception.source):
            origin = self._replay.origin(reception.origin)
        self._endpoint.deliver(message, origin)

    def _deliver_now(self, message: dict[str, Any], origin: tuple[str, int] | None = None) -> None:
        self._unfetched = True
        if self.state is GateState.IDLE:
            self._enter(GateState.OPEN)
        self._endpoint.deliver(message, origin)

    @property
    def _all_said(self) -> bool:
        """True if no act is left that others wait for."""
        return self._next >= len(self.part.acts) and not self._claimed

    @property
    def _end(self) -> int:
        """Number of receptions that are delivered before the end: all, if the agent continues after the recording."""
        return len(self.part.receptions) if self._policy.continues else self.part.end

    def _drain(self) -> None:
        """Open after the last act, when all has arrived that the recorded Messager had fetched after it.

        It may have spoken no more because of that: an agent that ticks until it is told to stop. One that ticks a
        number of times would hear more than it did if it got what the Messager had not fetched when it was closed: the
        gate stays shut then, and fetches find nothing, until the replay ends. If the recording does not tell what was
        fetched, everything received counts. A Messager that never spoke gets everything when it arrives.
        """
        if not self.part.acts or (self._hand(self._end) and self._end == len(self.part.receptions)):
            self._open()
        elif self._handed >= self._end and self.state in (GateState.FOLLOWING, GateState.UNBOUND):
            self._enter(GateState.ENDED)

    def _open(self) -> None:
        """Deliver everything, and let everything pass from now on; in a fork, only if all of the prefix is there."""
        if self.open or self.state is GateState.STOPPED:
            return
        if self._holds and not self._hand(len(self.part.receptions)):
            return
        was_ended = self.state is GateState.ENDED
        self._enter(GateState.OPEN)
        for reception in self.part.receptions[self._handed :]:
            if reception.message is not None:
                self.report.withheld += was_ended
                self._deliver(reception)
        for message in self.pairing.take_kept():
            self.report.withheld += 1
            self._deliver_now(message)
        self.wake()
        self._turns.release()
        _resolve(self._held)
        self._replay.progress()

    def wake(self) -> None:
        """Let the calls of `fetching` look again, after something has changed."""
        if self._fetches:
            _resolve(self._fetches)

    # Sayings

    async def _claim(self, act: Act, record: MessageRecord) -> Act | None:
        """Return the recorded act in whose place another message is said; None if that is unexpected."""
        if self.verdicts.is_replaced(record):
            return None
        self._unclaimed.remove(act)  # before the judge, which other calls do not wait for
        try:
            same = await self.verdicts.accepts(act, record.payload)
        except BaseException as error:
            self._unclaimed.put_back(act)
            if isinstance(error, JudgeFailed):
                self._replay.stop(error)  # also if the agent handles the error of its call
            raise
        act.verdict = Verdict.MATCHED if same else Verdict.DIFFERENT
        if self._holds and not same:
            self.verdicts.sent(act, record)  # which stops the fork
        self.check_stopped()
        return act

    async def _until_open(self, record: MessageRecord) -> None:
        """Hold what was not recorded until the gate is open. It is a divergence if a recorded message is awaited."""
        if not self.open and any(one.awaited and one.state is ActState.PENDING for one in self.part.acts[self._next :]):
            self._note_unexpected(record)
        while not self.open:
            self.check_stopped()
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held.append(waiting)
            await waiting
        self.check_stopped()

    def _left(self, record: MessageRecord) -> Act | None:
        """Return the act in whose place a message is said after the gate has opened: a late or a blocked one."""
        channel = channels.encode(record.channel or "")
        act, same = self._unclaimed.find(channel, record.from_id, record.payload, self._match)
        if act is None or not same or (act.awaited and act.state is not ActState.MISSING):
            return None
        self._unclaimed.remove(act)
        act.verdict = Verdict.MATCHED
        return act

    def _unclaim(self, act: Act) -> None:
        """Expect an act again, as its message was not sent."""
        act.taken, act.verdict = False, Verdict.MISSING
        if act.state is ActState.CLAIMED:
            act.state, act.verdict = ActState.PENDING, None
        self._unclaimed.put_back(act)

    def _has_turn(self, act: Act) -> bool:
        heard = self._handed >= act.needs or self.state is GateState.UNBOUND
        return self.open or (heard and act.number <= self._next)

    def _note_unexpected(self, record: MessageRecord) -> None:
        if not (self.open and self._policy.continues):
            self.verdicts.unexpected(record)

    def _advance(self) -> None:
        """Find the next act, after one was settled; open after the last one."""
        acts = self.part.acts
        following = self._next
        while following < len(acts) and ((one := acts[following]).settled or not one.awaited):
            following += 1
        self._next = following
        self.wake()
        if self._all_said:
            self._drain()
        elif self._turns.waiting:
            self._wake_turns()
        self._replay.progress()

    def _wake_turns(self) -> None:
        self._turns.wake(self._next, lambda number: self._has_turn(self.part.acts[number]))


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
