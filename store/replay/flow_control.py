"""Flow control: no faster than the slowest subscriber drains.

Redis cuts a subscriber off when too much waits for it (by default 32 MB at once, or 8 MB
for a minute), and what waited is lost. So after every `CREDIT` bytes the replay looks at
how much waits for the slowest one, and holds back while that is more than `HOLD_ABOVE`.
Both shrink where the server's own limits are tighter. A message that matches several of
one client's subscriptions is delivered to it several times, and counts so often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from messager.brokers import Backlog, Broker, OutputLimits

from ..errors import ReplayFailed

CREDIT = 2 * 1024 * 1024
HOLD_ABOVE = 4 * 1024 * 1024
DRAINED = 64 * 1024
"""Bytes that may wait when something larger than the credit is published."""
BATCH_BYTES = 256 * 1024
"""Payload bytes published together, at the most; a larger payload goes alone."""
OVERHEAD = 100
"""Bytes a message takes in an output buffer beside its payload, roughly."""
FRAME = 64 * 1024
"""Bytes that a payload must stay below the limit, for its channel, the pattern and what waited before it."""
BLOCK = 128
"""Bytes that stand before a payload, in what is allocated for it."""
FIRST_LOOK, LAST_LOOK = 0.002, 0.02
"""Seconds between two looks while holding back: at first, and at the most."""

Message = tuple[bytes, bytes]
"""A channel and a payload, as they are on the wire."""
_PAYLOAD = itemgetter(1)


class FlowControl:
    """Spends credit on messages and earns it by looking at the subscribers.

    `max_hold` is for how many seconds a subscriber may read nothing before the replay is
    given up; None waits without end. `holding` is called after each look while held back.
    """

    def __init__(
        self, broker: Broker, *, max_hold: float | None = None, holding: Callable[[], None] | None = None
    ) -> None:
        self._broker = broker
        self._max_hold = max_hold
        self._holding = holding or (lambda: None)
        self._credit = 0
        self._copies: dict[bytes, int] = {}  # by channel, to one client, at the most
        self._subscriptions = 1  # which bounds them where nothing was published yet
        self._most_copies = 1  # of any channel, so far
        self._limit(OutputLimits(None, None))
        self.held_ns = 0
        """How long the replay was held back."""
        self.held_by: str | None = None
        """For whom it is held back at the moment."""
        self.stalled_ns = 0
        """For how long that one has read nothing."""
        self.active = True
        """False where the broker does not say what waits for its subscribers."""

    def together(self, wire: Sequence[Message], start: int) -> int:
        """Where those end that may be published together from `start` on: one of them at the least."""
        if start == 0 and sum(map(len, map(_PAYLOAD, wire))) / BATCH_BYTES + self._bound(wire) / self._most_credit <= 1:
            return len(wire)
        full = 0.0
        for at in range(start, len(wire)):
            channel, payload = wire[at]
            full += max(len(payload) / BATCH_BYTES, self._cost(channel, payload) / self._most_credit)
            if full > 1 and at > start:
                return at
        return len(wire)

    def copies(self, channel: bytes) -> int:
        """How often one client gets a message on this channel, at the most, as far as is known."""
        return self._copies.get(channel, self._subscriptions)

    def cut_off(self, wire: Sequence[Message]) -> int | None:
        """The first whose copies alone could be more than may wait for one client; None where none is."""
        most = self.largest_payload
        if most is None or (max(map(len, map(_PAYLOAD, wire))) + OVERHEAD) * self._most_copies - OVERHEAD <= most:
            return None
        return next((at for at, message in enumerate(wire) if self._cost(*message) - OVERHEAD > most), None)

    def _bound(self, wire: Sequence[Message]) -> int:
        """What they cost at the most. Looked at first: in nearly every batch it is little enough, and it
        takes no look at each channel."""
        return (sum(map(len, map(_PAYLOAD, wire))) + OVERHEAD * len(wire)) * self._most_copies

    def _cost(self, channel: bytes, payload: bytes) -> int:
        return (len(payload) + OVERHEAD) * self.copies(channel)

    @property
    def largest_payload(self) -> int | None:
        """Bytes above which a payload has its subscribers cut off; None where there is no such limit.

        Redis counts what its allocator gave, and jemalloc, the usual one, has four sizes from one power of two to
        the next: 28 MB below a limit of 32.
        """
        if self._limits.hard is None:
            return None
        room = self._limits.hard - min(FRAME, self._limits.hard // 8)
        step = 1 << max(room.bit_length() - 3, 0)
        return room // step * step - min(BLOCK, room // 8)

    async def begin(self) -> None:
        """Learn the broker's limits, and whether it says what waits. Raises `BrokerUnavailable`."""
        self._limit(await self._broker.output_limits())
        self._look(await self._broker.backlog())

    def _look(self, backlog: Backlog | None) -> None:
        self.active = backlog is not None
        subscriptions = 1 if backlog is None else max(backlog.subscriptions, 1)
        if subscriptions > self._subscriptions:
            self._copies.clear()  # a new one may fit any channel
        self._subscriptions = subscriptions
        self._most_copies = max(self._most_copies, subscriptions)

    def _limit(self, limits: OutputLimits) -> None:
        self._limits = limits
        tightest = min((limit for limit in limits if limit is not None), default=4 * CREDIT)
        self._most_credit = max(min(CREDIT, tightest // 4), 1)
        self._hold_above = min(HOLD_ABOVE, tightest // 2)

    async def spend(self, wire: Sequence[Message]) -> None:
        """Return when these may be published. Raises `ReplayFailed` after `max_hold`."""
        while (
            self.active
            and self._bound(wire) > self._credit
            and (need := sum(self._cost(*message) for message in wire)) > self._credit
        ):
            await self._earn(need)  # which may find that one client gets more copies than was known

    def spent(self, wire: Sequence[Message], results: Sequence[Any]) -> None:
        """They were published, and this is what the broker said to each."""
        if self._most_copies == 1:  # nobody can have got more
            self._credit -= self._bound(wire)
            return
        for (channel, payload), receivers in zip(wire, results, strict=True):
            # so often at the most did one client get it
            if receivers is None:  # the broker does not say
                copies = self._subscriptions
            else:
                copies = max(min(receivers, self._subscriptions), 1) if isinstance(receivers, int) else 1
            self._copies[channel] = max(self._copies.get(channel, 1), copies)
            self._credit -= (len(payload) + OVERHEAD) * copies

    async def _earn(self, need: int) -> None:
        allowed = self._hold_above if need <= self._most_credit else min(DRAINED, self._hold_above)
        since = read_at = time.monotonic_ns()
        pause = FIRST_LOOK
        backlog = await self._broker.backlog()
        least = None if backlog is None else backlog.waiting
        while backlog is not None and least is not None and backlog.waiting > allowed:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LAST_LOOK)
            now = time.monotonic_ns()
            self.held_ns, since = self.held_ns + now - since, now
            if backlog.waiting < least:
                least, read_at = backlog.waiting, now
            self.held_by, self.stalled_ns = backlog.slowest, now - read_at
            self._holding()
            if self._max_hold is not None and self.stalled_ns > self._max_hold * 1e9:
                raise ReplayFailed(
                    f"the subscriber {backlog.slowest} has read nothing for {self._max_hold:g} s, with "
                    f"{backlog.waiting:,} bytes waiting for it. End it, or give it longer with --max-hold"
                )
            backlog = await self._broker.backlog()
        self.held_by, self.stalled_ns = None, 0
        self._look(backlog)
        self._credit = max(self._most_credit, need)
