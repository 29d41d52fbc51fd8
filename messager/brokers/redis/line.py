"""One connection of a subscriber to Redis: subscribed, pinged, and watched over.

Silence is noticed by pings, on the same connection: an answer comes behind everything that was delivered before, so
it proves that all of it has come in. That the server is still the right one, others confirm (see `redis_watch`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol

from redis.exceptions import ResponseError

from ... import channels
from ...errors import BrokerUnavailable
from .addresses import Addresses
from .connecting import CONNECT_TIMEOUT
from .kind import INTERNAL_INITIALS, is_hidden
from .reasons import missing_right, reason_of
from .watch import Watcher
from .wire import Wire

UNCONFIRMED_NS = 5_000_000_000
"""Time after which a server that nobody confirms may have been superseded, ns."""
PROVE_NS = 1_000_000_000
"""While messages come, how often a subscriber asks for a proof that it has read all that was sent to it, ns."""


class Listener(Protocol):
    """The owner of lines."""

    def heard(self, line: Line, messages: list[dict[str, Any]], size: int, behind: int) -> None:
        """Take messages, as `PubSub.get_message` returns them, of `size` bytes in all. They came after `behind`."""

    def ended(self, line: Line, reason: str) -> None:
        """Take note that the connection is lost."""

    def superseded(self, line: Line, reason: str, serving: bool) -> None:
        """Take note that the connection stands, and its server is no longer the right one (see `Watch.serves`)."""


class Line:
    """A connection to one server. Times are readings of the monotonic clock, ns."""

    def __init__(self, listener: Listener, url: str, ping_interval: float, ping_timeout: float) -> None:
        self._listener = listener
        self._url = url
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        self._wire: Wire
        self._watcher: Watcher | None = None
        self.read_until = 0
        """Everything that the server delivered before this moment has come in."""
        self._alive = 0  # when something came
        self._pinged_at: int | None = None  # when a ping left that is not answered yet
        self._unconfirmed: set[bytes] = set()
        self._refusal: ResponseError | None = None  # to a PSUBSCRIBE
        self._changed = asyncio.Event()
        self._superseded: str | None = None

    @classmethod
    async def open(cls, addresses: Addresses, listener: Listener, *, ping_interval: float, ping_timeout: float) -> Line:
        """Connect; `ping_interval` and `ping_timeout` are in seconds. Raises `BrokerUnavailable`."""
        line = cls(listener, addresses.url, ping_interval, ping_timeout)
        line._wire = await Wire.open(addresses, line._came, line._lost)
        line._alive = line.read_until = time.monotonic_ns()
        watch = addresses.watch()
        if watch is not None:
            line._watcher = Watcher(watch, line._wire.connection, line._replaced)
        return line

    @property
    def complete_until(self) -> int:
        """Everything that was published before this moment has come in."""
        return self.read_until if self._watcher is None else min(self.read_until, self._watcher.confirmed)

    @property
    def unconfirmed_since(self) -> int | None:
        """When the server was confirmed last, if that is longer ago than `UNCONFIRMED_NS`; else None."""
        if self._watcher is None or time.monotonic_ns() - self._watcher.confirmed < UNCONFIRMED_NS:
            return None
        return self._watcher.confirmed

    @property
    def due(self) -> int:
        """Latest time for a call of `check`."""
        if self._pinged_at is None:
            return self._alive + int(self._ping_interval * 1e9)
        return max(self._alive, self._pinged_at) + int(self._ping_timeout * 1e9)

    def check(self) -> None:
        """Ping where nothing came for long; give the connection up where a ping was not answered."""
        if time.monotonic_ns() < self.due:
            return
        if self._pinged_at is None:
            self._ping()
        else:
            self._lost(f"no answer to a ping within {self._ping_timeout:g} s")

    async def subscribe(self, patterns: Sequence[bytes]) -> None:
        """Return once every pattern is confirmed. Raises `BrokerUnavailable`."""
        self._unconfirmed.update(patterns)
        self._refusal = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                self._wire.command("PSUBSCRIBE", *patterns)
                self.resume()
                while not self._wire.closed and not self._unconfirmed.isdisjoint(patterns):
                    self._changed.clear()
                    await self._changed.wait()
                    if self._refusal is not None:
                        asked = [channels.decode(pattern) for pattern in patterns]
                        lacks = missing_right(self._refusal, "psubscribe", asked)
                        raise BrokerUnavailable(self._url, reason_of(self._refusal) + lacks)
        except TimeoutError:
            raise BrokerUnavailable(self._url, "no answer in time") from None
        finally:
            self._unconfirmed.difference_update(patterns)
        if self._wire.closed:
            raise BrokerUnavailable(self._url, "the connection was lost while subscribing")
        if self._superseded is not None:
            raise BrokerUnavailable(self._url, self._superseded)

    def unsubscribe(self, patterns: Sequence[bytes]) -> None:
        """Send UNSUBSCRIBE for these patterns."""
        self._wire.command("PUNSUBSCRIBE", *patterns)

    def pause(self) -> None:
        """Stop reading, so that messages wait in Redis. Not while an answer is awaited, which comes behind them."""
        if not self._unconfirmed:
            self._wire.pause()

    def resume(self) -> None:
        """Read again."""
        if self._wire.resume():
            self._alive = time.monotonic_ns()  # it could not be heard meanwhile

    async def serves(self) -> bool:
        """Return whether the server, which is superseded, is to be listened to beside its successor."""
        return self._watcher is not None and await self._watcher.watch.serves(self._wire.connection)

    async def close(self) -> None:
        """Close the connection. May be called twice."""
        if self._watcher is not None:
            await self._watcher.stop()
        await self._wire.close()

    def _came(self, values: list[Any]) -> None:
        now = self._alive = time.monotonic_ns()
        behind = self.read_until
        messages: list[dict[str, Any]] = []
        size = 0
        for value in values:
            kind = value[0] if value.__class__ is list else None
            if kind == b"pmessage":
                _, pattern, channel, data = value
                if channel[:1] in INTERNAL_INITIALS and is_hidden(pattern, channel):
                    continue
                messages.append({"type": "pmessage", "pattern": pattern, "channel": channel, "data": data})
                size += len(channel) + len(data)
            elif kind == b"psubscribe":
                self._unconfirmed.discard(value[1])
            elif kind == b"pong" or value == b"PONG":
                self._answered()
            elif isinstance(value, ResponseError):
                if self._unconfirmed:
                    self._refusal = value
                else:  # an ACL may forbid PING: a sign of life as well
                    self._answered()
        self._changed.set()
        if messages and self._pinged_at is None and now - self.read_until >= PROVE_NS:
            self._ping()
        self._listener.heard(self, messages, size, behind)

    def _answered(self) -> None:
        """A ping was answered: what was delivered before it has come in."""
        if self._pinged_at is not None:
            self.read_until, self._pinged_at = self._pinged_at, None

    def _ping(self) -> None:
        """Ask for a sign of life, which comes behind everything that was delivered before."""
        self._pinged_at = time.monotonic_ns()
        self._wire.command("PING")

    def _lost(self, reason: str) -> None:
        self._changed.set()
        self._listener.ended(self, reason)

    def _replaced(self, reason: str, serving: bool) -> None:
        self._superseded = reason
        self._listener.superseded(self, reason, serving)
