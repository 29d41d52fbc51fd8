"""Patience: one timer for all waits of a lockstep replay, so that none of them lasts for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Patience:
    """Calls `expire` when nothing has made progress for `seconds`, and again after each further such time.

    While `paused` returns True, no time counts. `allowed` returns more seconds that what is awaited may take. The time
    is that of the event loop.
    """

    def __init__(
        self,
        seconds: float,
        expire: Callable[[], None],
        paused: Callable[[], bool] = lambda: False,
        allowed: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.seconds = seconds
        self._expire = expire
        self._paused = paused
        self._allowed = allowed
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the timer in the running event loop. May be called again."""
        if self._timer is None:
            self._loop = asyncio.get_running_loop()
            self._last = self._loop.time()
            self._timer = self._loop.call_later(self.seconds, self._check)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def progress(self) -> None:
        """Note that something has happened that was waited for."""
        if self._loop is not None:
            self._last = self._loop.time()

    def _check(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        if self._paused():
            self._last = now
        due = self._last + self.seconds + self._allowed()
        if now >= due:
            self._last = now
            self._expire()
            due = self._last + self.seconds + self._allowed()
        if self._timer is not None:
            self._timer = self._loop.call_at(due, self._check)
