"""Flow control: no faster than the slowest subscriber drains.

Redis cuts a subscriber off when too much waits for it (by default 32 MB at once, or 8 MB
for a minute), and what waited is lost. So after every `CREDIT` bytes the replay looks at
how much waits for the slowest one, and holds back while that is more than `HOLD_ABOVE`.
"""

from __future__ import annotations

import asyncio
import time

from messager.brokers import Broker

CREDIT = 2 * 1024 * 1024
HOLD_ABOVE = 4 * 1024 * 1024
OVERHEAD = 100
"""Bytes a message takes in an output buffer beside its payload, roughly."""
LOOK_SECONDS = 0.002


class Flow:
    """Spends credit on messages and earns it by looking at the subscribers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._credit = 0
        self.held_ns = 0
        """How long the replay was held back."""
        self.active = True
        """False where the broker does not say what waits for its subscribers."""

    async def spend(self, payload_bytes: int, messages: int) -> None:
        """Return when so many bytes may be published."""
        if self._credit <= 0 and self.active:
            since = time.monotonic_ns()
            backlog = await self._broker.backlog()
            while backlog is not None and backlog > HOLD_ABOVE:
                await asyncio.sleep(LOOK_SECONDS)
                backlog = await self._broker.backlog()
                now = time.monotonic_ns()
                self.held_ns, since = self.held_ns + now - since, now
            self.active = backlog is not None
            self._credit = CREDIT
        self._credit -= payload_bytes + OVERHEAD * messages
