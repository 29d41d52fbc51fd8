"""Kinds of problems of a recording."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...log.event import Cursor, Event


class Kind(StrEnum):
    """Kinds of problems, in the order in which they are reported."""

    NEVER = "never arrived"
    MISSED = "missed"
    TWICE = "arrived twice"
    LATE = "late"
    BLOCKED = "blocked"
    FAILED = "failed"
    GAP = "gap"
    UNCLEAN = "unclean end"


ARRIVALS = frozenset((Kind.NEVER, Kind.MISSED, Kind.TWICE, Kind.LATE))
"""The kinds that are known only if deliveries are."""


class Reason(StrEnum):
    """Reasons why a message did not arrive at a listener."""

    NOBODY = "nobody listened"
    STOPPED = "listener stopped"
    GAP = "in a gap"
    CRASH = "listener crashed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem."""

    kind: Kind
    reason: str
    """By which problems of a kind are counted. Not arrived: a `Reason`; twice: the patterns; blocked: the interceptor;
    failed: the outcome; others: the recorder."""
    cursor: Cursor | None
    """The event; None for unclean ends."""
    recorder: int | None
    """Ordinal of the recorder that is concerned: the listener, or the one with the gap or the unclean end."""
    text: str
    """Explanation."""
    event: Event | None = None
    """The message, if there is one."""
    delay_ns: int | None = None
    """Delivery time of a late message."""
