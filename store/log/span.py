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
