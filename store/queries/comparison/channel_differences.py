"""Differences of one channel behind its common opening: moved, changed, only in A, only in B."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from ...log.event import Cursor, Event
from ...matching.match import Match
from .canonical import Canonical
from .channel_tails import ChannelTails, Tail
from .rows import AlignedRows
from .sequence_alignment import align, gaps
from .side import Side
from .similarity import Grams, grams, most_similar, similarity

Kind = Literal["changed", "moved", "only_a", "only_b"]

TOGETHER = 500
"""Messages whose payloads are fetched at once to find out which of them were changed."""
MOST_COMPARED = 40
"""Maximum of messages on either side between equal ones whose texts are compared; more are paired in order."""
MOST_IN_ALL = 1_000_000
"""Maximum of comparisons of texts on one channel; the rest is paired in order."""
_TRIED = 20
"""Elements with the same digest that are tried until one has near numbers, to find out what moved."""
_SAME_AGENTS = 0.3
"""Added to the similarity of messages from the same sender to the same recipient."""
_REDACTED = 2.0
"""Similarity of a redacted message to any other."""


@dataclass(frozen=True, slots=True)
class Place:
    """A difference by its positions, without content."""

    order: int
    """Place of the difference in the replay order of A, as far as a message of B has one."""
    key: str
    """Channel and sender, as `Side.key` writes them."""
    kind: Kind
    index_a: int | None
    """Position among A's messages of the channel, from 0."""
    index_b: int | None
    a: Cursor | None
    b: Cursor | None


@dataclass(slots=True)
class ChannelDifferences:
    """Differences of one channel, in order."""

    places: list[Place] = field(default_factory=list)
    """The first ones."""
    counts: Counter[Kind] = field(default_factory=Counter)
    """Numbers of all differences."""
    equal: int = 0
    redacted: int = 0
    matched: int = 0
    by_anchors: bool = False
    """True if both sides have so little in common that only anchors were aligned, and texts were not compared."""


async def differences_of(
    key: str,
    channel: ChannelTails,
    sides: tuple[Side, Side],
    canonical: Canonical,
    match: Match | None,
    most: int,
    rows: AlignedRows | None = None,
) -> ChannelDifferences:
    """Align what follows the opening of a channel; return its first difference and at most `most` in all.

    All of it is added to `rows`. Raises `JudgeFailed`.
    """
    alignment = _ChannelAlignment(channel, sides, canonical, match)
    await alignment.run()
    alignment.entries.sort()
    if rows is not None:
        alignment.add_to(rows, key)
    for order, kind, i, j in alignment.entries[: max(most, 1)]:
        index_a, index_b = (None if at < 0 else channel.opening + at for at in (i, j))
        a, b = (None if at < 0 else tail.cursor(at) for tail, at in zip(channel.tails, (i, j), strict=True))
        alignment.found.places.append(Place(order, key, kind, index_a, index_b, a, b))
    return alignment.found


@dataclass(slots=True)
class _Gap:
    """Messages between two equal ones that are not equal to each other, by their positions in the tails."""

    a: list[int]
    b: list[int]
    shift: int
    """Ordinal in A minus ordinal in B, of the equal messages before."""


class _ChannelAlignment:
    def __init__(
        self, channel: ChannelTails, sides: tuple[Side, Side], canonical: Canonical, match: Match | None
    ) -> None:
        self._channel, self._sides, self._match = channel, sides, match
        self._canonical = canonical
        self._a, self._b = channel.tails
        self.found = ChannelDifferences(equal=channel.opening, redacted=channel.redacted, matched=channel.matched)
        self.entries: list[tuple[int, Kind, int, int]] = []
        """Order, kind, and positions in the tails of A and B, -1 for none."""
        self._equals: list[tuple[int, int]] = []
        self._texts_left = MOST_IN_ALL

    async def run(self) -> None:
        """Find the differences."""
        found = self.found
        for tail in self._channel.tails:
            tail.compact()
        numbers = _Numbers()
        of_a, of_b = numbers.of(self._a), numbers.of(self._b)
        pairs, found.by_anchors = align(of_a, of_b, self._near if self._canonical.has_numbers else None)
        for i, j in pairs:
            self._equal(i, j)
        rest = self._gaps(pairs)
        moved = self._moved(of_a, of_b, rest)
        order_b = {j: self._b.ordinals[j] + gap.shift for gap in rest for j in gap.b}
        for i, j in moved.items():
            found.matched += self._a.hashes[i] != self._b.hashes[j]
            self._add("moved", i, j, min(self._a.ordinals[i], order_b[j]))
        arrived = set(moved.values())
        for gap in rest:
            gap.a, gap.b = [i for i in gap.a if i not in moved], [j for j in gap.b if j not in arrived]
        paired_a, paired_b = set(), set()
        async for i, j, equal in self._accepted(self._paired(rest)):
            paired_a.add(i)
            paired_b.add(j)
            if equal:
                self._equal(i, j)
            else:
                self._add("changed", i, j, self._a.ordinals[i])
        for gap in rest:
            for i in gap.a:
                if i not in paired_a:
                    self._add("only_a", i, -1, self._a.ordinals[i])
            for j in gap.b:
                if j not in paired_b:
                    self._add("only_b", -1, j, order_b[j])

    def _near(self, i: int, j: int) -> bool:
        return self._canonical.near(self._a.numbers[i], self._b.numbers[j])

    def _redacted(self, i: int, j: int) -> bool:
        return self._a.digests[i] is None or self._b.digests[j] is None

    def add_to(self, rows: AlignedRows, key: str) -> None:
        """Add all messages behind the opening."""
        a, b = self._a.ordinals, self._b.ordinals
        for i, j in self._equals:
            rows.add(key, "equal", a[i], b[j])
        for _, kind, i, j in self.entries:
            rows.add(key, kind, -1 if i < 0 else a[i], -1 if j < 0 else b[j])

    def _equal(self, i: int, j: int) -> None:
        self._equals.append((i, j))
        redacted = self._redacted(i, j)
        self.found.equal += 1
        self.found.redacted += redacted
        self.found.matched += not redacted and self._a.hashes[i] != self._b.hashes[j]

    def _add(self, kind: Kind, i: int, j: int, order: int) -> None:
        self.found.counts[kind] += 1
        self.entries.append((order, kind, i, j))

    def _gaps(self, pairs: Sequence[tuple[int, int]]) -> list[_Gap]:
        found = []
        a, b = self._a.ordinals, self._b.ordinals
        before = dict(pairs)
        for of_a, of_b in gaps(pairs, len(self._a), len(self._b)):
            last = of_a.start - 1
            shift = a[last] - b[before[last]] if last in before else self._channel.shift
            found.append(_Gap(list(of_a), list(of_b), shift))
        return found

    def _moved(self, of_a: Sequence[int], of_b: Sequence[int], rest: Sequence[_Gap]) -> dict[int, int]:
        """Return the positions in B of messages of A that are equal, but at another place."""
        places: dict[int, deque[int]] = {}
        for gap in rest:
            for j in gap.b:
                places.setdefault(of_b[j], deque()).append(j)
        found: dict[int, int] = {}
        for gap in rest:
            for i in gap.a:
                candidates = places.get(of_a[i])
                if not candidates:
                    continue
                near = next((j for j in islice(candidates, _TRIED) if self._near(i, j)), None)
                if near is not None:
                    candidates.remove(near)
                    found[i] = near
        return found

    async def _paired(self, rest: Sequence[_Gap]) -> AsyncIterator[tuple[int, int]]:
        """Yield messages of A with those of B in their place, by their texts as far as these are compared."""
        waiting: list[_Gap] = []
        fetched = 0
        for gap in rest:
            a, b = len(gap.a), len(gap.b)
            if not a or not b:
                continue
            self._texts_left -= a * b
            if a * b == 1 or max(a, b) > MOST_COMPARED or self.found.by_anchors or self._texts_left < 0:
                for pair in zip(gap.a, gap.b, strict=False):
                    yield pair
                continue
            waiting.append(gap)
            fetched += a + b
            if fetched >= TOGETHER:
                for pair in await self._by_text(waiting):
                    yield pair
                waiting, fetched = [], 0
        for pair in await self._by_text(waiting):
            yield pair

    async def _by_text(self, waiting: Sequence[_Gap]) -> list[tuple[int, int]]:
        events_a = await self._sides[0].events(self._a.cursor(i) for gap in waiting for i in gap.a)
        events_b = await self._sides[1].events(self._b.cursor(j) for gap in waiting for j in gap.b)
        found = []
        for gap in waiting:
            a = [_Said.of(events_a[self._a.cursor(i)]) for i in gap.a]
            b = [_Said.of(events_b[self._b.cursor(j)]) for j in gap.b]
            pairs = most_similar(len(a), len(b), lambda y, x, a=a, b=b: a[y].likeness(b[x]))  # type: ignore[misc]
            found += [(gap.a[y], gap.b[x]) for y, x in pairs]
        return found

    async def _accepted(self, pairs: AsyncIterator[tuple[int, int]]) -> AsyncIterator[tuple[int, int, bool]]:
        """Yield pairs, and whether they count as equal: redacted ones do, and those that the `Match` accepts."""
        waiting: list[tuple[int, int]] = []
        async for i, j in pairs:
            if self._match is None or self._redacted(i, j):
                yield i, j, self._redacted(i, j)
                continue
            waiting.append((i, j))
            if len(waiting) == TOGETHER:
                for one in await self._judged(waiting, self._match):
                    yield one
                waiting = []
        if self._match is not None:
            for one in await self._judged(waiting, self._match):
                yield one

    async def _judged(self, pairs: Sequence[tuple[int, int]], match: Match) -> list[tuple[int, int, bool]]:
        events_a = await self._sides[0].events(self._a.cursor(i) for i, _ in pairs)
        events_b = await self._sides[1].events(self._b.cursor(j) for _, j in pairs)
        return [
            (i, j, await match.accepts(events_a[self._a.cursor(i)].payload, events_b[self._b.cursor(j)].payload))
            for i, j in pairs
        ]


class _Numbers:
    """Numbers for digests, the same for equal ones. Each redacted message has its own."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._redacted = 0

    def of(self, tail: Tail) -> list[int]:
        """Return the numbers of the messages of a tail."""
        known = self._known
        return [self._next_redacted() if one is None else known.setdefault(one, len(known)) for one in tail.digests]

    def _next_redacted(self) -> int:
        self._redacted -= 1
        return self._redacted


@dataclass(frozen=True, slots=True)
class _Said:
    """A message as its likeness to others is measured."""

    text: Grams
    agents: tuple[str, str]
    redacted: bool

    @classmethod
    def of(cls, entry: Event) -> _Said:
        """Return a message."""
        return cls(grams(entry.text), (repr(entry.from_id), repr(entry.to_id)), entry.redacted)

    def likeness(self, other: _Said) -> float:
        """Return the similarity of the texts, and more if sender and recipient are the same."""
        if self.redacted or other.redacted:
            return _REDACTED
        return similarity(self.text, other.text) + _SAME_AGENTS * (self.agents == other.agents)
