"""Pairing: which message that arrived at a live Messager stands for which recorded reception.

Per channel: first one with the same payload, then one that matches by rules, then by order, once as many have arrived
as are awaited. What is left over is surplus. What the recorded Messager never received stands for no reception. Each
arrival costs the same, however many receptions are awaited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from ..matching.match import Match
from .schedule import Reception

LOOKAHEAD = 100
"""Later receptions of a channel with which an arrival is compared by rules; equal bytes are found at any distance."""


class Pairing:
    """Arrivals and receptions of one Messager.

    `unheard` returns whether a reception is not to be awaited, because the Messager is not subscribed to its channel.
    `may_differ` returns whether a message that does not match may stand for a reception.
    `found` is called with each reception whose message arrived after it had been given up.
    """

    def __init__(
        self,
        match: Match,
        unheard: Callable[[Reception], bool],
        may_differ: Callable[[Reception], bool],
        found: Callable[[Reception], None],
    ) -> None:
        self.surplus: dict[bytes, deque[dict[str, Any]]] = {}
        """By channel, arrivals without a reception."""
        self.never_received: list[dict[str, Any]] = []
        """Arrivals that the recorded Messager did not receive, or that came too late. They stand for no reception."""
        self.by_order = True
        """False to pair only what matches."""
        self._match = match
        self._unheard = unheard
        self._may_differ = may_differ
        self._found = found
        self._by_payload: dict[tuple[bytes, bytes], deque[Reception]] = {}
        self._by_channel: dict[bytes, deque[Reception]] = {}
        self._given_up: dict[tuple[bytes, bytes], deque[Reception]] = {}  # handed over without their messages
        self._not_received: dict[bytes, deque[bytes]] = {}  # by channel, payloads
        self._begin = self._end = 0  # receptions of the part that were counted in `_absent`
        self._absent: dict[bytes, int] = {}  # by channel, receptions among them that are awaited

    def add(self, receptions: list[Reception]) -> None:
        """Add receptions, in order of arrival."""
        for reception in receptions:
            self._by_payload.setdefault((reception.channel, reception.payload), deque()).append(reception)
            self._by_channel.setdefault(reception.channel, deque()).append(reception)

    def add_not_received(self, messages: Iterable[tuple[bytes, bytes]]) -> None:
        """Add channel and payload of messages that the recorded Messager did not receive."""
        for channel, payload in messages:
            self._not_received.setdefault(channel, deque()).append(payload)

    def arrived(self, message: dict[str, Any]) -> Reception | None:
        """Pair a message with the reception that it stands for, or keep it; return the reception, if any."""
        channel, payload = message["channel"], message["data"]
        reception = self._same(channel, payload)
        if reception is None:
            if given_up := self._given_up.get((channel, payload)):
                self.never_received.append(message)
                return given_up.popleft()
            if self._is_not_received(channel, payload, bytes.__eq__):
                self.never_received.append(message)
                return None
            reception = self._matching(channel, payload)
        if reception is not None:
            self._pair(reception, message)
        elif not self._match.bytes_only and self._is_not_received(channel, payload, self._match.same):
            self.never_received.append(message)
        else:
            self.surplus.setdefault(channel, deque()).append(message)
        return reception

    def take_kept(self) -> list[dict[str, Any]]:
        """Remove and return the arrivals that stand for no reception."""
        kept = [*self.never_received, *(message for surplus in self.surplus.values() for message in surplus)]
        self.never_received.clear()
        self.surplus.clear()
        return kept

    def complete(self, receptions: list[Reception], begin: int, end: int) -> bool:
        """Return whether all receptions from `begin` to before `end` have arrived, or are given up.

        Those that are given up are paired by order too, with what the others leave over.
        """
        self._count(receptions, begin, end)
        if self._absent:
            if any(len(self.surplus.get(channel, ())) < count for channel, count in self._absent.items()):
                return False  # until there are as many, the missing ones may still match
            absent = [reception for reception in receptions[begin:end] if reception.awaited]
            if not self.by_order or not all(map(self._may_differ, absent)):
                return False
            for reception in absent:
                self._pair(reception, self.surplus[reception.channel].popleft())
        if self.by_order and self.surplus and any(self.surplus.values()):
            for reception in receptions[begin:end]:
                free = reception.lost and reception.message is None and self._may_differ(reception)
                if free and (left := self.surplus.get(reception.channel)):
                    self._pair(reception, left.popleft())
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

    def _count(self, receptions: list[Reception], begin: int, end: int) -> None:
        if end < self._end or begin < self._begin or (begin > self._begin and self._absent):
            self.recount(receptions)
        self._begin = begin
        for reception in receptions[max(begin, self._end) : end]:
            if reception.message is None and not reception.lost and not self._unheard(reception):
                reception.awaited = True
                self._absent[reception.channel] = self._absent.get(reception.channel, 0) + 1
        self._end = max(begin, end)

    def _pair(self, reception: Reception, message: dict[str, Any]) -> None:
        reception.message = message
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

    def _same(self, channel: bytes, payload: bytes) -> Reception | None:
        """Return the first reception of these bytes without a message; None if there is none."""
        same = self._by_payload.get((channel, payload))
        while same:
            reception = same.popleft()
            if reception.message is None and not reception.handed:
                return reception
            if reception.lost:
                self._given_up.setdefault((channel, payload), deque()).append(reception)
        return None

    def _matching(self, channel: bytes, payload: bytes) -> Reception | None:
        """Return the first reception without a message that matches by rules; None if there is none."""
        if self._match.bytes_only:
            return None
        for reception in islice(self._waiting(channel), LOOKAHEAD):
            if reception.message is None and not reception.handed and self._match.same(reception.payload, payload):
                return reception
        return None

    def _is_not_received(self, channel: bytes, payload: bytes, same: Callable[[bytes, bytes], bool]) -> bool:
        """Return whether the recorded Messager did not receive a message, and expect it once less."""
        listed = self._not_received.get(channel, deque())
        for recorded in islice(listed, LOOKAHEAD):
            if same(recorded, payload):
                listed.remove(recorded)
                return True
        return False

    def _waiting(self, channel: bytes) -> deque[Reception]:
        """Return the receptions of a channel, from the first one without a message."""
        waiting = self._by_channel.get(channel)
        if waiting is None:
            return deque()
        while waiting and (waiting[0].message is not None or waiting[0].handed):
            waiting.popleft()
        return waiting
