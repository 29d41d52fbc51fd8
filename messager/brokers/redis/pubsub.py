"""Subscriber on Redis: every possible loss becomes a gap.

redis-py's own `PubSub` reconnects without a notice and does not detect a silent network.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from ... import channels
from ...errors import BrokerUnavailable
from ...time_limit import time_limit
from ..reconnecting import ReconnectingSubscriber
from .endpoint import Endpoint
from .monitor import CONFIRM_SECONDS
from .subscribed_connection import SubscribedConnection

INBOX_MESSAGES, INBOX_BYTES = 1000, 1 << 20
"""Messages and bytes that may wait for `get_message`. Above either, reading pauses and messages wait in Redis."""


class RedisPubSub(ReconnectingSubscriber[SubscribedConnection]):
    """Subscriber on Redis.

    It pings after `ping_interval` (s) of silence. The connection counts as lost without an answer within
    `ping_timeout` (s), when sentinels name another master, or when the node has left its cluster. A replaced master
    is read beside the new one until it becomes a replica, as some clients still publish there.
    """

    def __init__(self, endpoint: Endpoint, *, ping_interval: float, ping_timeout: float) -> None:
        super().__init__(endpoint.url)
        self._endpoint = endpoint
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        self._patterns: dict[bytes, None] = {}
        self._former: SubscribedConnection | None = None  # to the master that was replaced
        self._leaving: set[asyncio.Task[None]] = set()  # tasks that read the former one

    async def psubscribe(self, *patterns: str | bytes) -> None:
        wanted = [pattern for pattern in map(channels.encode, patterns) if pattern not in self._patterns]
        if not wanted:
            return
        if self._lost is not None:
            raise BrokerUnavailable(self._url, self._lost[0])
        if self._connection is None:
            self._connection = await self._connect()
        await self._connection.subscribe(wanted)
        self._patterns.update(dict.fromkeys(wanted))

    def _taken(self, message: dict[str, Any]) -> None:
        if not self._inbox:
            self._inbox_bytes = 0
            for connection in self._connections():
                connection.resume()

    def unconfirmed_since(self) -> int | None:
        return None if self._connection is None else self._connection.unconfirmed_since

    async def aclose(self) -> None:
        self._patterns.clear()
        self._former = None
        await super().aclose()
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def heard(self, source: SubscribedConnection, messages: list[dict[str, Any]], size: int, behind: int) -> None:
        inbox = self._inbox
        if not inbox:
            self._read_to = min([behind, *(one.read_until for one in self._connections())])
        inbox.extend(messages)
        self._inbox_bytes += size
        if messages and (len(inbox) > INBOX_MESSAGES or self._inbox_bytes > INBOX_BYTES):
            source.pause()
        self._event.set()

    def ended(self, source: SubscribedConnection, reason: str) -> None:
        if source is self._connection:
            self._connection_lost(reason, source.complete_until)
        elif source is self._former:
            self._former = None
            self._inbox.append(
                {"type": "gap", "reason": reason, "since": source.read_until, "until": time.monotonic_ns()}
            )
            self._event.set()

    def superseded(self, source: SubscribedConnection, reason: str, serving: bool) -> None:
        if source is not self._connection:
            return  # it is not in use yet, and its `subscribe` will raise
        if self._former is not None:
            self.ended(self._former, "the master was replaced again")
        self._connection_lost(reason, source.complete_until)
        if serving:
            self._former, self._dead = source, None
            task = asyncio.create_task(self._read_former(source))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _read_former(self, source: SubscribedConnection) -> None:
        """Keep reading from a replaced master until it becomes a replica or its connection ends."""
        try:
            while source is self._former and await source.serves():
                await asyncio.sleep(CONFIRM_SECONDS)
            self.ended(source, "the master that was replaced is a replica")
        finally:
            await source.close()

    def _connections(self) -> list[SubscribedConnection]:
        return [each for each in (self._connection, self._former) if each is not None]

    async def _connect(self) -> SubscribedConnection:
        return await SubscribedConnection.open(
            self._endpoint, self, ping_interval=self._ping_interval, ping_timeout=self._ping_timeout
        )

    async def _subscribe_again(self, connection: SubscribedConnection) -> None:
        if self._patterns:
            await connection.subscribe(list(self._patterns))

    async def _wait(self, timeout: float) -> dict[str, Any] | None:
        deadline = time.monotonic() + timeout
        while not self._inbox:
            if self._connection is None:
                if self._lost is None:
                    raise RuntimeError("this subscriber has no subscription. Call psubscribe first.")
                return await self._reconnect(timeout)
            due = min(connection.due for connection in self._connections()) - time.monotonic_ns()
            self._event.clear()
            with contextlib.suppress(TimeoutError):
                async with time_limit(max(min(due / 1e9, deadline - time.monotonic()), 0.001)):
                    await self._event.wait()
            for connection in self._connections():
                connection.check()
            if time.monotonic() >= deadline:
                break
        return None
