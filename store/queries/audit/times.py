"""Sets of times."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Interval = tuple[int, int]
"""First and last ns UTC, both included."""


class Times:
    """A set of times, as disjoint intervals in order."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self.intervals: list[Interval] = []
        for start, end in sorted(intervals):
            if self.intervals and start <= self.intervals[-1][1] + 1:
                self.intervals[-1] = self.intervals[-1][0], max(end, self.intervals[-1][1])
            else:
                self.intervals.append((start, end))
        self._starts = [start for start, _ in self.intervals]

    def __contains__(self, ts: int) -> bool:
        at = bisect_right(self._starts, ts)
        return at > 0 and ts <= self.intervals[at - 1][1]
