"""Clock of all timestamps: nanoseconds UTC that never step."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """UTC in int64 nanoseconds: the wall clock read once, advanced by the monotonic clock.

    A wall clock that is stepped while a recording runs neither reorders nor stretches it. Both sources can be
    injected; each is a callable that returns ns.
    """

    __slots__ = ("_monotonic", "_offset", "monotonic_ns", "wall_ns")

    def __init__(
        self,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._monotonic = monotonic
        # A pause between the two readings would shift every timestamp, so the closest of several pairs is used.
        best: tuple[int, int, int] | None = None
        for _ in range(5):
            before = monotonic()
            at = wall()
            width = monotonic() - before
            if best is None or width < best[0]:
                best = (width, at, before + width // 2)
        assert best is not None
        self.wall_ns = best[1]
        """Wall clock at the start, ns UTC."""
        self.monotonic_ns = best[2]
        """Monotonic clock at the start, ns (comparable only until the machine restarts)."""
        self._offset = self.wall_ns - self.monotonic_ns

    def now(self) -> int:
        """Return the present time, ns UTC."""
        return self._monotonic() + self._offset

    def at(self, monotonic_ns: int) -> int:
        """Return a reading of the monotonic clock (ns) as ns UTC."""
        return monotonic_ns + self._offset
