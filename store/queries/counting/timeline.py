"""A timeline: buckets of time in order, without the long silences between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stretch:
    """Buckets that follow each other, the empty ones among them included."""

    start: int
    """Start of the first bucket, ns UTC."""
    end: int
    """End of the last bucket, ns UTC."""


def stretches(starts: Iterable[int], bucket_ns: int, max_gap_ns: int | None = None) -> list[Stretch]:
    """Return the stretches between silences, given the starts of the buckets that are not empty.

    A silence is longer than `max_gap_ns`, from the end of a bucket to the start of the next; None for no limit.
    """
    found: list[Stretch] = []
    for start in sorted(set(starts)):
        end = start + bucket_ns
        if found and (max_gap_ns is None or start - found[-1].end <= max_gap_ns):
            found[-1] = Stretch(found[-1].start, end)
        else:
            found.append(Stretch(start, end))
    return found
