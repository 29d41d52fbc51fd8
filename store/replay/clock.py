"""Replay clock: maps recorded time to the monotonic clock.

One anchor ties a recorded time to the monotonic clock. Every deadline is computed from the anchor, so errors do not
accumulate. Only pause, resume, seek and a change of speed move the anchor. The time source and the sleep function
can be injected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

LONGEST_SLEEP = 0.1
"""Seconds after which a waiting clock checks whether it was paused or moved."""
CATCH_UP_NS = 50_000_000
"""Maximum delay that a rate limit makes up for: a late wake-up, but not a stall."""
BATCH_S = 0.02
"""Seconds of messages that a rate limit releases together."""


class ReplayClock:
    """Maps recorded ns UTC to monotonic ns, at `speed` recorded seconds per second."""

    def __init__(
        self,
        speed: float = 1.0,
        *,
        now: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.speed = speed
        self._now = now
        self._sleep = sleep
        self._recorded = 0
        self._anchor: int | None = None
        self._paused = False

    def now(self) -> int:
        """Return the time of the underlying clock, in monotonic ns."""
        return self._now()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the underlying clock."""
        await self._sleep(seconds)

    @property
    def paused(self) -> bool:
        """Return whether recorded time is stopped."""
        return self._paused

    def seek(self, recorded_ns: int) -> None:
        """Set the current recorded time."""
        self._recorded, self._anchor = recorded_ns, self._now()

    def position(self) -> int:
        """Return the current recorded time, in ns UTC."""
        if self._anchor is None or self._paused:
            return self._recorded
        return self._recorded + int((self._now() - self._anchor) * self.speed)

    def pause(self) -> None:
        """Stop recorded time."""
        self._recorded, self._anchor, self._paused = self.position(), self._now(), True

    def resume(self) -> None:
        """Continue recorded time where it was stopped."""
        if self._paused:
            self._anchor, self._paused = self._now(), False

    def set_speed(self, speed: float) -> None:
        """Change the speed from now on."""
        self._recorded, self._anchor = self.position(), self._now()
        self.speed = speed

    def overdue(self, recorded_ns: int) -> int:
        """Return the ns since a recorded time was due; negative if it is in the future."""
        if self._anchor is None:
            self.seek(recorded_ns)
        assert self._anchor is not None
        if self._paused:
            return -1
        return self._now() - self._anchor - int((recorded_ns - self._recorded) / self.speed)

    async def while_paused(self) -> None:
        """Wait until the clock is not paused."""
        while self._paused:
            await self._sleep(LONGEST_SLEEP)

    async def wait_until(self, recorded_ns: int) -> None:
        """Wait until a recorded time is due."""
        while (late := self.overdue(recorded_ns)) < 0:
            await self._sleep(LONGEST_SLEEP if self._paused else min(-late / 1e9, LONGEST_SLEEP))


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
