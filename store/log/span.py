"""Parts of an experiment in replay order."""

from __future__ import annotations

from dataclasses import dataclass

from .event import Cursor


@dataclass(frozen=True, slots=True)
class Span:
    """A part of an experiment: from `start` (included) or `after` (excluded) to `end` (excluded)."""

    start: Cursor | None = None
    end: Cursor | None = None
    after: Cursor | None = None
    limit: int | None = None
    last_seqs: dict[int, int] | None = None
    """The last seq to read of each recorder, by ordinal; a recorder that is missing here is not read."""

    def __contains__(self, at: Cursor) -> bool:
        """Return whether a position is between the points; the numbers do not count."""
        return (
            (self.start is None or at >= self.start)
            and (self.after is None or at > self.after)
            and (self.end is None or at < self.end)
        )
