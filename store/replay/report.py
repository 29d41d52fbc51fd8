"""What a replay did, in figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_EXACT = 64


class LagHistogram:
    """Lags in ns, kept in buckets at most 1/64 wide of their value, so that memory stays constant."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.max = 0

    def add(self, lag_ns: int) -> None:
        """One message's lag; one sent early counts as on time."""
        lag = max(lag_ns, 0)
        shift = max(lag.bit_length() - 7, 0)
        key = (lag >> shift) << shift
        self._buckets[key] = self._buckets.get(key, 0) + 1
        self.count += 1
        self.max = max(self.max, lag)

    def percentile(self, share: float) -> int | None:
        """The lag (ns) that `share` (0 to 1) of the messages did not exceed; None without any."""
        if not self.count:
            return None
        wanted = share * self.count
        seen = 0
        for key in sorted(self._buckets):
            seen += self._buckets[key]
            if seen >= wanted:
                return key
        return self.max


def _ms(lag_ns: int | None) -> float | None:
    return None if lag_ns is None else round(lag_ns / 1e6, 3)


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
    no_subscriber: int = 0
    """Published messages that the broker delivered to nobody."""
    failed: int = 0
    """Messages the broker refused, one by one."""
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

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON takes it."""
        achieved = self.achieved_speed
        data: dict[str, Any] = {
            "exp_id": self.exp_id,
            "dry_run": self.dry_run,
            "planned": self.planned,
            "published": self.published,
            "skipped": self.skipped,
            "no_subscriber": self.no_subscriber,
            "failed": self.failed,
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
