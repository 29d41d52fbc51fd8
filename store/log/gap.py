"""Meta of a gap: a time in which a recorder may have missed messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap as its meta describes it. A field that is missing, or has a value that no recorder writes, is unknown."""

    recorder: int | None
    """Number of the recorder that it is a gap of; None for the one that logged it. A repair logs those of others."""
    since: int | None
    """ns UTC; None if unknown."""
    until: int | None
    """ns UTC, not before `since`; None if unknown."""
    count: int | None
    """Number of messages that were lost; None if unknown."""
    reason: str
    """Empty if unknown."""

    def within(self, ts: int) -> tuple[int, int]:
        """Return its start and its end, ns UTC; `ts` is the time of its event, used for one that is unknown."""
        since = ts if self.since is None else self.since
        return since, max(since, ts if self.until is None else self.until)


def gap_of(meta: Mapping[str, Any]) -> Gap:
    """Return the gap that a meta describes. Meta of an import has values of any type; none of them raises."""
    recorder, since, until, count = (_integer(meta.get(key)) for key in ("recorder", "since", "until", "count"))
    if since is not None and until is not None:
        until = max(since, until)
    if count is not None and count < 0:
        count = None
    reason = meta.get("reason")
    return Gap(recorder, since, until, count, reason if isinstance(reason, str) else "")


def _integer(value: Any) -> int | None:
    """Return an integer that a database holds; None for any other value."""
    return value if type(value) is int and -(2**63) <= value < 2**63 else None
