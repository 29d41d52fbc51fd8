"""Schedule gate: holds the messages of one live Messager until their place in the recorded schedule.

    broker ──> arrived ──> paired with a recorded reception ──> fetching ──> queue of the Messager
                       └─> surplus: withheld until the last saying
    send_message ──> sending: claims a recorded saying, waits for its turn ──> passed

`fetching` delivers exactly the receptions that come before the next recorded saying, in recorded order. A saying has
its turn when these were delivered, and when the earlier sayings of this Messager are done. Both depend only on what
happened before in the recording, so faithful agents cannot block each other; patience ends the waits of the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import Any

from messager import channels
from messager.endpoint import Endpoint
from messager.hooks import LogHook
from messager.record import MessageRecord

from ..errors import JudgeFailed
from .announcing import is_announcement
from .following import Following
from .pairing import Pairing
from .schedule import Key, Part, Reception, Saying, SayingState, Verdict
from .subscriptions import Subscriptions
from .turns import Turns
from .unclaimed import Unclaimed
from .verdicts import Verdicts

_MESSAGE = attrgetter("message")


class ScheduleGate:
    """Gate of one live Messager (see `messager.gate.Gate`)."""

    def __init__(self, messager: Endpoint, part: Part, verdicts: Verdicts, replay: Following) -> None:
        self.part = part
        self.verdicts = verdicts
        self.report = verdicts.report
        self.open = False
        """True after the last saying: everything is delivered when it arrives."""
        self.idle = False
        """True after a fetch that found nothing since everything is delivered when it arrives."""
        self.closed = False
        """True while the Messager is closed: the schedule stands at its place."""
        self.subscriptions = Subscriptions(replay.kind, part.covered)
        """Subscriptions of the live Messager."""
        self.subscribe: Callable[[], Awaitable[None]] | None = None
        """Called if the agent fetches before it has subscribed."""
        self._messager = messager
        self._replay = replay
        self._match = replay.match
        self._furthest = -1  # highest number of a saying that was claimed
        self._boundary = 0  # sayings before this one do not limit what is fetched
        self._next = 0  # number of the first saying that is awaited and not settled
        self._handed = 0  # receptions before this one were delivered, or are lost
        self.pairing = Pairing(replay.match, self._unheard, replay.may_differ, self._found)
        """Arrivals and the receptions for which they stand."""
        self._unclaimed = Unclaimed(part.sayings)
        self._turns = Turns()
        self._fetches: list[asyncio.Future[None]] = []
        self._claimed: dict[int, Saying] = {}  # by id of the record
        self._silent: set[str] = set()  # senders in other processes that are not waited for
        self._unfetched = True  # False from a fetch until the next delivery
        self._deaf = False  # True from a saying that waited for a fetch in vain, until the next fetch
        self._by_source: dict[Key, list[Reception]] | None = None  # made when it is needed
        self._marks = deque(part.marks)
        self.pairing.add(part.receptions)
        self.pairing.add_not_received(part.not_received)
        self._advance()

    # What arrives

    def check(self, hook: LogHook) -> None:
        self._replay.check(hook)

    async def subscribed(self, patterns: Sequence[str]) -> None:
        self.subscriptions.set(patterns)
        self.subscribe = None
        if not self.part.exact:
            self._add_weak_receptions()
        for reception in self.part.receptions[self._handed :]:
            if reception.unheard and self.subscriptions.copies(reception.channel):
                reception.unheard = reception.lost = False
                self.report.unsubscribed -= 1
        self.pairing.recount(self.part.receptions)
        self._replay.subscribed(self.part)
        self._replay.progress()

    def arrived(self, message: dict[str, Any]) -> None:
        if is_announcement(message["channel"]):
            return
        if self.open:
            self._unfetched = True
            self._messager.deliver(message)
            return
        reception = self.pairing.arrived(message)
        if self._silent and reception is not None:
            self._spoke_again(reception)
        if self._all_said:
            self._drain()
        self.wake()

    async def fetching(self) -> None:
        if self.subscribe is not None and not self.closed:
            await self.subscribe()
        self._deaf = False
        while not (self.open or self.closed or self._hand(self._limit())):
            waiting = asyncio.get_running_loop().create_future()
            self._fetches.append(waiting)
            await waiting
            self.check_stopped()
        if self._all_said and not self.open:
            self._drain()
        self.idle = self.open and not self._unfetched
        self._unfetched = False

    def check_stopped(self) -> None:
        """Raise if nothing more is handed over. This gate never stops."""

    # What is said

    async def sending(self, record: MessageRecord) -> None:
        if self._furthest < 0:
            self._replay.begun(self.part)
        saying = self._left(record) if self.open else await self._claim(record)
        if saying is None:
            if self._replay.admit is not None:
                await self._replay.admit(None)
            self._note_unexpected(record)
            return
        saying.state, saying.said = SayingState.CLAIMED, True
        self._furthest = max(self._furthest, saying.number)
        self._claimed[id(record)] = saying
        place = saying.event.recorder, saying.event.seq
        record.origin = self._replay.origin(place)
        try:
            if not self._has_turn(saying):
                await self._turns.wait(saying.number)
            if (ready := self._replay.ready(place)) is not None:
                await ready
            if self._replay.admit is not None:
                await self._replay.admit(saying.event)
        except BaseException:
            del self._claimed[id(record)]
            self._unclaim(saying)
            raise

    def passed(self, record: MessageRecord, done: bool) -> None:
        saying = self._claimed.pop(id(record), None)
        if saying is None:
            return
        not_sent = record.kind == "failed" and (record.meta or {}).get("outcome") != "unknown"
        if not done or (saying.awaited and not_sent):
            self._unclaim(saying)  # it was not published: the agent may send it again
            return
        self.verdicts.said(saying, record)
        if saying.verdict is Verdict.MATCHED and self.part.exact and self._handed < saying.needs:
            self.verdicts.early(saying, record)
        self._replay.spoke(self.part, saying, record.payload)
        saying.settle(SayingState.DONE)
        self._advance()

    def marked(self, record: MessageRecord) -> None:
        name = (record.meta or {}).get("name")
        for at, mark in enumerate(self._marks):
            if (mark.meta or {}).get("name") == name:
                record.origin = self._replay.origin((mark.recorder, mark.seq))
                del self._marks[at]
                return

    async def close(self) -> None:
        self.closed = True
        self.wake()
        self._turns.release()
        if self._all_said:
            self._open()
        else:
            self.subscriptions.set(())  # messages for it wait until it is subscribed again
            self._replay.subscribed(self.part)

    def connected(self) -> None:
        self.report.reopened += self.closed
        self.closed = False

    def finish(self) -> None:
        """End the schedule: what was not said is missing, and everything is delivered."""
        for saying in self.part.sayings:
            if not saying.settled and saying.event.kind != "failed":  # one that is on its way may be late
                saying.settle(SayingState.MISSING)
                self.verdicts.missing(saying)
        self._next = len(self.part.sayings)
        self._open()

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
        if self._by_source is None:
            self._by_source = {}
            for reception in self.part.receptions:
                if reception.source is not None:
                    self._by_source.setdefault(reception.source, []).append(reception)
        for reception in self._by_source.get(source, ()):
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
            if (before := self.next_saying) is None or before.state is not SayingState.PENDING:
                return False
            self.report.timed_out = True
            self.miss(before)  # the agent says a later one
            return True
        self._deaf = True
        self.report.timed_out = True
        self._wake_turns()
        return True

    def miss(self, saying: Saying) -> None:
        """Give up a saying."""
        if not saying.settled:
            saying.settle(SayingState.MISSING)
            self.verdicts.missing(saying)
            self._advance()

    @property
    def next_saying(self) -> Saying | None:
        """The first saying that is awaited and not settled; None after the last one."""
        return self.part.sayings[self._next] if self._next < len(self.part.sayings) else None

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
        self._by_source = None

    def _limit(self) -> int:
        """Return the number of receptions before the next saying."""
        following = self._following()
        return len(self.part.receptions) if following is None else following.needs

    def _following(self) -> Saying | None:
        """Return the next saying; a failed one does not count, and a blocked one only until a later one is said."""
        sayings = self.part.sayings
        while self._boundary < len(sayings):
            saying = sayings[self._boundary]
            if saying.state is SayingState.CLAIMED:
                return saying
            left_out = saying.event.kind == "failed" or (saying.number < self._furthest and not saying.awaited)
            if saying.state is SayingState.PENDING and not left_out:
                return saying
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
        self.verdicts.heard(reception.message["channel"], reception.message["data"])
        self._messager.deliver(reception.message, self._origin_of(reception))
        reception.message = None

    def _origin_of(self, reception: Reception) -> tuple[str, int] | None:
        """Return what is recorded as the origin of a reception."""
        return self._replay.origin(reception.origin)

    @property
    def _all_said(self) -> bool:
        """True if no saying is left that others wait for."""
        return self._next >= len(self.part.sayings) and not self._claimed

    def _drain(self) -> None:
        """Open after the last saying, when all has arrived that the recorded Messager received after it.

        It may have spoken no more because of that: an agent that ticks until it is told to stop. A Messager that never
        spoke gets everything when it arrives.
        """
        if not self.part.sayings or self._hand(len(self.part.receptions)):
            self._open()

    def _open(self) -> None:
        """Deliver everything, and let everything pass from now on."""
        if self.open:
            return
        self.open = True
        for reception in self.part.receptions[self._handed :]:
            if reception.message is not None:
                self._deliver(reception)
        for message in self.pairing.take_kept():
            self.report.withheld += 1
            self._unfetched = True
            self._messager.deliver(message)
        self.wake()
        self._turns.release()
        self._replay.progress()

    def wake(self) -> None:
        """Let the calls of `fetching` look again, after something has changed."""
        if not self._fetches:
            return
        waiting, self._fetches = self._fetches, []
        for fetch in waiting:
            if not fetch.done():
                fetch.set_result(None)

    # Sayings

    async def _claim(self, record: MessageRecord) -> Saying | None:
        """Return the recorded saying in whose place a message is said; None if it is unexpected."""
        channel = channels.encode(record.channel or "")
        saying, same = self._unclaimed.find(channel, record.from_id, record.payload, self._match)
        if saying is None or (not same and self.verdicts.is_replaced(record)):
            return None
        self._unclaimed.remove(saying)  # before the judge, which other calls do not wait for
        try:
            same = same or await self.verdicts.accepts(saying, record.payload)
        except BaseException as error:
            self._unclaimed.put_back(saying)
            if isinstance(error, JudgeFailed):
                self._replay.stop(error)  # also if the agent handles the error of its call
            raise
        saying.verdict = Verdict.MATCHED if same else Verdict.DIFFERENT
        return saying

    def _left(self, record: MessageRecord) -> Saying | None:
        """Return the saying in whose place a message is said after the gate has opened: a late or a blocked one."""
        channel = channels.encode(record.channel or "")
        saying, same = self._unclaimed.find(channel, record.from_id, record.payload, self._match)
        if saying is None or not same or (saying.awaited and saying.state is not SayingState.MISSING):
            return None
        self._unclaimed.remove(saying)
        saying.verdict = Verdict.MATCHED
        return saying

    def _unclaim(self, saying: Saying) -> None:
        """Expect a saying again, as its message was not sent."""
        saying.said, saying.verdict = False, Verdict.MISSING
        if saying.state is SayingState.CLAIMED:
            saying.state, saying.verdict = SayingState.PENDING, None
        self._unclaimed.put_back(saying)

    def _has_turn(self, saying: Saying) -> bool:
        return self.open or (saying.number <= self._next and (self._deaf or self._handed >= saying.needs))

    def _note_unexpected(self, record: MessageRecord) -> None:
        if not (self.open and self._replay.continues):
            self.verdicts.unexpected(record)

    def _advance(self) -> None:
        """Find the next saying, after one was settled; open after the last one."""
        sayings = self.part.sayings
        following = self._next
        while following < len(sayings) and ((one := sayings[following]).settled or not one.awaited):
            following += 1
        self._next = following
        self.wake()
        if self._all_said:
            self._drain()
        elif self._turns.waiting:
            self._wake_turns()
        self._replay.progress()

    def _wake_turns(self) -> None:
        self._turns.wake(self._next, lambda number: self._has_turn(self.part.sayings[number]))
