"""Pairing: which message that arrived at a live Messager stands for which recorded reception.

    arrival ──> same bytes ──> matches by rules ──> the next one of its sender, if as many arrived as are awaited
                               └─ of its sender ─┘                          └──> else surplus

The messages of one sender arrive in the order in which it sent them. So what differs from the recording stands for the
next reception of its sender, whatever the rules of the comparison leave out. If the payload names no sender, every
reception of the channel is a candidate; if these have several senders, the order of reception is not known.

What a live agent of this process sends is announced before it arrives (`expect`), and needs none of this. What the
recorded Messager never received stands for no reception. Each arrival costs the same, however many receptions are
awaited.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from ..matching.match import Match
from .schedule import Key, Reception, Unreceived

LOOKAHEAD = 100
"""Later receptions of a sender with which an arrival is compared by rules; equal bytes are found at any distance."""


class _Arrival(NamedTuple):
    """A message without a reception."""

    number: int
    message: dict[str, Any]


@dataclass(slots=True)
class _Channel:
    """Receptions of one channel, and arrivals without one."""

    receptions: list[Reception] = field(default_factory=list)
    unreceived: deque[Unreceived] = field(default_factory=deque)
    by_sender: dict[Any, deque[Reception]] | None = None
    """Receptions by the sender that their payload names, None without one; made when an arrival differs."""
    surplus: dict[Any, deque[_Arrival]] = field(default_factory=dict)
    """By sender; None if the payload names none, or one that no recorded payload of the channel names."""


class Pairing:
    """Arrivals and receptions of one Messager.

    `sender_of` returns the sender that a payload names, or None.
    `unheard` returns whether a reception is not to be awaited, because the Messager is not subscribed to its channel.
    `may_differ` returns whether a message that does not match may stand for a reception.
    `found` is called with each reception whose message arrived after it had been given up.
    `by_order` is False to pair only what matches.
    """

    def __init__(
        self,
        match: Match,
        sender_of: Callable[[bytes], Any],
        unheard: Callable[[Reception], bool],
        may_differ: Callable[[Reception], bool],
        found: Callable[[Reception], None],
        *,
        by_order: bool = True,
    ) -> None:
        self.never_received: list[dict[str, Any]] = []
        """Arrivals that the recorded Messager did not receive, or that came too late. They stand for no reception."""
        self.order_known = True
        """False once an arrival differed from the recording, and messages of several senders were candidates."""
        self._match = match
        self._sender_of = sender_of
        self._unheard = unheard
        self._may_differ = may_differ
        self._found = found
        self._by_order = by_order
        self._by_payload: dict[tuple[bytes, bytes], deque[Reception]] = {}
        self._by_source: dict[Key, list[Reception | Unreceived]] = {}
        self._expected: dict[Key, bytes] = {}  # payloads that are not the recorded ones, by source
        self._channels: dict[bytes, _Channel] = {}
        self._given_up: dict[tuple[bytes, bytes], deque[Reception]] = {}  # handed over without their messages
        self._begin = self._end = 0  # receptions of the part that were counted in `_absent`
        self._absent: dict[bytes, int] = {}  # by channel, receptions among them that are awaited
        self._arrivals = 0

    def add(self, receptions: Iterable[Reception]) -> None:
        """Add receptions, in order of arrival. What has arrived already may stand for them."""
        early = sorted(one for on in self._channels.values() for arrivals in on.surplus.values() for one in arrivals)
        self._drop_surplus()
        for reception in receptions:
            self._by_source.setdefault(reception.source, []).append(reception)
            reception.payload = self._expected.get(reception.source, reception.payload)
            self._by_payload.setdefault((reception.channel, reception.payload), deque()).append(reception)
            on = self._on(reception.channel)
            on.receptions.append(reception)
            if on.by_sender is not None:
                self._add_sender(on.by_sender, reception)
        for arrival in early:
            self.arrived(arrival.message)

    def add_unreceived(self, messages: Iterable[Unreceived]) -> None:
        """Add messages that the recorded Messager did not receive, in replay order."""
        for message in messages:
            self._by_source.setdefault(message.source, []).append(message)
            self._on(message.channel).unreceived.append(message)

    def of_source(self, source: Key) -> list[Reception]:
        """Return the receptions of a recorded message."""
        return [one for one in self._by_source.get(source, ()) if isinstance(one, Reception)]

    def expect(self, source: Key, payload: bytes) -> None:
        """Expect a recorded message with this payload: it is about to be sent, or was sent already."""
        self._expected[source] = payload
        for one in self._by_source.get(source, ()):
            if one.payload != payload:
                one.payload = payload
                if isinstance(one, Reception):
                    self._by_payload.setdefault((one.channel, payload), deque()).append(one)

    def arrived(self, message: dict[str, Any]) -> Reception | None:
        """Pair a message with the reception that it stands for, or keep it; return the reception, if any."""
        channel, payload = message["channel"], message["data"]
        self._arrivals += 1
        reception = self._same(channel, payload)
        if reception is None:
            if given_up := self._given_up.get((channel, payload)):
                self.never_received.append(message)
                return given_up.popleft()
            on = self._on(channel)
            if on.unreceived and _take_out(on.unreceived, payload, bytes.__eq__):
                self.never_received.append(message)
                return None
            reception = self._matching(on, payload)
        if reception is not None:
            self._pair(reception, self._arrivals, message)
        elif not self._match.bytes_only and _take_out(on.unreceived, payload, self._match.same):
            self.never_received.append(message)
        else:
            on.surplus.setdefault(self._sender(on, payload), deque()).append(_Arrival(self._arrivals, message))
        return reception

    @property
    def surplus(self) -> list[dict[str, Any]]:
        """Arrivals that may still stand for a reception; of each sender, in order of arrival."""
        return [one.message for on in self._channels.values() for arrivals in on.surplus.values() for one in arrivals]

    def take_kept(self) -> list[dict[str, Any]]:
        """Remove and return the arrivals that stand for no reception."""
        kept = [*self.never_received, *self.surplus]
        self.never_received.clear()
        self._drop_surplus()
        return kept

    def complete(self, receptions: list[Reception], begin: int, end: int) -> bool:
        """Return whether all receptions from `begin` to before `end` have arrived, or are given up.

        Those that are given up are paired by order too, with what the others leave over.
        """
        self._count(receptions, begin, end)
        if self._absent:
            surplus = {channel: sum(map(len, self._on(channel).surplus.values())) for channel in self._absent}
            if any(surplus[channel] < count for channel, count in self._absent.items()):
                return False  # until there are as many, the missing ones may still match
            absent = [reception for reception in receptions[begin:end] if reception.awaited]
            if not self._by_order or not all(map(self._may_differ, absent)):
                return False
            pairs = self._in_order(absent)
            if len(pairs) < len(absent):
                return False
            self._pair_in_order(pairs)
        if self._by_order and any(on.surplus for on in self._channels.values()):
            free = (one for one in receptions[begin:end] if one.lost and one.message is None and self._may_differ(one))
            self._pair_in_order(self._in_order(free))
        return True

    def give_up(self, reception: Reception) -> None:
        """Do not wait for a reception."""
        reception.lost = True
        if reception.awaited:
            self._settle(reception)

    def recount(self, receptions: list[Reception]) -> None:
        """Count again what is awaited: the subscriptions or the receptions have changed."""
        for reception in receptions:
            reception.awaited = False
        self._begin = self._end = 0
        self._absent.clear()

    def _drop_surplus(self) -> None:
        for on in self._channels.values():
            on.surplus.clear()

    def _count(self, receptions: list[Reception], begin: int, end: int) -> None:
        if end < self._end or begin < self._begin or (begin > self._begin and self._absent):
            self.recount(receptions)
        self._begin = begin
        for reception in receptions[max(begin, self._end) : end]:
            if reception.message is None and not reception.lost and not self._unheard(reception):
                reception.awaited = True
                self._absent[reception.channel] = self._absent.get(reception.channel, 0) + 1
        self._end = max(begin, end)

    def _pair(self, reception: Reception, number: int, message: dict[str, Any]) -> None:
        reception.came, reception.message = number, message
        if reception.awaited:
            self._settle(reception)
        if reception.lost:
            reception.lost = False
            self._found(reception)

    def _settle(self, reception: Reception) -> None:
        """Count a reception no longer among those that are awaited."""
        reception.awaited = False
        left = self._absent[reception.channel] - 1
        if left:
            self._absent[reception.channel] = left
        else:
            del self._absent[reception.channel]

    # By bytes and by rules

    def _same(self, channel: bytes, payload: bytes) -> Reception | None:
        """Return the first reception of these bytes without a message; None if there is none."""
        same = self._by_payload.get((channel, payload))
        while same:
            reception = same.popleft()
            if reception.payload != payload:
                continue  # another one is expected
            if reception.message is None and not reception.handed:
                return reception
            if reception.lost:
                self._given_up.setdefault((channel, payload), deque()).append(reception)
        return None

    def _matching(self, on: _Channel, payload: bytes) -> Reception | None:
        """Return the first reception of the sender without a message that matches by rules; None if there is none."""
        if self._match.bytes_only or not on.receptions:
            return None
        candidates = islice(self._candidates(on, self._sender(on, payload)), LOOKAHEAD)
        first = next((one for one in candidates if self._match.same(one.payload, payload)), None)
        if first is not None and self.order_known:
            self.order_known = not any(
                one.speaker != first.speaker and self._match.same(one.payload, payload) for one in candidates
            )
        return first

    # By sender and order

    def _in_order(self, receptions: Iterable[Reception]) -> list[tuple[Reception, deque[_Arrival]]]:
        """Return the receptions whose sender has an arrival left over, each with the surplus to take it from."""
        pairs: list[tuple[Reception, deque[_Arrival]]] = []
        taken: Counter[int] = Counter()
        for reception in receptions:
            on = self._on(reception.channel)
            if not on.surplus:
                continue
            named = self._named(on)
            senders = (reception.sender,) if None in named else (reception.sender, None)
            for surplus in (on.surplus[sender] for sender in senders if sender in on.surplus):
                if len(surplus) > taken[id(surplus)]:
                    taken[id(surplus)] += 1
                    pairs.append((reception, surplus))
                    break
        return pairs

    def _pair_in_order(self, pairs: list[tuple[Reception, deque[_Arrival]]]) -> None:
        """Pair each reception with the next arrival of its sender, which differs from the recording."""
        for reception, surplus in pairs:
            on = self._on(reception.channel)
            if self.order_known:
                others = islice(self._candidates(on, reception.sender), LOOKAHEAD)
                self.order_known = not any(
                    one.speaker != reception.speaker and self._may_differ(one) for one in others
                ) and not any(one.sender == reception.sender for one in on.unreceived)
            self._pair(reception, *surplus.popleft())
            self._sort(reception, self._named(on)[reception.sender])
        for on in self._channels.values():
            on.surplus = {sender: surplus for sender, surplus in on.surplus.items() if surplus}

    def _sort(self, reception: Reception, of_sender: Iterable[Reception]) -> None:
        """Put the arrivals of a sender into their order, if a later reception was paired with an earlier one by chance.

        For example, because both hold the number of a step, and the live agents are one step behind.
        """
        later = [
            one
            for one in islice(of_sender, LOOKAHEAD)
            if one.arrival > reception.arrival and one.message is not None and self._may_differ(one)
        ]
        if any(one.came < reception.came for one in later):
            ordered = [reception, *later]
            for one, arrival in zip(ordered, sorted((one.came, one.message) for one in ordered), strict=True):
                one.came, one.message = arrival

    def _candidates(self, on: _Channel, sender: Any) -> Iterator[Reception]:
        """Return the receptions without a message for which one of this sender may stand, in order."""
        named = self._named(on)
        for waiting in named.values():
            while waiting and (waiting[0].message is not None or waiting[0].handed):
                waiting.popleft()
        groups = [named[one] for one in (sender, None) if one in named][:1] or named.values()
        return (one for one in merge(*groups, key=lambda one: one.arrival) if one.message is None and not one.handed)

    def _sender(self, on: _Channel, payload: bytes) -> Any:
        """Return the sender that a payload names, if a recorded one of the channel names it, too; else None."""
        sender = self._sender_of(payload)
        return sender if sender in self._named(on) else None

    def _named(self, on: _Channel) -> dict[Any, deque[Reception]]:
        """Return the receptions of a channel by the sender that their payload names."""
        if on.by_sender is None:
            on.by_sender = {}
            for reception in on.receptions:
                self._add_sender(on.by_sender, reception)
            for message in on.unreceived:
                message.sender = self._sender_of(message.payload)
                on.by_sender.setdefault(message.sender, deque())
        return on.by_sender

    def _add_sender(self, named: dict[Any, deque[Reception]], reception: Reception) -> None:
        reception.sender = self._sender_of(reception.payload)
        named.setdefault(reception.sender, deque()).append(reception)

    def _on(self, channel: bytes) -> _Channel:
        on = self._channels.get(channel)
        if on is None:
            on = self._channels[channel] = _Channel()
        return on


def _take_out(unreceived: deque[Unreceived], payload: bytes, same: Callable[[bytes, bytes], bool]) -> bool:
    """Return whether the recorded Messager did not receive a message, and expect it once less."""
    for recorded in islice(unreceived, LOOKAHEAD):
        if same(recorded.payload, payload):
            unreceived.remove(recorded)
            return True
    return False
