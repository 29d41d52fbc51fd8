"""Subscriber that reconnects after a loss and reports a gap.

How to subscribe, to read and to prove that a connection is alive differs between brokers. The handling of a lost
connection is the same for all, and is implemented here.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import deque
from typing import Any, Generic, Protocol, TypeVar

from ..errors import BrokerUnavailable
from .base import PubSub

FIRST_BACKOFF, LAST_BACKOFF = 0.05, 1.0
"""Seconds between two attempts to reconnect: the first pause and the longest."""


class Closable(Protocol):
    """A connection, as far as this module needs it."""

    async def close(self) -> None:
        """Close it. May be called twice."""


C = TypeVar("C", bound=Closable)


class ReconnectingSubscriber(PubSub, Generic[C]):
    """Subscriber with a connection of its own, which it makes again when it is lost."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: C | None = None
        self._dead: C | None = None  # lost and not closed yet
        self._inbox: deque[dict[str, Any]] = deque()
        self._inbox_bytes = 0
        self._read_to = 0  # get_message has returned everything that was delivered before this time
        self._event = asyncio.Event()  # something arrived, or the connection was lost
        self._lost: tuple[str, int] | None = None
        self._reconnecting = asyncio.Lock()
        self._backoff = FIRST_BACKOFF

    @abstractmethod
    async def _connect(self) -> C:
        """Return a connection without subscriptions. Raises `BrokerUnavailable`."""

    @abstractmethod
    async def _subscribe_again(self, connection: C) -> None:
        """Restore all subscriptions. Raises `BrokerUnavailable`."""

    @abstractmethod
    async def _wait(self, timeout: float) -> dict[str, Any] | None:
        """Wait for a message, or `timeout` seconds. Return a gap if the connection was made again."""

    @abstractmethod
    def _taken(self, message: dict[str, Any]) -> None:
        """Handle that a message left the inbox."""

    async def _stop_tasks(self) -> None:
        """Stop the tasks of the connection that was lost."""

    async def get_message(
        self, ignore_subscribe_messages: bool = True, timeout: float | None = 0.0
    ) -> dict[str, Any] | None:
        inbox = self._inbox
        if not inbox:
            gap = await self._wait(timeout or 0.0)
            if gap is not None or not inbox:
                return gap
        message = inbox.popleft()
        self._taken(message)
        return message

    def lost_since(self) -> int | None:
        return None if self._lost is None else self._lost[1]

    def unread_since(self) -> int | None:
        return self._read_to if self._inbox else None

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        await self._stop_tasks()
        if connection is not None:
            await connection.close()
        await self._close_dead()

    def _connection_lost(self, reason: str, since: int) -> None:
        """Record the loss; messages published from `since` (monotonic ns) on may be missing.

        `since` is the time before which everything had arrived. It is earlier than the last message: others were
        waiting behind that one, at the broker or on the way.
        """
        if self._connection is not None:
            self._dead, self._connection = self._connection, None
            self._lost = (reason, since)
        self._event.set()

    async def _reconnect(self, timeout: float) -> dict[str, Any] | None:
        """Connect again and return the gap. Return None after a pause if that failed or another task did it."""
        async with self._reconnecting:
            if self._connection is not None or self._lost is None:
                return None
            await self._stop_tasks()
            await self._close_dead()
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

    async def _close_dead(self) -> None:
        dead, self._dead = self._dead, None
        if dead is not None:
            await dead.close()
