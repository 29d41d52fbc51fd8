"""Alignment of two sequences: which elements of one are the elements of the other, in the same order.

Common ends are cut off. A small rest is aligned exactly, by dynamic programming. A large one is aligned by anchors, as
in patience diff: elements, or runs of elements, that both sides have once, in their longest increasing order; the parts
between them are aligned in the same way. A part without anchors is aligned exactly in windows along it. The work on a
part is limited, so that the time grows a little faster than the lengths; memory is a few integers an element.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import isqrt
from typing import NamedTuple

CELLS = 10_000
"""Maximum of pairs of elements in a part that is aligned exactly."""
FEW = 0.1
"""Share of elements that both sides have, in any order, below which only anchors are aligned."""
RUNS = (1, 4, 16, 64)
"""Numbers of successive elements that are looked for as anchors, in this order."""

Pairs = list[tuple[int, int]]
Equal = Callable[[int, int], bool]
_Part = tuple[int, int, int, int]
"""Begin and end in A, begin and end in B."""


class Alignment(NamedTuple):
    """Result of `align`."""

    pairs: Pairs
    """Positions of equal elements in A and in B, increasing on both sides."""
    by_anchors: bool
    """True if both sides have less than `FEW` of the elements, so that parts between anchors were not aligned."""


def align(a: Sequence[int], b: Sequence[int], equal: Equal | None = None) -> Alignment:
    """Align two sequences of numbers.

    Elements are equal if their numbers are and, if it is given, `equal(i, j)` is true for their positions. Sequences
    whose lengths multiply to at most `CELLS` without their common ends are aligned as `_exact` describes.
    """

    def same(i: int, j: int) -> bool:
        return a[i] == b[j] and (equal is None or equal(i, j))

    found: Pairs = []
    whole = _without_ends((0, len(a), 0, len(b)), same, found)
    if whole is None:
        return Alignment(sorted(found), False)
    if _cells(whole) > CELLS and len(found) + _common(a, b, whole) < FEW * max(len(a), len(b)):
        return Alignment(sorted(found + _anchors(a, b, whole, same)), True)
    parts = [whole]
    while parts:
        split = _split(a, b, parts.pop(), same, found)
        parts += [part for one in split if (part := _without_ends(one, same, found))]
    return Alignment(sorted(found), False)


def _without_ends(part: _Part, same: Equal, found: Pairs) -> _Part | None:
    """Add the pairs of equal elements at both ends to `found`; return what is left, None if a side is empty then."""
    a_begin, a_end, b_begin, b_end = part
    while a_begin < a_end and b_begin < b_end and same(a_begin, b_begin):
        found.append((a_begin, b_begin))
        a_begin, b_begin = a_begin + 1, b_begin + 1
    while a_begin < a_end and b_begin < b_end and same(a_end - 1, b_end - 1):
        a_end, b_end = a_end - 1, b_end - 1
        found.append((a_end, b_end))
    return (a_begin, a_end, b_begin, b_end) if a_begin < a_end and b_begin < b_end else None


def _split(a: Sequence[int], b: Sequence[int], part: _Part, same: Equal, found: Pairs) -> list[_Part]:
    """Add pairs of a part to `found`; return the parts between them that are still to be aligned."""
    if _cells(part) <= CELLS:
        found += _exact(a, b, part, same)
        return []
    if not _common(a, b, part):
        return []
    anchors = _anchors(a, b, part, same)
    found += anchors or _by_windows(a, b, part, same)
    return list(_between(anchors, part)) if anchors else []


def gaps(pairs: Sequence[tuple[int, int]], a: int, b: int) -> Iterator[tuple[range, range]]:
    """Yield the positions between the pairs of an alignment of sequences of these lengths, of A and of B."""
    i = j = 0
    for next_i, next_j in [*pairs, (a, b)]:
        if i < next_i or j < next_j:
            yield range(i, next_i), range(j, next_j)
        i, j = next_i + 1, next_j + 1


def _cells(part: _Part) -> int:
    a_begin, a_end, b_begin, b_end = part
    return (a_end - a_begin) * (b_end - b_begin)


def _common(a: Sequence[int], b: Sequence[int], part: _Part) -> int:
    """Return the number of elements that both sides of a part have, in any order."""
    a_begin, a_end, b_begin, b_end = part
    return (Counter(a[a_begin:a_end]) & Counter(b[b_begin:b_end])).total()


def _between(pairs: Pairs, part: _Part) -> Iterator[_Part]:
    i, a_end, j, b_end = part
    for next_i, next_j in [*pairs, (a_end, b_end)]:
        if i < next_i and j < next_j:
            yield i, next_i, j, next_j
        i, j = next_i + 1, next_j + 1


def _exact(a: Sequence[int], b: Sequence[int], part: _Part, same: Equal) -> Pairs:
    """Return the alignment of a small part with the most equal pairs and pairs of surplus elements together.

    An element is surplus if its side has more of its number. Of several alignments, it is one with the most equal
    pairs. Then the fewest elements have moved, were changed or are on one side only, if two surplus elements between
    the same equal ones count as one that was changed.
    """
    a_begin, a_end, b_begin, b_end = part
    count_a, count_b = Counter(a[a_begin:a_end]), Counter(b[b_begin:b_end])
    if count_a.keys().isdisjoint(count_b):
        return []
    height, width = a_end - a_begin, b_end - b_begin
    pair = height + width + 1
    match = pair + 1
    surplus_a = [count_a[one] > count_b[one] for one in a[a_begin:a_end]]
    surplus_b = [count_b[one] > count_a[one] for one in b[b_begin:b_end]]
    rows = [[0] * (width + 1)]
    for y in range(height - 1, -1, -1):
        below = rows[-1]
        row = [0] * (width + 1)
        for x in range(width - 1, -1, -1):
            best = below[x] if below[x] > row[x + 1] else row[x + 1]
            if same(a_begin + y, b_begin + x):
                best = max(best, below[x + 1] + match)
            elif surplus_a[y] and surplus_b[x]:
                best = max(best, below[x + 1] + pair)
            row[x] = best
        rows.append(row)
    rows.reverse()
    found: Pairs = []
    y = x = 0
    while y < height and x < width:
        here, beside = rows[y][x], rows[y + 1][x + 1]
        if here == beside + match and same(a_begin + y, b_begin + x):
            found.append((a_begin + y, b_begin + x))
            y, x = y + 1, x + 1
        elif here == beside + pair and surplus_a[y] and surplus_b[x]:
            y, x = y + 1, x + 1
        elif here == rows[y + 1][x]:
            y += 1
        else:
            x += 1
    return found


def _by_windows(a: Sequence[int], b: Sequence[int], part: _Part, same: Equal) -> Pairs:
    """Return common elements of a part: windows along it are aligned exactly, each from the end of the one before."""
    i, a_end, j, b_end = part
    width = isqrt(CELLS)
    kept = width * 3 // 4
    found: Pairs = []
    while i < a_end and j < b_end:
        if same(i, j):
            found.append((i, j))
            i, j = i + 1, j + 1
            continue
        last = a_end - i <= width and b_end - j <= width
        pairs = _exact(a, b, (i, min(i + width, a_end), j, min(j + width, b_end)), same)
        pairs = [(y, x) for y, x in pairs if last or (y < i + kept and x < j + kept)]
        found += pairs
        if last:
            break
        y, x = pairs[-1] if pairs else (i, j)
        skipped = 1 if max(y - i, x - j) > width // 4 else max(width // 2, 1)
        i, j = y + skipped, x + skipped
    return found


def _anchors(a: Sequence[int], b: Sequence[int], part: _Part, same: Equal) -> Pairs:
    """Return pairs of elements that begin a run which each side of the part has once; the shortest runs that exist."""
    for width in RUNS:
        runs_a, runs_b = _runs(a, part[0], part[1], width), _runs(b, part[2], part[3], width)
        count_a, count_b = Counter(runs_a), Counter(runs_b)
        places = {run: j for j, run in enumerate(runs_b, part[2]) if count_b[run] == 1}
        once = ((i, places[run]) for i, run in enumerate(runs_a, part[0]) if count_a[run] == 1 and run in places)
        if found := [pair for pair in once if same(*pair)]:
            return _increasing(found)
    return []


def _runs(elements: Sequence[int], begin: int, end: int, width: int) -> Sequence[int]:
    """Return a hash of the run of this width that begins at each element."""
    if width == 1:
        return elements[begin:end]
    return [hash(tuple(elements[at : at + width])) for at in range(begin, end - width + 1)]


def _increasing(pairs: Pairs) -> Pairs:
    """Return the longest subsequence that increases on both sides, of pairs that increase in A."""
    ends: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        place = bisect_left(ends, j)
        before.append(at[place - 1] if place else -1)
        if place == len(ends):
            ends.append(j)
            at.append(number)
        else:
            ends[place], at[place] = j, number
    found: Pairs = []
    number = at[-1] if at else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]
