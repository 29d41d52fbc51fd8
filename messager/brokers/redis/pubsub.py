"""Listening on Redis: nothing is missed without a word, and silence is noticed.

redis-py's own `PubSub` reconnects without a word and does not notice a network that has gone silent,
so this one pings, and tells what may be missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from ... import channels
from ...errors import BrokerUnavailable
from ..reconnecting import Listening
from .addresses import Addresses
from .line import Line
from .watch import CONFIRM_SECONDS

INBOX_MESSAGES, INBOX_BYTES = 1000, 1 << 20
"""Messages and bytes that may wait for `get_message`; above either, reading pauses and messages wait in Redis."""


class RedisPubSub(Listening[Line]):
    """A subscriber on Redis.

    One that has heard nothing for `ping_interval` (s) pings; without any answer for `ping_timeout` (s)
    more, the connection counts as lost. So it does when sentinels name another master, or when the node left its
    cluster. A master that was replaced is listened to beside the new one until it is a master no more, as some
    still publish there.
    """

    def __init__(self, addresses: Addresses, *, ping_interval: float, ping_timeout: float) -> None:
        super().__init__(addresses.url)
        self._addresses = addresses
        self._ping_interval, self._ping_timeout = ping_interval, ping_timeout
        self._patterns: dict[bytes, None] = {}
        self._former: Line | None = None  # to a master that was replaced
        self._leaving: set[asyncio.Task[None]] = set()  # tasks that wait for the end of that

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

    async def punsubscribe(self, *patterns: str | bytes) -> None:
        gone = [channels.encode(pattern) for pattern in patterns] or list(self._patterns)
        for pattern in gone:
            self._patterns.pop(pattern, None)
        if gone:
            for line in self._lines():
                line.unsubscribe(gone)

    async def get_message(self, ignore_subscribe_messages: bool = True, timeout: float = 0.0) -> dict[str, Any] | None:
        inbox = self._inbox
        if not inbox:
            gap = await self._wait(timeout)
            if gap is not None or not inbox:
                return gap
        message = inbox.popleft()
        if not inbox:
            self._inbox_bytes = 0
            for line in self._lines():
                line.resume()
        return message

    def unconfirmed_since(self) -> int | None:
        return None if self._connection is None else self._connection.unconfirmed_since

    async def aclose(self) -> None:
        self._patterns.clear()
        self._former = None
        await super().aclose()
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def heard(self, line: Line, messages: list[dict[str, Any]], size: int, behind: int) -> None:
        inbox = self._inbox
        if not inbox:
            self._read_to = min([behind, *(one.read_until for one in self._lines())])
        inbox.extend(messages)
        self._inbox_bytes += size
        if messages and (len(inbox) > INBOX_MESSAGES or self._inbox_bytes > INBOX_BYTES):
            line.pause()
        self._stirred.set()

    def ended(self, line: Line, reason: str) -> None:
        if line is self._connection:
            self._gone(reason, line.complete_until)
        elif line is self._former:
            self._former = None
            self._inbox.append(
                {"type": "gap", "reason": reason, "since": line.read_until, "until": time.monotonic_ns()}
            )
            self._stirred.set()

    def superseded(self, line: Line, reason: str, serving: bool) -> None:
        if line is not self._connection:
            return  # a line that is not in use yet refuses to be
        if self._former is not None:
            self.ended(self._former, "the master was replaced again")
        self._gone(reason, line.complete_until)
        if serving:
            self._former, self._dead = line, None
            task = asyncio.create_task(self._leave(line))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _leave(self, line: Line) -> None:
        """Listen on to a master that was replaced, until it is a replica or its connection ends."""
        try:
            while line is self._former and await line.serves():
                await asyncio.sleep(CONFIRM_SECONDS)
            self.ended(line, "the master that was replaced is a replica")
        finally:
            await line.close()

    def _lines(self) -> list[Line]:
        return [line for line in (self._connection, self._former) if line is not None]

    async def _connect(self) -> Line:
        return await Line.open(
            self._addresses, self, ping_interval=self._ping_interval, ping_timeout=self._ping_timeout
        )

    async def _subscribe_again(self, connection: Line) -> None:
        if self._patterns:
            await connection.subscribe(list(self._patterns))

    async def _wait(self, timeout: float) -> dict[str, Any] | None:
        """Return when there is a message, or after `timeout` seconds; a gap, where the connection was made again."""
        deadline = time.monotonic() + timeout
        while not self._inbox:
            if self._connection is None:
                if self._lost is None:
                    raise RuntimeError("psubscribe first: this subscriber has no subscription")
                return await self._mend(timeout)
            due = min(line.due for line in self._lines()) - time.monotonic_ns()
            self._stirred.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(due / 1e9, deadline - time.monotonic()), 0.001)):
                    await self._stirred.wait()
            for line in self._lines():
                line.check()
            if time.monotonic() >= deadline:
                break
        return None
