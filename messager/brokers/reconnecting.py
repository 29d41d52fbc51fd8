"""A subscriber's connection: made again when it is lost, and what may be missing then is told.

Each carrier has its own way to subscribe, to take in what comes, and to prove that a connection is alive. What
becomes of a lost connection is the same for all, and stands here.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, Protocol, TypeVar

from ..errors import BrokerUnavailable

FIRST_BACKOFF, LAST_BACKOFF = 0.05, 1.0
"""Seconds a subscriber waits between two tries to reconnect: the first, and the most."""


class Closing(Protocol):
    """A connection, as far as it matters here."""

    async def close(self) -> None:
        """Give it up. May be called twice."""


C = TypeVar("C", bound=Closing)


class Listening(ABC, Generic[C]):
    """A subscriber with a connection of its own, which it makes again when it is lost."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: C | None = None
        self._dead: C | None = None  # the one before, to be closed
        self._inbox: deque[dict[str, Any]] = deque()
        self._inbox_bytes = 0
        self._read_to = 0  # what the broker delivered to us before this moment was returned by get_message
        self._stirred = asyncio.Event()  # something came, or the connection is gone
        self._lost: tuple[str, int] | None = None
        self._mending = asyncio.Lock()
        self._backoff = FIRST_BACKOFF

    @abstractmethod
    async def _connect(self) -> C:
        """A connection without subscriptions. Raises `BrokerUnavailable`."""

    @abstractmethod
    async def _subscribe_again(self, connection: C) -> None:
        """Subscribe to all that was subscribed to. Raises `BrokerUnavailable`."""

    async def _forget(self) -> None:
        """End what goes on beside the connection that is gone."""

    def lost_since(self) -> int | None:
        return None if self._lost is None else self._lost[1]

    def unconfirmed_since(self) -> int | None:
        return None

    def unread_since(self) -> int | None:
        return self._read_to if self._inbox else None

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        await self._forget()
        if connection is not None:
            await connection.close()
        await self._bury()

    def _gone(self, reason: str, since: int) -> None:
        """Take note that the connection is gone; messages from `since` (monotonic ns) on may be missing.

        That is when everything had come in for certain, which is before the last message: others were waiting
        behind it, at the broker or on the way, and were sent before it came.
        """
        if self._connection is not None:
            self._dead, self._connection = self._connection, None
            self._lost = (reason, since)
        self._stirred.set()

    async def _mend(self, timeout: float) -> dict[str, Any] | None:
        """Make the connection again, unless another task has: the gap if that worked, else None after a pause."""
        async with self._mending:
            if self._connection is not None or self._lost is None:
                return None
            await self._forget()
            await self._bury()
            connection = None
            try:
                connection = await self._connect()
                await self._subscribe_again(connection)
            except BaseException as error:
                if connection is not None:
                    await connection.close()
                if not isinstance(error, BrokerUnavailable):
                    raise
                await asyncio.sleep(min(self._backoff, max(timeout, 0.001)))
                self._backoff = min(self._backoff * 2, LAST_BACKOFF)
                return None
            reason, since = self._lost
            self._connection, self._lost, self._backoff = connection, None, FIRST_BACKOFF
            return {"type": "gap", "reason": reason, "since": since, "until": time.monotonic_ns()}

    async def _bury(self) -> None:
        dead, self._dead = self._dead, None
        if dead is not None:
            await dead.close()
