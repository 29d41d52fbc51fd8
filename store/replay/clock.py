"""The replay clock: when a recorded moment is due.

One anchor ties a recorded time to the monotonic clock; every deadline is computed from
it, so that errors do not add up. The anchor moves only on pause, resume, seek and a
change of speed. Time and sleeping can be injected.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

LONGEST_SLEEP = 0.1
"""Seconds after which a waiting clock looks whether it was paused or moved."""


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

    async def wait_until(self, recorded_ns: int) -> None:
        """Return when a recorded time is due."""
        while (late := self.overdue(recorded_ns)) < 0:
            await self._sleep(LONGEST_SLEEP if self._paused else min(-late / 1e9, LONGEST_SLEEP))
