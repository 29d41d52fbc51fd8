"""The replay clock: when a recorded moment is due.

One anchor ties a recorded time to the monotonic clock; every deadline is computed from
it, so that errors do not add up. The anchor moves only on pause, resume, seek and a
change of speed. Time and sleeping can be injected. A `Rate` counts messages on the same
time, by the same rule.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

LONGEST_SLEEP = 0.1
"""Seconds after which a waiting clock looks whether it was paused or moved."""
CATCH_UP_NS = 50_000_000
"""What a rate makes good of time that it lost: a late wake-up, but not a stall."""
TOGETHER = 0.02
"""Seconds whose messages a rate lets out together."""


class ReplayClock:
    """Maps recorded ns UTC to monotonic ns, at `speed` recorded seconds a second."""

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
        """The time that the clock runs on, monotonic ns."""
        return self._now()

    async def sleep(self, seconds: float) -> None:
        """Let that time pass."""
        await self._sleep(seconds)

    def seek(self, recorded_ns: int) -> None:
        """This recorded time is now."""
        self._recorded, self._anchor = recorded_ns, self._now()

    def position(self) -> int:
        """The recorded time that is now, ns UTC."""
        if self._anchor is None or self._paused:
            return self._recorded
        return self._recorded + int((self._now() - self._anchor) * self.speed)

    def pause(self) -> None:
        """Let recorded time stand still."""
        self._recorded, self._anchor, self._paused = self.position(), self._now(), True

    def resume(self) -> None:
        """Let it go on from where it stood."""
        if self._paused:
            self._anchor, self._paused = self._now(), False

    def set_speed(self, speed: float) -> None:
        """Go on at another speed from now."""
        self._recorded, self._anchor = self.position(), self._now()
        self.speed = speed

    def overdue(self, recorded_ns: int) -> int:
        """How long ago a recorded time was due, in ns; negative while it lies ahead."""
        if self._anchor is None:
            self.seek(recorded_ns)
        assert self._anchor is not None
        if self._paused:
            return -1
        return self._now() - self._anchor - int((recorded_ns - self._recorded) / self.speed)

    async def while_paused(self) -> None:
        """Return when it is not paused."""
        while self._paused:
            await self._sleep(LONGEST_SLEEP)

    async def wait_until(self, recorded_ns: int) -> None:
        """Return when a recorded time is due."""
        while (late := self.overdue(recorded_ns)) < 0:
            await self._sleep(LONGEST_SLEEP if self._paused else min(-late / 1e9, LONGEST_SLEEP))


class Rate:
    """At most `per_second` messages a second, on the time of `clock`.

    Every message's deadline is computed from one anchor, so that late wake-ups do not add up.
    The anchor moves when more than `CATCH_UP_NS` were lost: what was held up is not made good
    by a burst.
    """

    def __init__(self, per_second: float, clock: ReplayClock) -> None:
        self._interval = 1e9 / per_second
        self._clock = clock
        self._anchor: float | None = None
        self._taken = 0
        self.together = max(int(per_second * TOGETHER), 1)
        """How many messages to publish together, at the most."""

    async def take(self, messages: int) -> None:
        """Return when so many more messages may be published."""
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
