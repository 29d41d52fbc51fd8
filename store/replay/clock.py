"""Replay clock: maps recorded time to the monotonic clock.

One anchor ties a recorded time to the monotonic clock. Every deadline is computed from the anchor, so errors do not
accumulate. Only pause, resume, seek and a change of speed move the anchor. The time source and the sleep function
can be injected.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import StoreError

LONGEST_SLEEP = 0.1
"""Seconds after which a waiting clock checks whether it was paused or moved."""
CATCH_UP_NS = 50_000_000
"""Maximum delay that a rate limit makes up for: a late wake-up, but not a stall."""
BATCH_S = 0.02
"""Seconds of messages that a rate limit releases together."""
SLOWEST, FASTEST = 1e-9, 1e9
"""Limits of a speed, and SLOWEST of a rate: any time of a store (ns) is finite when divided by it, or multiplied."""


def checked_speed(speed: float | str) -> float | None:
    """Return a speed as a number, or None for "max". Raises `StoreError`."""
    if speed == "max":
        return None
    value = _number(speed)
    if not SLOWEST <= value <= FASTEST:
        raise StoreError(
            f"{speed!r:.50} is not a speed: give a number above zero (10 is ten times as fast), from {SLOWEST:g} to "
            f"{FASTEST:g}, or max"
        )
    return value


def checked_rate(rate: float | str) -> float:
    """Return a rate as messages per second. Raises `StoreError`."""
    value = _number(rate)
    if not SLOWEST <= value < math.inf:
        raise StoreError(f"{rate!r:.50} is not a rate: give messages per second, a number from {SLOWEST:g} on")
    return value


def _number(given: Any) -> float:
    try:
        return math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        return math.nan


class ReplayClock:
    """Maps recorded ns UTC to monotonic ns, at `speed` recorded seconds per second. `now` is the monotonic clock.

    A sleep ends early when the clock is paused, resumed, moved or woken, unless `sleep` is injected: then the change
    is noticed after at most `LONGEST_SLEEP`.
    """

    def __init__(
        self,
        speed: float | str = 1.0,
        *,
        now: Callable[[], int] | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self.speed = checked_speed(speed) or 1.0  # at full speed nothing waits for the clock
        self._given = now is not None
        self._now = now or time.monotonic_ns
        self._sleep = sleep or self._sleep_until_woken
        self._sleepers: set[asyncio.Future[None]] = set()
        self._recorded = 0
        self._anchor: int | None = None
        self._paused = False

    def begin(self) -> None:
        """Count the time of a loop in virtual time (`time_ns`) from now on, unless `now` is injected."""
        virtual = getattr(asyncio.get_running_loop(), "time_ns", None)
        if virtual is not None and not self._given:
            self._recorded, self._now = self.position(), virtual
            if self._anchor is not None:
                self._anchor = self._now()

    def now(self) -> int:
        """Return the time of the underlying clock, in monotonic ns."""
        return self._now()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the underlying clock. It may end early: check the time afterwards."""
        await self._sleep(seconds)

    async def _sleep_until_woken(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _end, sleeper)
        self._sleepers.add(sleeper)
        try:
            await sleeper
        finally:
            timer.cancel()
            self._sleepers.discard(sleeper)

    def wake(self) -> None:
        """End all sleeps, so that those who wait look at what has changed."""
        for sleeper in self._sleepers:
            _end(sleeper)

    @property
    def paused(self) -> bool:
        """Return whether recorded time is stopped."""
        return self._paused

    def seek(self, recorded_ns: int) -> None:
        """Set the current recorded time."""
        self._recorded, self._anchor = recorded_ns, self._now()
        self.wake()

    def position(self) -> int:
        """Return the current recorded time, in ns UTC."""
        if self._anchor is None or self._paused:
            return self._recorded
        return self._recorded + int((self._now() - self._anchor) * self.speed)

    def pause(self) -> None:
        """Stop recorded time."""
        self._recorded, self._anchor, self._paused = self.position(), self._now(), True
        self.wake()

    def resume(self) -> None:
        """Continue recorded time where it was stopped."""
        if self._paused:
            self._anchor, self._paused = self._now(), False
            self.wake()

    def set_speed(self, speed: float | str) -> None:
        """Change the speed from now on. Raises `StoreError` for what is no speed."""
        checked = checked_speed(speed) or 1.0
        self._recorded, self._anchor = self.position(), self._now()
        self.speed = checked
        self.wake()

    def overdue(self, recorded_ns: int) -> int:
        """Return the ns since a recorded time was due; negative if it is in the future."""
        if self._anchor is None:
            self.seek(recorded_ns)
        assert self._anchor is not None
        if self._paused:
            return -1
        return self._now() - self._anchor - int((recorded_ns - self._recorded) / self.speed)

    async def wait_until(self, recorded_ns: int, unless: Callable[[], bool] = lambda: False) -> None:
        """Wait until a recorded time is due, or `unless` returns True; it is asked after each `wake`."""
        while (late := self.overdue(recorded_ns)) < 0 and not unless():
            await self._sleep(LONGEST_SLEEP if self._paused else min(-late / 1e9, LONGEST_SLEEP))


def _end(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class Timeline:
    """Recorded times with silences shortened to `max_gap` ns (None: unchanged)."""

    def __init__(self, max_gap: int | None = None) -> None:
        self._max_gap = max_gap
        self._removed = 0
        self._first: int | None = None
        self._previous = 0

    def due(self, ts: int) -> int:
        """Return the shortened time of the next event, in ns; `ts` must not decrease."""
        if self._first is None:
            self._first = self._previous = ts
        if self._max_gap is not None:
            self._removed += max(ts - self._previous - self._max_gap, 0)
        self._previous = ts
        return ts - self._removed

    @property
    def begun(self) -> bool:
        """Return whether there was an event."""
        return self._first is not None

    @property
    def removed(self) -> int:
        """Return the ns that were removed so far."""
        return self._removed

    @property
    def length(self) -> int:
        """Return the ns from the first event to the last one so far, after shortening."""
        return 0 if self._first is None else self._previous - self._removed - self._first


class Rate:
    """Limit of `per_second` messages per second, on the time of `clock`.

    The deadline of every message is computed from one anchor, so late wake-ups do not accumulate. If more than
    `CATCH_UP_NS` were lost, the anchor moves: a delay is not made up for by a burst.
    """

    def __init__(self, per_second: float, clock: ReplayClock) -> None:
        self.per_second = per_second
        self._interval = 1e9 / per_second
        self._clock = clock
        self._anchor: float | None = None
        self._taken = 0
        self.together = max(int(per_second * BATCH_S), 1)
        """Maximum number of messages published together."""

    async def take(self, messages: int) -> None:
        """Wait until this number of messages may be published."""
        now = self._clock.now()
        if self._anchor is None:
            self._anchor = now
        elif now - self._due(0) > CATCH_UP_NS:
            self._anchor, self._taken = now - CATCH_UP_NS, 0
        due = self._due(messages - 1)
        self._taken += messages
        while (left := due - self._clock.now()) > 0:
            await self._clock.sleep(min(left / 1e9, LONGEST_SLEEP))

    def _due(self, ahead: int) -> float:
        assert self._anchor is not None
        return self._anchor + (self._taken + ahead) * self._interval
