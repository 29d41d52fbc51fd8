"""Durations and their exact percentiles, at 8 bytes each."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

SORTED = 65_536
"""Durations that are sorted together; sorting takes about 40 bytes each."""


class Durations:
    """A collection of int64 nanoseconds."""

    __slots__ = ("_new", "_sorted")

    def __init__(self) -> None:
        self._sorted: list[array[int]] = []
        self._new: array[int] = array("q")

    def add(self, duration: int) -> None:
        """Add a duration."""
        self._new.append(duration)
        if len(self._new) >= SORTED:
            self._sort()

    def _sort(self) -> None:
        if self._new:
            self._sorted.append(array("q", sorted(self._new)))
            self._new = array("q")

    def parts(self) -> list[array[int]]:
        """Return all durations, in sorted arrays."""
        self._sort()
        return self._sorted


def percentiles(all_of: Iterable[Durations], percents: Sequence[int]) -> list[int]:
    """Return percentiles of the union of collections by nearest rank: the smallest value such that so many percent of
    all values are equal or less. 100 is the maximum. Raises `ValueError` for no durations.

    A percentile is a value that was added. Nothing is copied: the rank is found by bisection over the values.
    """
    parts = [part for durations in all_of for part in durations.parts()]
    number = sum(map(len, parts))
    if not number:
        raise ValueError("no durations")
    if len(parts) == 1:
        return [parts[0][_rank(percent, number) - 1] for percent in percents]
    least, most = min(part[0] for part in parts), max(part[-1] for part in parts)
    found = []
    for percent in percents:
        rank, low, high = _rank(percent, number), least, most
        while low < high:
            middle = (low + high) // 2
            if sum(bisect_right(part, middle) for part in parts) >= rank:
                high = middle
            else:
                low = middle + 1
        found.append(low)
    return found


def _rank(percent: int, number: int) -> int:
    """Return the nearest rank, from 1."""
    return max(1, -(-percent * number // 100))
