"""Alignment of expected messages with live ones, so that accepting changes as few lines of a recording as possible.

A replay compares in order, so one message that is left out makes all later ones of its channel differ. What is accepted
is aligned like the lines of two files instead: the longest common subsequence stays, the rest is paired in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from messager_store.db.codes import FROM_DERIVED
from messager_store.log.event import Event
from messager_store.queries.comparison.sequence_alignment import align


@dataclass(frozen=True, slots=True)
class Saying:
    """A message of a live agent, with what it had heard in the numbers of the recording."""

    kind: str
    channel: str
    payload: bytes
    from_id: Any
    to_id: Any
    messager: str | None
    heard: int | None
    follows: tuple[int, int] | None = None
    """(recorder, seq) of the last recorded message that was heard, if the recording has no numbers."""
    needs: int = 0
    """Number of recorded receptions that come before it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An expected message and the live one in its place; one of them may be missing."""

    expected: Event | None
    live: Saying | None
    matched: bool = False
    """True if the live message counts as equal; the expected one stays in the recording."""
    stays: bool = False
    """True if it is not aligned with others: its place is that of a message that was said late, or after one."""
    moved: bool = False
    """True if the live message cannot take the line of the expected one: it was said at another time."""


def aligned(pairs: Sequence[Pair], same: Callable[[bytes, bytes], bool]) -> list[Pair]:
    """Return the pairs of one live Messager, aligned for each sender and channel, in the order of the live messages."""
    places = [(_channel(pair), repr(_sender(pair))) for pair in pairs]
    without_sender = {channel for channel, sender in places if sender == "None"}
    groups: defaultdict[tuple[str | None, str], list[int]] = defaultdict(list)
    for at, (channel, sender) in enumerate(places):
        groups[channel, "None" if channel in without_sender else sender].append(at)
    found: list[tuple[float, Pair]] = []
    for listed in groups.values():
        found += _aligned_group([(at, pairs[at]) for at in listed], same)
    return [pair for _, pair in sorted(found, key=lambda one: one[0])]


def _channel(pair: Pair) -> str | None:
    return pair.expected.channel if pair.expected is not None else pair.live.channel if pair.live is not None else None


def _sender(pair: Pair) -> Any:
    """Return the sender that the program gave; a recorded one may have been derived."""
    if pair.expected is not None:
        return None if pair.expected.flags & FROM_DERIVED else pair.expected.from_id
    return None if pair.live is None else pair.live.from_id


def _aligned_group(
    group: Sequence[tuple[float, Pair]], same: Callable[[bytes, bytes], bool]
) -> list[tuple[float, Pair]]:
    """Return the pairs of one sender and channel, each with its place, aligned."""
    if fixed := [one for one in group if one[1].stays]:
        return fixed + _aligned_group([one for one in group if not one[1].stays], same)
    matched = {(id(pair.expected), id(pair.live)) for _, pair in group if pair.matched}
    expected = sorted((pair.expected for _, pair in group if pair.expected is not None), key=lambda event: event.cursor)
    live = [(at, pair.live) for at, pair in group if pair.live is not None]

    def equal(a: int, b: int) -> bool:
        event, saying = expected[a], live[b][1]
        return (id(event), id(saying)) in matched or same(event.payload, saying.payload)

    if len(matched) == len(group):
        return list(group)
    return _paired(expected, live, align([0] * len(expected), [0] * len(live), equal).pairs)


def _paired(
    expected: Sequence[Event], live: Sequence[tuple[float, Saying]], common: Sequence[tuple[int, int]]
) -> list[tuple[float, Pair]]:
    """Return pairs with their places: those of the common subsequence match, those between are paired in order."""
    found: list[tuple[float, Pair]] = []
    a = b = 0
    place = -1.0
    for next_a, next_b in [*common, (len(expected), len(live))]:
        while a < next_a or b < next_b:
            event = expected[a] if a < next_a else None
            saying = live[b][1] if b < next_b else None
            place = live[b][0] if b < next_b else place + 0.001
            found.append((place, Pair(event, saying)))
            a, b = a + (a < next_a), b + (b < next_b)
        if next_a < len(expected) and next_b < len(live):
            place = live[b][0]
            found.append((place, Pair(expected[a], live[b][1], matched=True)))
            a, b = a + 1, b + 1
    return found
