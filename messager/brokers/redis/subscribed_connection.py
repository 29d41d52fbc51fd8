"""Connection of a subscriber to Redis, with pings and a monitor of its server.

Pings on the subscription connection detect silence. The answer to a ping arrives after everything that was delivered
before, so it proves that all of that has arrived. Other servers confirm that the server is the right one (`.monitor`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol

from redis.exceptions import ResponseError

from ... import channels
from ...errors import BrokerUnavailable
from ...time_limit import time_limit
from .endpoint import Endpoint
from .error_text import acl_remedy, error_text
from .kind import INTERNAL_INITIALS, is_hidden
from .monitor import ServerMonitor
from .server import CONNECT_TIMEOUT
from .wire import Wire

UNCONFIRMED_NS = 5_000_000_000
"""Time after which a server without confirmation may have been superseded, ns."""
PROVE_NS = 1_000_000_000
"""Interval of the pings that prove, while messages arrive, that all earlier ones were read, ns."""
PROGRESS_BYTES = 64 * 1024
"""Bytes within `ping_timeout` that extend the wait for the answer to a ping: what was sent before it is on its way."""


_MESSAGE = [bytes, bytes, bytes, bytes]


class Listener(Protocol):
    """Owner of subscribed connections."""

    def heard(self, source: SubscribedConnection, messages: list[dict[str, Any]], size: int, behind: int) -> None:
        """Accept messages in the form of `PubSub.get_message`, `size` bytes in total, delivered after `behind`."""

    def ended(self, source: SubscribedConnection, reason: str) -> None:
        """Handle the loss of the connection."""

    def superseded(self, source: SubscribedConnection, reason: str, serving: bool) -> None:
        """Handle a connection that stands but leads to a superseded server (see `ServerCheck.serves`)."""


class SubscribedConnection:
    """Connection to one server. Times are readings of the monotonic clock, ns."""

    def __init__(self, listener: Listener, url: str, ping_interval: float, ping_timeout: float) -> None:
        self._listener = listener
        self._url = url
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        self._wire: Wire
        self._monitor: ServerMonitor | None = None
        self.read_until = 0
        """Time before which everything that the server delivered has arrived."""
        self._alive = 0  # when something complete arrived: a message, an answer
        self._pinged_at: int | None = None  # when the unanswered ping was sent
        self._awaited_since = 0  # when the wait for its answer was last extended, and the bytes read until then
        self._awaited_from = 0
        self._unconfirmed: set[bytes] = set()
        self._refusal: ResponseError | None = None  # of a PSUBSCRIBE
        self._changed = asyncio.Event()
        self._superseded: str | None = None

    @classmethod
    async def open(
        cls, endpoint: Endpoint, listener: Listener, *, ping_interval: float, ping_timeout: float
    ) -> SubscribedConnection:
        """Connect; `ping_interval` and `ping_timeout` are in seconds. Raises `BrokerUnavailable`."""
        made = cls(listener, endpoint.url, ping_interval, ping_timeout)
        made._wire = await Wire.open(endpoint, made._received, made._lost)
        made._alive = made.read_until = time.monotonic_ns()
        check = endpoint.check()
        if check is not None:
            made._monitor = ServerMonitor(check, made._wire.connection, made._superseded_by)
        return made

    @property
    def complete_until(self) -> int:
        """Time before which everything that was published has arrived."""
        return self.read_until if self._monitor is None else min(self.read_until, self._monitor.confirmed)

    @property
    def unconfirmed_since(self) -> int | None:
        """Time of the last confirmation of the server if that is more than `UNCONFIRMED_NS` ago; else None."""
        if self._monitor is None or time.monotonic_ns() - self._monitor.confirmed < UNCONFIRMED_NS:
            return None
        return self._monitor.confirmed

    @property
    def due(self) -> int:
        """Time at which `check` must be called."""
        if self._pinged_at is None:
            return self._alive + int(self._ping_interval * 1e9)
        return self._awaited_since + int(self._ping_timeout * 1e9)

    def check(self) -> None:
        """Ping after a long silence; give the connection up if a ping was not answered in time."""
        if time.monotonic_ns() < self.due:
            return
        if self._pinged_at is None:
            self._ping()
        elif self._wire.bytes_read - self._awaited_from >= PROGRESS_BYTES:
            self._await_answer()
        else:
            self._lost(f"no answer to a ping within {self._ping_timeout:g} s")

    async def subscribe(self, patterns: Sequence[bytes]) -> None:
        """Return when every pattern is confirmed. Raises `BrokerUnavailable`."""
        self._unconfirmed.update(patterns)
        self._refusal = None
        try:
            async with time_limit(CONNECT_TIMEOUT):
                self._wire.command("PSUBSCRIBE", *patterns)
                self.resume()
                while not self._wire.closed and not self._unconfirmed.isdisjoint(patterns):
                    self._changed.clear()
                    await self._changed.wait()
                    if self._refusal is not None:
                        asked = [channels.decode(pattern) for pattern in patterns]
                        lacks = acl_remedy(self._refusal, "psubscribe", asked)
                        raise BrokerUnavailable(self._url, error_text(self._refusal) + lacks)
        except TimeoutError:
            raise BrokerUnavailable(self._url, "no answer in time") from None
        finally:
            self._unconfirmed.difference_update(patterns)
        if self._wire.closed:
            raise BrokerUnavailable(self._url, "the connection was lost while subscribing")
        if self._superseded is not None:
            raise BrokerUnavailable(self._url, self._superseded)

    def pause(self) -> None:
        """Stop reading, so that messages wait in Redis. A pending PSUBSCRIBE prevents it: its answer is behind them."""
        if not self._unconfirmed:
            self._wire.pause()

    def resume(self) -> None:
        """Continue reading."""
        if self._wire.resume():
            self._alive = time.monotonic_ns()  # silence while reading was stopped does not count
            self._await_answer()

    async def serves(self) -> bool:
        """Return True if the superseded server may still deliver messages of its own (see `ServerCheck.serves`)."""
        return self._monitor is not None and await self._monitor.check.serves(self._wire.connection)

    async def close(self) -> None:
        """Close the connection. May be called twice."""
        if self._monitor is not None:
            await self._monitor.stop()
        await self._wire.close()

    def _received(self, values: list[Any]) -> None:
        now = time.monotonic_ns()
        behind = self.read_until
        messages: list[dict[str, Any]] = []
        size = 0
        fault = None
        for value in values:
            kind = value[0] if value.__class__ is list and value else None
            if kind == b"pmessage":
                if list(map(type, value)) != _MESSAGE:
                    fault = value
                    continue
                _, pattern, channel, data = value
                if channel[:1] in INTERNAL_INITIALS and is_hidden(pattern, channel):
                    continue
                messages.append({"type": "pmessage", "pattern": pattern, "channel": channel, "data": data})
                size += len(channel) + len(data)
            elif kind == b"psubscribe" and len(value) > 1 and type(value[1]) is bytes:
                self._unconfirmed.discard(value[1])
            elif kind == b"pong" or value == b"PONG":
                self._answered()
            elif isinstance(value, ResponseError):
                if self._unconfirmed:
                    self._refusal = value
                else:  # an ACL may forbid PING; the refusal is an answer as well
                    self._answered()
        if messages:
            self._alive = now
        self._changed.set()
        if messages and self._pinged_at is None and now - self.read_until >= PROVE_NS:
            self._ping()
        self._listener.heard(self, messages, size, behind)
        if fault is not None and not self._wire.closed:
            self._wire.abort(f"it sent {repr(fault)[:60]}, which is no message of Redis")

    def _answered(self) -> None:
        """Record the answer to a ping: what was delivered before the ping has arrived."""
        if self._pinged_at is not None:
            self._alive = time.monotonic_ns()
            self.read_until, self._pinged_at = self._pinged_at, None

    def _ping(self) -> None:
        """Send PING."""
        self._pinged_at = time.monotonic_ns()
        self._await_answer()
        self._wire.command("PING")

    def _await_answer(self) -> None:
        self._awaited_since, self._awaited_from = time.monotonic_ns(), self._wire.bytes_read

    def _lost(self, reason: str) -> None:
        self._changed.set()
        self._listener.ended(self, reason)

    def _superseded_by(self, reason: str, serving: bool) -> None:
        self._superseded = reason
        self._listener.superseded(self, reason, serving)
