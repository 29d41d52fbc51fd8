"""In-memory broker: the pub/sub of Redis inside one process, for tests and experiments.

Patterns, order, receiver counts and duplicates under overlapping patterns are those of Redis. The test suite of
brokers runs against it too.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ... import channels
from ...errors import BrokerUnavailable, PublishError
from ...time_limit import time_limit
from ..base import Backlog, Broker, PubSub
from ..redis.kind import is_hidden


class MemoryBroker(Broker):
    """Broker for every `Messager` that gets this object.

    `interrupt()` and `resume()` simulate an outage: during it nothing is published or received, and after it every
    subscriber gets a gap.
    """

    url = "memory://"

    def __init__(self) -> None:
        self._subscribers: list[MemoryPubSub] = []
        self._down_since: int | None = None

    async def connect(self) -> None:
        if self._down_since is not None:
            raise BrokerUnavailable(self.url, "interrupted")

    async def close(self) -> None:
        """Do nothing: the broker has no connection."""

    def publish(self, messages: Sequence[tuple[bytes, bytes]]) -> asyncio.Future[list[int | PublishError | None]]:
        if self._down_since is not None:
            results: list[int | PublishError | None] = [
                PublishError("the broker is interrupted", "not_sent") for _ in messages
            ]
        else:
            results = [
                sum(subscriber.deliver(channel, payload) for subscriber in self._subscribers)
                for channel, payload in messages
            ]
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[int | PublishError | None]] = loop.create_future()
        loop.call_soon(_answer, answer, results)  # as with a socket, other tasks run first
        return answer

    def pubsub(self) -> MemoryPubSub:
        return MemoryPubSub(self)

    async def clock_offset(self) -> int | None:
        return 0

    async def backlog(self) -> Backlog | None:
        waiting = [subscriber.waiting_bytes for subscriber in self._subscribers]
        slowest = waiting.index(max(waiting)) if waiting else 0
        subscriptions = max((len(subscriber.patterns) for subscriber in self._subscribers), default=0)
        return Backlog(max(waiting, default=0), f"number {slowest + 1} in memory", subscriptions)

    async def subscriber_count(self, channels: Sequence[bytes]) -> int | None:
        return sum(1 for subscriber in self._subscribers if subscriber.hears_any(channels))

    def interrupt(self) -> None:
        """Begin an outage."""
        if self._down_since is None:
            self._down_since = _monotonic_ns()

    def resume(self) -> None:
        """End the outage; every subscriber gets a gap."""
        if self._down_since is None:
            return
        gap = {"type": "gap", "reason": "interrupted", "since": self._down_since, "until": _monotonic_ns()}
        self._down_since = None
        for subscriber in self._subscribers:
            subscriber.put(dict(gap), 0)

    def lost_since(self) -> int | None:
        """Return the time (monotonic ns) since which the broker is interrupted, or None."""
        return self._down_since

    def attach(self, subscriber: MemoryPubSub) -> None:
        """Start delivering to this subscriber."""
        if subscriber not in self._subscribers:
            self._subscribers.append(subscriber)

    def detach(self, subscriber: MemoryPubSub) -> None:
        """Stop delivering to this subscriber."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)


class MemoryPubSub(PubSub):
    """Subscriber of a `MemoryBroker`."""

    listen_timeout = None

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._queue: deque[tuple[dict[str, Any], int]] = deque()
        self._arrived = asyncio.Event()
        self._read_to = _monotonic_ns()  # when the queue was last empty
        self.patterns: dict[bytes, None] = {}
        self._matching: dict[bytes, tuple[bytes, ...]] = {}  # by channel, the patterns that match it
        self.waiting_bytes = 0

    async def psubscribe(self, *patterns: str | bytes) -> None:
        await self._broker.connect()
        self.patterns.update(dict.fromkeys(channels.encode(pattern) for pattern in patterns))
        self._matching.clear()
        self._broker.attach(self)

    async def get_message(
        self, ignore_subscribe_messages: bool = True, timeout: float | None = 0.0
    ) -> dict[str, Any] | None:
        if not self._queue:
            self._arrived.clear()
            try:
                async with time_limit(timeout):
                    await self._arrived.wait()
            except TimeoutError:
                return None
        message, size = self._queue.popleft()
        self.waiting_bytes -= size
        if not self._queue:
            self._read_to = _monotonic_ns()
        return message

    def lost_since(self) -> int | None:
        return self._broker.lost_since()

    def unread_since(self) -> int | None:
        return self._read_to if self._queue else None

    async def aclose(self) -> None:
        self.patterns.clear()
        self._broker.detach(self)

    def hears_any(self, wanted: Sequence[bytes]) -> bool:
        """Return True if one of its patterns matches one of these channels."""
        return any(channels.matches_any(self.patterns, channel) for channel in wanted)

    def deliver(self, channel: bytes, payload: bytes) -> int:
        """Queue one copy for each matching pattern. Return the number of matching patterns."""
        matching = self._matching.get(channel)
        if matching is None:
            matching = tuple(pattern for pattern in self.patterns if channels.matches(pattern, channel))
            if len(self._matching) >= _MOST_CHANNELS:
                self._matching.clear()
            self._matching[channel] = matching
        for pattern in matching:
            if not is_hidden(pattern, channel):
                message = {"type": "pmessage", "pattern": pattern, "channel": channel, "data": payload}
                self.put(message, len(channel) + len(payload))
        return len(matching)

    def put(self, message: dict[str, Any], size: int) -> None:
        """Queue one message."""
        self._queue.append((message, size))
        self.waiting_bytes += size
        self._arrived.set()


_MOST_CHANNELS = 10_000


def _answer(answer: asyncio.Future[Any], results: list[Any]) -> None:
    if not answer.done():
        answer.set_result(results)


def _monotonic_ns() -> int:
    """Return the time of the running event loop, which may be virtual, in ns; outside of one, the monotonic clock."""
    try:
        return round(asyncio.get_running_loop().time() * 1e9)
    except RuntimeError:
        return time.monotonic_ns()
