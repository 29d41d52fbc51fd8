"""Settings of a replay, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

from ..errors import StoreError
from .clock import checked_rate, checked_speed


class ReplayOptions(TypedDict, total=False):
    """The arguments of `ReplaySettings`, for functions that pass them on."""

    speed: float | Literal["max"]
    rate: float | None
    max_hold: float | None
    max_gap: float | None
    loops: int
    mapping: Mapping[str, str] | None
    to_exp: str | None
    keep_names: bool
    wait_for_subscribers: int
    wait_timeout: float
    dry_run: bool
    force: bool
    into_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """How a replay publishes; `Replay` describes each. Raises `StoreError` for a value that no replay can have."""

    speed: float | Literal["max"] = 1.0
    rate: float | None = None
    max_hold: float | None = None
    max_gap: float | None = None
    loops: int = 1
    mapping: Mapping[str, str] | None = None
    to_exp: str | None = None
    keep_names: bool = False
    wait_for_subscribers: int = 0
    wait_timeout: float = 60.0
    dry_run: bool = False
    force: bool = False
    into_live: bool = False
    requested_speed: float | None = field(init=False)
    """The speed as a number; None for the maximum."""
    requested_rate: float | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "requested_speed", checked_speed(self.speed))
        object.__setattr__(self, "requested_rate", None if self.rate is None else checked_rate(self.rate))
        if self.max_hold is not None and not self.max_hold > 0:
            raise StoreError(f"{self.max_hold!r} is not a time to hold back: give seconds, more than zero")
        if self.max_gap is not None and not 0 <= self.max_gap < math.inf:
            raise StoreError(f"{self.max_gap!r} is not a gap: give seconds, zero or more")
        if self.loops < 0:
            raise StoreError(f"{self.loops!r} is not a number of loops: give 1 or more, or 0 for no end")
