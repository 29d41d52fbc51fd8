"""When a sender looks for the broker's answer at once, and leaves the event loop aside."""

from __future__ import annotations

import asyncio

GLANCE_NS = 100_000
"""For how long (ns) a task that sends one message after another looks for the answer before others get their turn."""
MOST_IN_VAIN = 10
"""Looks in vain after which it looks at every 1024th message only."""


class Glance:
    """Where one task sends one message after another, its answers are looked for at once.

    Tasks that send at the same time are better served by the event loop, which lets them gather. Where the
    answer does not come soon, as from another machine, looking stops for a while, each time longer.
    """

    __slots__ = ("_sender", "in_vain", "skipping")

    def __init__(self) -> None:
        self._sender = 0  # who published the last message that went alone
        self.in_vain = 0
        """How often it was looked for in vain, since the last time it was there."""
        self.skipping = 0
        """At how many messages more nobody looks."""

    def due(self, waiting: int) -> bool:
        """Whether to look now, after a message that was published alone; `waiting` is how many are not answered."""
        sender, self._sender = self._sender, id(asyncio.current_task())
        if sender != self._sender or waiting != 1:
            return False
        if self.skipping:
            self.skipping -= 1
            return False
        return True

    def looked(self, found: bool) -> None:
        """It was looked for."""
        self.in_vain = 0 if found else min(self.in_vain + 1, MOST_IN_VAIN)
        self.skipping = 2**self.in_vain - 1
