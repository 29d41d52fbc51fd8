"""Listening on Redis: nothing is missed without a word, and silence is noticed.

redis-py's own `PubSub` reconnects without a word and does not notice a network that has gone silent,
so this one pings, and tells what may be missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from redis.exceptions import ResponseError

from .. import channels
from ..errors import BrokerUnavailable
from .listening import Listening
from .redis_addresses import CONNECT_TIMEOUT, Addresses
from .redis_reasons import missing_right, reason_of
from .redis_wire import Wire

PROVE_NS = 1_000_000_000
"""While messages come, how often a subscriber asks for a proof that it has read all that was sent to it, ns."""
INBOX_MESSAGES, INBOX_BYTES = 1000, 1 << 20
"""Messages and bytes that may wait for `get_message`; above either, reading pauses and messages wait in Redis."""


class RedisPubSub(Listening[Wire]):
    """A subscriber on Redis.

    One that has heard nothing for `ping_interval` (s) pings; without any answer for `ping_timeout` (s)
    more, the connection counts as lost.
    """

    def __init__(self, addresses: Addresses, *, ping_interval: float, ping_timeout: float) -> None:
        super().__init__(addresses.url)
        self._addresses = addresses
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        self._patterns: dict[bytes, None] = {}
        self._unconfirmed: set[bytes] = set()
        self._refusal: ResponseError | None = None  # to a PSUBSCRIBE
        self._alive = 0  # when something came
        self._pinged_at: int | None = None  # when a ping left that is not answered yet

    async def psubscribe(self, *patterns: str | bytes) -> None:
        wanted = [pattern for pattern in map(channels.encode, patterns) if pattern not in self._patterns]
        if not wanted:
            return
        if self._lost is not None:
            raise BrokerUnavailable(self._url, self._lost[0])
        if self._connection is None:
            self._connection = await self._connect()
            self._alive = self._proven = time.monotonic_ns()
        await self._subscribe(self._connection, wanted)
        self._patterns.update(dict.fromkeys(wanted))

    async def punsubscribe(self, *patterns: str | bytes) -> None:
        gone = [channels.encode(pattern) for pattern in patterns] or list(self._patterns)
        for pattern in gone:
            self._patterns.pop(pattern, None)
        if self._connection is not None and gone:
            self._connection.command("PUNSUBSCRIBE", *gone)

    async def get_message(self, ignore_subscribe_messages: bool = True, timeout: float = 0.0) -> dict[str, Any] | None:
        inbox = self._inbox
        if not inbox:
            gap = await self._wait(timeout)
            if gap is not None or not inbox:
                return gap
        message = inbox.popleft()
        if not inbox:
            self._inbox_bytes = 0
            if self._connection is not None:
                self._resume(self._connection)
        return message

    def _resume(self, wire: Wire) -> None:
        """Read again where reading was paused."""
        if wire.resume():
            self._alive = time.monotonic_ns()  # it could not be heard meanwhile

    async def _connect(self) -> Wire:
        return await Wire.open(self._addresses, self._came, self._gone)

    async def _subscribe_again(self, connection: Wire) -> None:
        if self._patterns:
            await self._subscribe(connection, list(self._patterns))

    async def _forget(self) -> None:
        self._pinged_at = None

    async def aclose(self) -> None:
        self._patterns.clear()
        await super().aclose()

    async def _subscribe(self, wire: Wire, patterns: list[bytes]) -> None:
        """Send PSUBSCRIBE and return once every pattern is confirmed. Raises `BrokerUnavailable`."""
        self._unconfirmed.update(patterns)
        self._refusal = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                wire.command("PSUBSCRIBE", *patterns)
                self._resume(wire)
                while not wire.closed and not self._unconfirmed.isdisjoint(patterns):
                    self._stirred.clear()
                    await self._stirred.wait()
                    if self._refusal is not None:
                        asked = [channels.decode(pattern) for pattern in patterns]
                        lacks = missing_right(self._refusal, "psubscribe", asked)
                        raise BrokerUnavailable(self._url, reason_of(self._refusal) + lacks)
        except TimeoutError:
            raise BrokerUnavailable(self._url, "no answer in time") from None
        finally:
            self._unconfirmed.difference_update(patterns)
        if wire.closed:
            raise BrokerUnavailable(self._url, "the connection was lost while subscribing")

    async def _wait(self, timeout: float) -> dict[str, Any] | None:
        """Return when there is a message, or after `timeout` seconds; a gap, where the connection was made again."""
        deadline = time.monotonic() + timeout
        while not self._inbox:
            wire = self._connection
            if wire is None:
                if self._lost is None:
                    raise RuntimeError("psubscribe first: this subscriber has no subscription")
                return await self._mend(timeout)
            now = time.monotonic_ns()
            since = self._alive if self._pinged_at is None else max(self._alive, self._pinged_at)
            overdue = since + int((self._ping_interval if self._pinged_at is None else self._ping_timeout) * 1e9)
            self._stirred.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min((overdue - now) / 1e9, deadline - time.monotonic()), 0.001)):
                    await self._stirred.wait()
            if not self._stirred.is_set() and self._connection is wire and time.monotonic_ns() >= overdue:
                if self._pinged_at is None:
                    self._ping(wire)
                else:
                    self._gone(f"no answer to a ping within {self._ping_timeout:g} s")
            if time.monotonic() >= deadline:
                break
        return None

    def _came(self, values: list[Any]) -> None:
        """Something came in: messages are kept for `get_message`, the rest is dealt with here."""
        now = self._alive = time.monotonic_ns()
        inbox, before = self._inbox, len(self._inbox)
        if not before:
            self._read_to = self._proven
        for value in values:
            if value == b"PONG" or isinstance(value, ResponseError):  # an ACL may forbid PING: a sign of life as well
                if value == b"PONG" or not self._unconfirmed:
                    self._answered()
                else:
                    self._refusal = value
            elif value[0] == b"pmessage":
                inbox.append({"type": "pmessage", "pattern": value[1], "channel": value[2], "data": value[3]})
                self._inbox_bytes += len(value[2]) + len(value[3])
            elif value[0] == b"psubscribe":
                self._unconfirmed.discard(value[1])
            elif value[0] == b"pong":
                self._answered()
        wire = self._connection
        if wire is not None and len(inbox) > before:
            # A confirmation comes behind the messages, so reading goes on until it is there.
            if not self._unconfirmed and (len(inbox) > INBOX_MESSAGES or self._inbox_bytes > INBOX_BYTES):
                wire.pause()
            if self._pinged_at is None and now - self._proven >= PROVE_NS:
                self._ping(wire)
        self._stirred.set()

    def _answered(self) -> None:
        """A ping was: what was delivered to us before it has come in."""
        if self._pinged_at is not None:
            self._proven, self._pinged_at = self._pinged_at, None

    def _ping(self, wire: Wire) -> None:
        """Ask for a sign of life, which comes behind everything that was delivered to us before."""
        self._pinged_at = time.monotonic_ns()
        wire.command("PING")
