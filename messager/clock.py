"""The one way a timestamp is made: nanoseconds UTC that cannot step."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """UTC in int64 nanoseconds: the wall clock read once, advanced by the monotonic clock.

    A wall clock that is stepped while a recording runs can neither reorder nor
    stretch it. Both sources can be injected (each a callable returning ns).
    """

    __slots__ = ("_monotonic", "_offset", "monotonic_ns", "wall_ns")

    def __init__(
        self,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._monotonic = monotonic
        # A pause between the two readings would shift every stamp by its length,
        # so the tightest of several brackets is the anchor.
        best: tuple[int, int, int] | None = None
        for _ in range(5):
            before = monotonic()
            at = wall()
            width = monotonic() - before
            if best is None or width < best[0]:
                best = (width, at, before + width // 2)
        assert best is not None
        self.wall_ns = best[1]
        """The wall clock at the anchor, ns UTC."""
        self.monotonic_ns = best[2]
        """The monotonic clock at the anchor, ns (comparable only within one boot)."""
        self._offset = self.wall_ns - self.monotonic_ns

    def now(self) -> int:
        """The present, ns UTC."""
        return self._monotonic() + self._offset

    def at(self, monotonic_ns: int) -> int:
        """A reading of the monotonic clock (ns) as ns UTC."""
        return monotonic_ns + self._offset
