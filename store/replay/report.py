"""Report of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from types import NoneType
from typing import Any, Literal

from messager import channels
from messager.errors import PublishError

from ..log.event import Cursor, Event
from .state import ReplayState

NAMED = 10
"""Kinds of failure that are listed; the others are only counted."""


class LagHistogram:
    """Histogram of lags in ns, with constant memory: the width of a bucket is at most 1/64 of its value."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}  # by upper edge
        self.count = 0
        self.max = 0

    def add(self, lag_ns: int) -> None:
        """Add the lag of a message; a message published early counts as on time."""
        lag = max(lag_ns, 0)
        upper = lag | ((1 << max(lag.bit_length() - 7, 0)) - 1)
        self._buckets[upper] = self._buckets.get(upper, 0) + 1
        self.count += 1
        self.max = max(self.max, lag)

    def percentile(self, share: float) -> int | None:
        """Return the lag (ns) that `share` (0 to 1) of the messages did not exceed, at most 1/64 too large."""
        if not self.count:
            return None
        wanted = share * self.count
        seen = 0
        for upper in sorted(self._buckets):
            seen += self._buckets[upper]
            if seen >= wanted:
                return min(upper, self.max)
        return self.max


def _ms(lag_ns: int | None) -> float | None:
    return None if lag_ns is None else round(lag_ns / 1e6, 3)


@dataclass(slots=True)
class Failure:
    """Messages that failed on one channel for one reason."""

    channel: str
    """The channel to publish on."""
    outcome: Literal["refused", "unknown"]
    reason: str
    first: str
    """Cursor of the first message."""
    messages: int = 1


@dataclass(slots=True)
class ReplayReport:
    """Result of a replay. Times are in seconds, lags in ms."""

    exp_id: str
    requested_speed: float | None
    """Recorded seconds per second, as last requested; None for the maximum."""
    dry_run: bool = False
    requested_rate: float | None = None
    """Maximum number of messages per second; None without a limit."""
    planned: int = 0
    """Messages per pass."""
    at_least: bool = False
    """True while receptions may be found of which nobody recorded the sending: they are messages as well."""
    published: int = 0
    skipped: int = 0
    """Events of the experiment that are not published: filtered out, or not a message of their own."""
    internal: dict[str, int] = field(default_factory=dict)
    """By channel, messages that a server published by itself, most first. They are not published."""
    no_subscriber: int | None = 0
    """Published messages without a receiver; None if the broker does not report receivers."""
    failed: int = 0
    """Messages that the broker refused; in a dry run, those that are certain to be refused."""
    unknown: int = 0
    """Messages whose outcome is unknown, because the broker's answer was lost."""
    failures: list[Failure] = field(default_factory=list)
    """The first `NAMED` kinds of failure, by channel and reason."""
    state: ReplayState = ReplayState.PLANNING
    """Current state, or FINISHED or STOPPED."""
    loops: int = 0
    """Completed passes."""
    seeks: int = 0
    repeated: int = 0
    """Messages that were published again in one pass, after a seek back. They count as published."""
    passed_over: int = 0
    """Messages that completed passes did not publish, because of seeks."""
    state_messages: int = 0
    """Messages that were published by seeks with `state`. They count as published."""
    duration_s: float = 0.0
    held_back_s: float = 0.0
    """Time of waiting for slow subscribers."""
    held_by: str | None = None
    """The subscriber that the replay waits for now, or None."""
    stalled_s: float = 0.0
    """Time for which that subscriber has read nothing."""
    flow_control: bool = True
    """False if the broker does not report the output buffers of its subscribers."""
    recorded_s: float = 0.0
    """Recorded time that was replayed, after `max_gap`."""
    lag: LagHistogram = field(default_factory=LagHistogram, repr=False)
    """Publish time minus due time of each message. Empty at full speed."""
    channels: dict[str, int] = field(default_factory=dict)
    """Dry run only: messages by channel to publish on."""

    @property
    def achieved_speed(self) -> float | None:
        """Return the recorded seconds per second."""
        return self.recorded_s / self.duration_s if self.duration_s and not self.dry_run else None

    def count(
        self,
        batch: Sequence[Event],
        wire: Sequence[tuple[bytes, bytes]],
        results: Sequence[int | PublishError | None],
    ) -> tuple[Event, PublishError] | None:
        """Count the broker's answers; return the first message that was lost with the connection, or None."""
        types = set(map(type, results))
        counts = results
        if NoneType in types:  # also of messages that did not travel on channels, which have no subscribers
            counts = [result for entry, result in zip(batch, results, strict=True) if entry.carrier is None]
        if None in counts:
            self.no_subscriber = None
        elif self.no_subscriber is not None:
            self.no_subscriber += counts.count(0)
        if types <= {int, NoneType}:
            self.published += len(results)
            return None
        lost = None
        for entry, (channel, _), result in zip(batch, wire, results, strict=True):
            if not isinstance(result, PublishError):
                self.published += 1
            elif result.refused:
                self.count_failure(channels.decode(channel), entry.cursor, "refused", result.reason)
            else:
                lost = lost or (entry, result)
                if result.outcome == "unknown":
                    self.count_failure(channels.decode(channel), entry.cursor, "unknown", result.reason)
        return lost

    def count_failure(self, channel: str, cursor: Cursor, outcome: Literal["refused", "unknown"], reason: str) -> None:
        """Count a message that was refused or whose outcome is unknown."""
        if outcome == "refused":
            self.failed += 1
        else:
            self.unknown += 1
        for known in self.failures:
            if (known.channel, known.outcome, known.reason) == (channel, outcome, reason):
                known.messages += 1
                return
        if len(self.failures) < NAMED:
            self.failures.append(Failure(channel, outcome, reason, str(cursor)))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        achieved = self.achieved_speed
        data: dict[str, Any] = {
            "exp_id": self.exp_id,
            "state": self.state.value,
            "dry_run": self.dry_run,
            "planned": self.planned,
            "at_least": self.at_least,
            "published": self.published,
            "skipped": self.skipped,
            "internal": self.internal,
            "no_subscriber": self.no_subscriber,
            "failed": self.failed,
            "unknown": self.unknown,
            "failures": [asdict(failure) for failure in self.failures],
            "loops": self.loops,
            "seeks": self.seeks,
            "repeated": self.repeated,
            "passed_over": self.passed_over,
            "state_messages": self.state_messages,
            "duration_s": round(self.duration_s, 6),
            "held_back_s": round(self.held_back_s, 6),
            "flow_control": self.flow_control,
            "recorded_s": round(self.recorded_s, 9),
            "requested_rate": self.requested_rate,
            "requested_speed": "max" if self.requested_speed is None else self.requested_speed,
            "achieved_speed": None if achieved is None else round(achieved, 6),
            "lag_ms": {
                "p50": _ms(self.lag.percentile(0.5)),
                "p99": _ms(self.lag.percentile(0.99)),
                "max": _ms(self.lag.max if self.lag.count else None),
            },
        }
        if self.dry_run:
            data["channels"] = self.channels
        return data
