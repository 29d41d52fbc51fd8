"""Exact percentiles of any number of values, at 8 bytes each."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

SORTED = 65_536
"""Values that are sorted together: sorting takes about 40 bytes for each of them."""


def percentiles(values: array[int], percents: Sequence[int]) -> list[int]:
    """Return percentiles by nearest rank: the smallest value such that so many percent of all values are equal or less.
    100 is the maximum. Raises `ValueError` for no values.

    The order of many values changes: parts of them are sorted in place, and the rank is found by bisection.
    """
    number = len(values)
    if not number:
        raise ValueError("no values")
    ranks = [max(1, -(-percent * number // 100)) for percent in percents]
    if number <= SORTED:
        ordered = sorted(values)
        return [ordered[rank - 1] for rank in ranks]
    parts = [(start, min(start + SORTED, number)) for start in range(0, number, SORTED)]
    for start, end in parts:
        values[start:end] = array("q", sorted(values[start:end]))
    least, most = min(values[start] for start, _ in parts), max(values[end - 1] for _, end in parts)
    found = []
    for rank in ranks:
        low, high = least, most
        while low < high:
            middle = (low + high) // 2
            if sum(bisect_right(values, middle, start, end) - start for start, end in parts) >= rank:
                high = middle
            else:
                low = middle + 1
        found.append(low)
    return found
