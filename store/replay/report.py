"""What a replay did, in figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from types import NoneType
from typing import Any, Literal

from messager import channels
from messager.errors import PublishError

from ..log.event import Cursor, Event

NAMED = 10
"""Kinds of failure that are named; the others are counted."""


class LagHistogram:
    """Lags in ns, counted in buckets that are at most 1/64 of their value wide, so that memory stays constant."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}  # by upper edge
        self.count = 0
        self.max = 0

    def add(self, lag_ns: int) -> None:
        """One message's lag; one sent early counts as on time."""
        lag = max(lag_ns, 0)
        upper = lag | ((1 << max(lag.bit_length() - 7, 0)) - 1)
        self._buckets[upper] = self._buckets.get(upper, 0) + 1
        self.count += 1
        self.max = max(self.max, lag)

    def percentile(self, share: float) -> int | None:
        """A lag (ns) that `share` (0 to 1) of the messages did not exceed, at most 1/64 too large; None without any."""
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
    """Where they were to be published."""
    outcome: Literal["refused", "unknown"]
    reason: str
    first: str
    """The cursor of the first of them."""
    messages: int = 1


@dataclass(slots=True)
class ReplayReport:
    """What a replay did. Times are in seconds, lags in ms."""

    exp_id: str
    requested_speed: float | None
    """Recorded seconds a second; None for as fast as possible."""
    dry_run: bool = False
    requested_rate: float | None = None
    """Messages a second, at the most; None without such a bound."""
    planned: int = 0
    """Messages one pass has to publish."""
    published: int = 0
    skipped: int = 0
    """Events of the experiment that were not to be published: filtered out, or no message of their own."""
    unrecorded_senders: dict[str, int] = field(default_factory=dict)
    """By channel, how many messages more were heard than recorded as sent: they are not among those to publish.
    Of a whole experiment only."""
    internal: dict[str, int] = field(default_factory=dict)
    """By channel, messages that a server published by itself, most first. They are never replayed."""
    no_subscriber: int | None = 0
    """Published messages that the broker delivered to nobody; None where it does not tell."""
    failed: int = 0
    """Messages that were refused, one by one: they were not published. In a dry run, those that are certain to be."""
    unknown: int = 0
    """Messages of which nobody knows whether they were published: the answer was lost."""
    failures: list[Failure] = field(default_factory=list)
    """What failed, where and why: the first `NAMED`, by channel and reason."""
    loops: int = 0
    """Passes finished."""
    duration_s: float = 0.0
    held_back_s: float = 0.0
    """How long the replay waited for slow subscribers."""
    held_by: str | None = None
    """While it waits: the subscriber it waits for."""
    stalled_s: float = 0.0
    """While it waits: for how long that one has read nothing."""
    flow_control: bool = True
    """False where the broker does not tell what waits for its subscribers."""
    recorded_s: float = 0.0
    """The stretch of recorded time that was replayed, after `max_gap`."""
    lag: LagHistogram = field(default_factory=LagHistogram, repr=False)
    """Actual publish time minus due time, per message. Empty at full speed."""
    channels: dict[str, int] = field(default_factory=dict)
    """Dry run only: messages per channel they would go to."""

    @property
    def achieved_speed(self) -> float | None:
        """Recorded seconds a second."""
        return self.recorded_s / self.duration_s if self.duration_s and not self.dry_run else None

    def count(
        self,
        batch: Sequence[Event],
        wire: Sequence[tuple[bytes, bytes]],
        results: Sequence[int | PublishError | None],
    ) -> tuple[Event, PublishError] | None:
        """Take in what the broker said to each; the first message that was lost with the connection, if one was."""
        told = set(map(type, results))
        if NoneType in told:
            self.no_subscriber = None
        elif self.no_subscriber is not None:
            self.no_subscriber += results.count(0)
        if told <= {int, NoneType}:
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
        """One more message that was refused, or of which nobody knows what became."""
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
        """The report as JSON takes it."""
        achieved = self.achieved_speed
        data: dict[str, Any] = {
            "exp_id": self.exp_id,
            "dry_run": self.dry_run,
            "planned": self.planned,
            "published": self.published,
            "skipped": self.skipped,
            "unrecorded_senders": self.unrecorded_senders,
            "internal": self.internal,
            "no_subscriber": self.no_subscriber,
            "failed": self.failed,
            "unknown": self.unknown,
            "failures": [asdict(failure) for failure in self.failures],
            "loops": self.loops,
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
