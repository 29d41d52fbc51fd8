"""Keys of streams that match patterns: listed with SCAN in small steps, and told by notifications where there are any.

Notifications of keys are used if the server sends them (`notify-keyspace-events` with K and t); they are never turned
on, as every client of the server would pay for them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ... import channels
from ...errors import BrokerUnavailable
from ..base import PubSub

STEP_KEYS = 250
"""Keys that one step looks at; a server takes about 0.1 ms for them."""
STEP_NS = 5_000_000
"""Shortest time between two steps."""
PAUSE_NS, PAUSE_IF_TOLD_NS = 1_000_000_000, 10_000_000_000
"""Time between two listings, and where notifications arrive."""
NOTIFICATIONS = 1000
"""Notifications that are read at a time."""
_MAKES_STREAM = frozenset((b"xadd", b"rename_to", b"restore", b"copy_to", b"xgroup-create", b"xsetid"))


class StreamKeys:
    """Finds keys of streams. `ask` sends one command and returns its reply."""

    def __init__(self, patterns: Sequence[str], ask: Callable[..., Awaitable[Any]], pubsub: PubSub) -> None:
        self.listed = time.monotonic_ns()
        """Start (monotonic ns) of the last complete listing: streams that were there then, and still are, are known."""
        self._patterns = [channels.encode(pattern) for pattern in patterns]
        self._ask = ask
        self._pubsub: PubSub | None = pubsub
        self._prefix = 0  # length of what precedes the key in the channel of a notification
        self._told = False
        self._cursor = b"0"
        self._started = 0  # when the current listing started
        self._due = 0  # when the next step is due

    @property
    def listing(self) -> bool:
        """True while a listing is not complete."""
        return self._cursor != b"0"

    async def listen(self, database: int) -> None:
        """Listen to notifications about keys of this database."""
        prefix = b"__keyspace@%d__:" % database
        self._prefix = len(prefix)
        if self._pubsub is not None:
            try:
                await self._pubsub.psubscribe(*(prefix + pattern for pattern in self._patterns))
            except BrokerUnavailable:  # an ACL forbids it
                await self.aclose()

    async def every_key(self) -> list[bytes]:
        """Return the keys of all streams that there are."""
        self._cursor = b"0"
        found = await self._step()
        while self.listing:
            found += await self._step()
        return found

    async def found(self) -> list[bytes]:
        """Return keys that were told since the last call, and those of the next step, if it is due."""
        found = await self._notified()
        if time.monotonic_ns() >= self._due:
            found += await self._step()
        return found

    async def aclose(self) -> None:
        """Stop listening to notifications."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            await pubsub.aclose()

    async def _step(self) -> list[bytes]:
        now = time.monotonic_ns()
        if not self.listing:
            self._started = now
        only = (b"MATCH", self._patterns[0]) if len(self._patterns) == 1 else ()
        reply = await self._ask(b"SCAN", self._cursor, *only, b"COUNT", b"%d" % STEP_KEYS, b"TYPE", b"stream")
        self._cursor, keys = reply
        if self.listing:
            self._due = time.monotonic_ns() + STEP_NS
        else:
            self.listed = self._started
            self._due = time.monotonic_ns() + (PAUSE_IF_TOLD_NS if self._told else PAUSE_NS)
        return [key for key in keys if channels.matches_any(self._patterns, key)]

    async def _notified(self) -> list[bytes]:
        found = []
        for _ in range(NOTIFICATIONS if self._pubsub is not None else 0):
            assert self._pubsub is not None
            message = await self._pubsub.get_message(timeout=0.0)
            if message is None:
                break
            if message["type"] == "gap":
                self._due = 0
            elif message["data"] in _MAKES_STREAM:
                self._told = True
                found.append(message["channel"][self._prefix :])
        return found
