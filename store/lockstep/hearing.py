"""What a live Messager hears: arrivals, the recorded receptions for which they stand, and those that are given up.

broker ──> arrived ──> paired with a recorded reception ──> hand ──> queue of the Messager
                   └─> surplus: withheld until the end
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from messager.endpoint import Endpoint

from .cast import weak_receptions
from .pairing import Pairing
from .presence import Subscriptions
from .schedule import Key, Place, Reception
from .shared import Shared
from .verdicts import Verdicts

_MESSAGE = attrgetter("message")


class Hearing:
    """Receptions of one live Messager. `place` says which of them come before its next act."""

    def __init__(self, place: Place, endpoint: Endpoint, verdicts: Verdicts, lockstep: Shared) -> None:
        self.subscriptions = Subscriptions(lockstep.kind, place.part.covered)
        """Subscriptions of the live Messager."""
        self.unfetched = True
        """False from a fetch until the next delivery."""
        self._place, self._part = place, place.part
        self._endpoint = endpoint
        self._verdicts, self._report = verdicts, verdicts.report
        self._lockstep = lockstep
        self._silent: set[str] = set()  # senders in other processes that are not waited for
        self._pairing = Pairing(
            *(lockstep.match, lockstep.sender_of, self._unheard, lockstep.may_differ, self._found),
            by_order=lockstep.policy.by_order,
        )
        self._pairing.add(self._part.receptions)
        self._pairing.add_unreceived(self._part.unreceived)

    def subscribed(self, patterns: Sequence[str]) -> None:
        """Note the patterns to which the live Messager is subscribed."""
        self.subscriptions.set(patterns)
        if not self._part.exact:
            self._add_weak_receptions()
        for reception in self._left():
            if reception.unheard and self.subscriptions.copies(reception.channel):
                reception.unheard = reception.lost = False
                self._report.unsubscribed -= 1
        self._pairing.recount(self._part.receptions)

    def expect(self, source: Key, payload: bytes) -> None:
        """Expect a recorded message with this payload: a live agent of this process is about to say it."""
        self._pairing.expect(source, payload)

    def arrived(self, message: dict[str, Any]) -> None:
        """Pair a message with the reception for which it stands, or keep it."""
        reception = self._pairing.arrived(message)
        if self._silent and reception is not None:
            self._spoke_again(reception)

    def hand(self, limit: int) -> bool:
        """Deliver the receptions before `limit` if all of them have arrived; return False to wait."""
        handed = self._place.handed
        if limit <= handed:
            return True
        receptions = self._part.receptions
        # Most arrive in order: all others are looked at when the last one is there, not for each arrival.
        arrived = receptions[limit - 1].message is not None and all(map(_MESSAGE, receptions[handed:limit]))
        if not arrived and not self._pairing.complete(receptions, handed, limit):
            return False
        for reception in receptions[handed:limit]:
            if reception.message is not None:
                self._deliver(reception)
            reception.handed = True  # also if it was lost: a later arrival is withheld
        self._place.handed = limit
        self._report.order_known = self._pairing.order_known
        return True

    def hand_rest(self, *, withheld: bool) -> None:
        """Deliver all that has arrived. With `withheld`, that was held back until the end of the replay."""
        for reception in self._left():
            if reception.message is not None:
                self._report.withheld += withheld
                self._deliver(reception)
        for message in self._pairing.take_kept():
            self._report.withheld += 1
            self.deliver(message)

    def deliver(self, message: dict[str, Any], origin: tuple[str, int] | None = None) -> None:
        """Hand a message over to the agent."""
        self.unfetched = True
        self._endpoint.deliver(message, origin)

    # What is given up

    def lost(self, arrives: Callable[[Reception], bool]) -> bool:
        """Give up the receptions before the next act that no longer arrive; return whether there were any."""
        deaf = not self.subscriptions.patterns  # nothing arrives at all
        found = [
            reception
            for reception in self._left(None if deaf else self._place.limit())
            if reception.message is None and not reception.lost and (deaf or not arrives(reception))
        ]
        for reception in found:
            unsubscribed = not self.subscriptions.copies(reception.channel)
            if unsubscribed:
                self.subscriptions.miss(reception.channel)
            self._give_up(reception, unheard=unsubscribed)
            if not unsubscribed and (sender := self._lockstep.remote(reception)) is not None:
                self.silence(sender)
        return bool(found)

    def silence(self, sender: str) -> None:
        """Do not wait for messages of a sender, until one arrives."""
        self._silent.add(sender)

    def never_said(self, source: Key) -> bool:
        """Do not wait for a message that its sender did not say; return whether one was waited for."""
        found = [
            reception
            for reception in self._pairing.of_source(source)
            if reception.message is None and not reception.lost and not reception.handed
        ]
        for reception in found:
            self._give_up(reception)
        return bool(found)

    def absent(self, limit: int) -> Reception | None:
        """Return the first reception before `limit` that is still awaited."""
        awaited = (one for one in self._part.receptions[:limit] if not (one.message or one.handed or one.lost))
        return next(awaited, None)

    def _left(self, limit: int | None = None) -> list[Reception]:
        return self._part.receptions[self._place.handed : limit]

    def _add_weak_receptions(self) -> None:
        """Add the receptions of new subscriptions, in replay order; what was delivered stays so."""
        part, handed = self._part, self._part.receptions[: self._place.handed]
        known = {one.origin for one in part.receptions}
        last = handed[-1].arrival if handed else 0
        found = weak_receptions(self._lockstep.recording, self._lockstep.wire, self.subscriptions.copies)
        added = [one for one in found if one.origin not in known and one.arrival > last]
        part.receptions = handed + sorted([*self._left(), *added], key=lambda one: one.arrival)
        part.number()
        self._pairing.add(added)

    def _unheard(self, reception: Reception) -> bool:
        """Give a reception up if the live Messager will not subscribe to its channel, or if its sender is silent."""
        subscriptions, channel = self.subscriptions, reception.channel
        if subscriptions.patterns and not subscriptions.copies(channel) and not subscriptions.may_come(channel):
            self._give_up(reception, unheard=True)
        elif self._silent and not reception.lost and self._lockstep.remote(reception) in self._silent:
            self._give_up(reception)
        return reception.lost

    def _give_up(self, reception: Reception, *, unheard: bool = False) -> None:
        """Do not wait for a reception: it is lost, or the live Messager is not subscribed to its channel."""
        self._pairing.give_up(reception)
        reception.unheard = unheard
        if unheard:
            self._report.unsubscribed += 1
        else:
            self._report.lost += 1

    def _found(self, reception: Reception) -> None:
        """Note that a reception has arrived that was given up."""
        self._report.lost -= 1
        self._spoke_again(reception)

    def _spoke_again(self, reception: Reception) -> None:
        if (sender := self._lockstep.remote(reception)) is not None:
            self._silent.discard(sender)

    def _deliver(self, reception: Reception) -> None:
        assert reception.message is not None
        reception.handed = True
        message, reception.message = reception.message, None
        self._verdicts.heard(message["channel"], message["data"])
        origin, policy = None, self._lockstep.policy
        # In a fork, a reception that only stands for its sending repeats no event.
        if policy.origins and not (policy.holds and not self._part.exact and reception.origin == reception.source):
            origin = self._lockstep.origin(reception.origin)
        self.deliver(message, origin)
