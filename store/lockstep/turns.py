"""Turns: calls of a live Messager that wait until it is their turn to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from heapq import heappop, heappush


class Turns:
    """Waiting calls, by the number of the saying that each of them says."""

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
