"""Unclaimed sayings: what a live Messager is still expected to say, in order for each channel."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import chain, dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Any

from .schedule import Saying, SayingState

if TYPE_CHECKING:
    from ..matching.match import Match

LOOKAHEAD = 20
"""Concurrent sayings with which a message is compared by rules; equal bytes are found at any distance."""


class Unclaimed:
    """Sayings that no call has claimed. In order for each sender and channel; those with the same `heard` are a set."""

    def __init__(self, sayings: Iterable[Saying]) -> None:
        self._by_channel: dict[bytes, deque[Saying]] = {}
        self._by_payload: defaultdict[tuple[bytes, int, bytes], deque[Saying]] | None = None  # made when it is needed
        for saying in sorted(sayings, key=_order):
            self._by_channel.setdefault(saying.channel, deque()).append(saying)

    def find(self, channel: bytes, sender: Any, payload: bytes, match: Match) -> tuple[Saying | None, bool]:
        """Return the saying in whose place a message is said, and whether it is the same; None if it is unexpected.

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
        for saying in chain(self._equal(first, payload), islice(self._set_of(first), LOOKAHEAD)):
            if saying is not first and _is_sender(saying.sender, sender) and saying.fits(match, payload):
                return saying, True
        if not first.awaited:  # it was blocked, and may be left out
            awaited = next((one for one in self._of(channel, sender) if one.awaited), None)
            if awaited is not None and awaited.fits(match, payload):
                return awaited, True
        for saying in takewhile(lambda one: one is not first, self._of(channel, sender)):
            if saying.state is SayingState.MISSING and saying.fits(match, payload):
                return saying, True
        return first, False

    def on(self, channel: bytes) -> Iterable[Saying]:
        """Return the sayings on a channel, in order."""
        return self._by_channel.get(channel, ())

    def remove(self, saying: Saying) -> None:
        """Remove a saying that was claimed."""
        for listed in self._lists(saying):
            if listed[0] is saying:
                listed.popleft()
            else:
                listed.remove(saying)

    def put_back(self, saying: Saying) -> None:
        """Add a saying again, in its place."""
        for listed in self._lists(saying):
            at = next((place for place, one in enumerate(listed) if _order(one) > _order(saying)), len(listed))
            listed.insert(at, saying)

    def _lists(self, saying: Saying) -> list[deque[Saying]]:
        """Return the lists in which a saying belongs."""
        on_channel = self._by_channel[saying.channel]
        if self._by_payload is None:
            return [on_channel]
        return [on_channel, self._by_payload[saying.channel, saying.heard, saying.event.payload]]

    def _next(self, channel: bytes, sender: Any) -> Saying | None:
        """Return the first saying of a sender that was not given up; one that failed in the recording only if there is
        no other."""
        failed = None
        for saying in self._by_channel.get(channel, ()):
            if saying.state is not SayingState.MISSING and _is_sender(saying.sender, sender):
                if saying.event.kind != "failed":
                    return saying
                failed = failed or saying
        return failed

    def _of(self, channel: bytes, sender: Any) -> Iterator[Saying]:
        return (one for one in self._by_channel.get(channel, ()) if _is_sender(one.sender, sender))

    def _set_of(self, first: Saying) -> Iterable[Saying]:
        later = dropwhile(lambda one: one.heard < first.heard, self._by_channel[first.channel])
        return takewhile(lambda one: one.heard == first.heard, later)

    def _equal(self, first: Saying, payload: bytes) -> Iterable[Saying]:
        """Return the sayings of the set of `first` with this payload."""
        if self._by_payload is None:
            self._by_payload = defaultdict(deque)
            for saying in chain.from_iterable(self._by_channel.values()):
                self._by_payload[saying.channel, saying.heard, saying.event.payload].append(saying)
        return self._by_payload.get((first.channel, first.heard, payload), ())


def _order(saying: Saying) -> tuple[int, int]:
    """Order of the calls: `heard` does not decrease from one call of a Messager to the next."""
    return saying.heard, saying.number


def _is_sender(recorded: Any, given: Any) -> bool:
    """Return whether a recorded and a given sender may be the same; a missing one may be any."""
    return recorded is None or given is None or (type(recorded) is type(given) and recorded == given)
