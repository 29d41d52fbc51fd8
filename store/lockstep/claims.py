"""Claims: which recorded message stands for one that a live agent says."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import chain, dropwhile, islice, takewhile
from typing import Any

from messager import channels
from messager.record import MessageRecord

from ..matching.match import Match
from .schedule import Act, ActState, Part, Verdict
from .verdicts import Verdicts

LOOKAHEAD = 20
"""Concurrent acts with which a message is compared by rules; equal bytes are found at any distance."""


class Unclaimed:
    """Sayings that no call has claimed. In order for each sender and channel; those with the same `heard` are a set."""

    def __init__(self, acts: Iterable[Act]) -> None:
        self._by_channel: dict[bytes, deque[Act]] = {}
        self._by_payload: defaultdict[tuple[bytes, int, bytes], deque[Act]] | None = None  # made when it is needed
        for act in sorted(acts, key=_order):
            self._by_channel.setdefault(act.channel, deque()).append(act)

    def find(self, channel: bytes, sender: Any, payload: bytes, match: Match) -> tuple[Act | None, bool]:
        """Return the act in whose place a message is said, and whether it is the same; None if it is unexpected.

        It is the next one of the sender on the channel, or one of the same set that matches. One that was given up is
        said late if it matches, or if nothing else is expected.
        """
        first = self._next(channel, sender)
        if first is None:
            given_up = list(self._of(channel, sender))
            late = next((one for one in given_up if one.fits(match, payload)), None)
            return late or next(iter(given_up), None), late is not None
        if first.fits(match, payload):
            return first, True
        for act in chain(self._equal(first, payload), islice(self._set_of(first), LOOKAHEAD)):
            if act is not first and _is_sender(act.sender, sender) and act.fits(match, payload):
                return act, True
        if not first.awaited:  # it was blocked, and may be left out
            awaited = next((one for one in self._of(channel, sender) if one.awaited), None)
            if awaited is not None and awaited.fits(match, payload):
                return awaited, True
        for act in takewhile(lambda one: one is not first, self._of(channel, sender)):
            if act.state is ActState.MISSING and act.fits(match, payload):
                return act, True
        return first, False

    def on(self, channel: bytes) -> Iterable[Act]:
        """Return the acts on a channel, in order."""
        return self._by_channel.get(channel, ())

    def remove(self, act: Act) -> None:
        """Remove an act that was claimed."""
        for listed in self._lists(act):
            if listed[0] is act:
                listed.popleft()
            else:
                listed.remove(act)

    def put_back(self, act: Act) -> None:
        """Add an act again, in its place."""
        for listed in self._lists(act):
            at = next((place for place, one in enumerate(listed) if _order(one) > _order(act)), len(listed))
            listed.insert(at, act)

    def _lists(self, act: Act) -> list[deque[Act]]:
        """Return the lists in which an act belongs."""
        on_channel = self._by_channel[act.channel]
        if self._by_payload is None:
            return [on_channel]
        return [on_channel, self._by_payload[act.channel, act.heard, act.event.payload]]

    def _next(self, channel: bytes, sender: Any) -> Act | None:
        """Return the first act of a sender that was not given up; one that failed in the recording only if there is
        no other."""
        failed = None
        for act in self._by_channel.get(channel, ()):
            if act.state is not ActState.MISSING and _is_sender(act.sender, sender):
                if act.bounds:
                    return act
                failed = failed or act
        return failed

    def _of(self, channel: bytes, sender: Any) -> Iterator[Act]:
        return (one for one in self._by_channel.get(channel, ()) if _is_sender(one.sender, sender))

    def _set_of(self, first: Act) -> Iterable[Act]:
        later = dropwhile(lambda one: one.heard < first.heard, self._by_channel[first.channel])
        return takewhile(lambda one: one.heard == first.heard, later)

    def _equal(self, first: Act, payload: bytes) -> Iterable[Act]:
        """Return the acts of the set of `first` with this payload."""
        if self._by_payload is None:
            self._by_payload = defaultdict(deque)
            for act in chain.from_iterable(self._by_channel.values()):
                self._by_payload[act.channel, act.heard, act.event.payload].append(act)
        return self._by_payload.get((first.channel, first.heard, payload), ())


def _order(act: Act) -> tuple[int, int]:
    """Order of the calls: `heard` does not decrease from one call of a Messager to the next."""
    return act.heard, act.number


def _is_sender(recorded: Any, given: Any) -> bool:
    """Return whether a recorded and a given sender may be the same; a missing one may be any."""
    return recorded is None or given is None or (type(recorded) is type(given) and recorded == given)


class Claims:
    """Recorded messages that stand for what one live Messager says."""

    def __init__(self, part: Part, match: Match, verdicts: Verdicts) -> None:
        self._match = match
        self._verdicts = verdicts
        self._unclaimed = Unclaimed(part.sends)
        self._claimed: dict[int, Act] = {}  # by id of the record

    def __len__(self) -> int:
        """Return the number of messages that are on their way."""
        return len(self._claimed)

    def find(self, record: MessageRecord) -> tuple[Act | None, bool]:
        """Return the act in whose place a message is said, and whether it is the same; if not, ask `judge`."""
        act, same = self._unclaimed.find(_channel(record), record.from_id, record.payload, self._match)
        if act is not None and same:
            self._match_with(act)
        return act, same

    async def judge(self, act: Act, record: MessageRecord) -> Act | None:
        """Return the act in whose place another message is said; None if that is unexpected. Raises `JudgeFailed`."""
        if self._verdicts.is_replaced(record):
            return None
        self._unclaimed.remove(act)  # before the judge, which other calls do not wait for
        try:
            same = await self._verdicts.accepts(act, record.payload)
        except BaseException:
            self._unclaimed.put_back(act)
            raise
        act.verdict = Verdict.MATCHED if same else Verdict.DIFFERENT
        return act

    def late(self, record: MessageRecord) -> Act | None:
        """Return the act in whose place a message is said after the last one: one that was given up, or blocked."""
        act, same = self._unclaimed.find(_channel(record), record.from_id, record.payload, self._match)
        if act is None or not same or (act.awaited and act.state is not ActState.MISSING):
            return None
        self._match_with(act)
        return act

    def claim(self, act: Act, record: MessageRecord) -> None:
        """Note that a message is on its way in the place of an act."""
        act.state, act.taken = ActState.CLAIMED, True
        self._claimed[id(record)] = act

    def pop(self, record: MessageRecord) -> Act | None:
        """Return the act in whose place a message was on its way, which it is no longer."""
        return self._claimed.pop(id(record), None)

    def put_back(self, act: Act) -> None:
        """Expect an act again, as its message was not sent."""
        act.taken, act.verdict = False, Verdict.MISSING
        if act.state is ActState.CLAIMED:
            act.state, act.verdict = ActState.PENDING, None
        self._unclaimed.put_back(act)

    def _match_with(self, act: Act) -> None:
        self._unclaimed.remove(act)
        act.verdict = Verdict.MATCHED


def _channel(record: MessageRecord) -> bytes:
    return channels.encode(record.channel or "")
