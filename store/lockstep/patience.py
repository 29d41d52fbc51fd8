"""Waits of a lockstep replay: one timer for all of them, so that none lasts for ever, and the calls that wait for their
turn to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from heapq import heappop, heappush


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


class Turns:
    """Waiting calls, by the number of the act that each of them says."""

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[None]] = {}
        self._order: list[int] = []  # heap of the numbers

    @property
    def first(self) -> int | None:
        """Lowest number of a waiting call; None without one."""
        return min(self.waiting, default=None)

    async def wait(self, number: int) -> None:
        """Wait until `wake` finds that this number has its turn, or `release`."""
        turn = self.waiting[number] = asyncio.get_running_loop().create_future()
        heappush(self._order, number)
        try:
            await turn
        finally:
            del self.waiting[number]

    def wake(self, last: int, has_turn: Callable[[int], bool]) -> None:
        """Wake the calls up to the number `last` that have their turn."""
        kept = []
        while self._order and self._order[0] <= last:
            number = heappop(self._order)
            turn = self.waiting.get(number)
            if turn is None or turn.done():
                continue
            if has_turn(number):
                turn.set_result(None)
            else:
                kept.append(number)
        for number in kept:
            heappush(self._order, number)

    def release(self) -> None:
        """Wake all calls."""
        for turn in self._pending():
            turn.set_result(None)

    def refuse(self, error: Exception) -> None:
        """Raise an error in all calls."""
        for turn in self._pending():
            turn.set_exception(error)

    def _pending(self) -> Iterator[asyncio.Future[None]]:
        return (turn for turn in self.waiting.values() if not turn.done())
