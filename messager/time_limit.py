"""`asyncio.timeout` that also holds while its task is being cancelled.

Before Python 3.11.4 (Debian 12 has 3.11.2), the end of a timeout in a task that had been cancelled before was a
`CancelledError`: cleaning up after Ctrl-C stopped where it should have given up one step (python/cpython#102780).
"""

from __future__ import annotations

import asyncio
from types import TracebackType


class time_limit:  # in the place of a function
    """`asyncio.timeout(seconds)`: raises `TimeoutError` at the end of the block; `as` gives the `asyncio.Timeout`."""

    __slots__ = ("_before", "_timeout")

    def __init__(self, seconds: float | None) -> None:
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> asyncio.Timeout:
        self._before = _cancellations()
        return await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._timeout.__aexit__(kind, error, trace)
        if kind is asyncio.CancelledError and self._timeout.expired() and _cancellations() <= self._before:
            raise TimeoutError from error


def _cancellations() -> int:
    task = asyncio.current_task()
    assert task is not None, "a time limit needs a task"
    return task.cancelling()
