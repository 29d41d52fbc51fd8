"""Flow control: limits a replay to the speed of the slowest subscriber.

Redis disconnects a subscriber when its output buffer is too large (by default above 32 MB, or above 8 MB
for a minute) and discards the buffer. So after every `CREDIT` bytes, the replay looks at the
largest output buffer, and waits while it is above `HOLD_ABOVE`. If the server's limits are lower, both are reduced.
Some servers do not count large payloads (`OutputLimits.counted_below`). What was published of them since all buffers
were empty counts as waiting, so there the replay waits until all is read at least every `HOLD_ABOVE` bytes.
A message that matches several subscriptions of one client is delivered to it several times, and counts as often.
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
"""Bytes that may be in the output buffer when messages larger than the credit are published."""
BATCH_BYTES = 256 * 1024
"""Maximum payload bytes published together; a larger payload is published alone."""
OVERHEAD = 100
"""Approximate bytes of a message in an output buffer beside its payload."""
FRAME = 64 * 1024
"""Distance of the largest payload from the limit, for its channel, the pattern and earlier messages."""
BLOCK = 128
"""Bytes allocated in front of a payload."""
FIRST_LOOK, LAST_LOOK = 0.002, 0.02
"""Seconds between two looks while holding back: first and maximum."""

Message = tuple[bytes, bytes]
"""A channel and a payload, as on the wire."""
_PAYLOAD = itemgetter(1)


class FlowControl:
    """Spends credit on messages and renews it by looking at the output buffers of the subscribers.

    `max_hold` is the number of seconds that a subscriber may read nothing before the replay
    fails; None is unlimited. `holding` is called after each look while holding back; it may raise to end the wait.
    """

    def __init__(
        self, broker: Broker, *, max_hold: float | None = None, holding: Callable[[], None] | None = None
    ) -> None:
        self._broker = broker
        self._max_hold = max_hold
        self._holding = holding or (lambda: None)
        self._credit = 0
        self._uncounted = 0
        """Bytes published since all output buffers were empty that the broker does not count."""
        self._limits = OutputLimits(None, None)
        self._copies: dict[bytes, int] = {}
        """By channel, the maximum number of copies of a message for one client, as far as observed."""
        self._subscriptions = 1
        """Maximum number of subscriptions of one client, which bounds the copies on other channels."""
        self._most_copies = 1
        """Maximum of `_subscriptions` so far."""
        self.held_ns = 0
        """Total time of holding back."""
        self.held_by: str | None = None
        """The subscriber that the replay waits for now."""
        self.stalled_ns = 0
        """Time for which that subscriber has read nothing."""
        self.active = True
        """False if the broker does not report output buffers."""

    def together(self, wire: Sequence[Message], start: int) -> int:
        """Return the end of the messages from `start` on that may be published together; at least one message."""
        most = self._most_credit
        if start == 0 and sum(map(len, map(_PAYLOAD, wire))) / BATCH_BYTES + self._bound(wire) / most <= 1:
            return len(wire)
        full = 0.0
        for at in range(start, len(wire)):
            channel, payload = wire[at]
            full += max(len(payload) / BATCH_BYTES, self._cost(channel, payload) / most)
            if full > 1 and at > start:
                return at
        return len(wire)

    def copies(self, channel: bytes) -> int:
        """Return the maximum number of copies of a message on this channel for one client."""
        return self._copies.get(channel, self._subscriptions)

    def cut_off(self, wire: Sequence[Message]) -> int | None:
        """Return the first message whose copies alone could exceed the limit of one client; None if there is none."""
        most = self.largest_payload
        if most is None or (max(map(len, map(_PAYLOAD, wire))) + OVERHEAD) * self._most_copies - OVERHEAD <= most:
            return None
        return next((at for at, message in enumerate(wire) if self._cost(*message) - OVERHEAD > most), None)

    def _bound(self, wire: Sequence[Message]) -> int:
        """Return an upper bound of the cost. It is fast, as it looks at no channel, and suffices for most batches."""
        return (sum(map(len, map(_PAYLOAD, wire))) + OVERHEAD * len(wire)) * self._most_copies

    def _cost(self, channel: bytes, payload: bytes) -> int:
        return (len(payload) + OVERHEAD) * self.copies(channel)

    @property
    def _tightest(self) -> int:
        limits = (self._limits.hard, self._limits.soft)
        return min((limit for limit in limits if limit is not None), default=4 * CREDIT)

    @property
    def _most_credit(self) -> int:
        return max(min(CREDIT, self._tightest // 4), 1)

    @property
    def _hold_above(self) -> int:
        return min(HOLD_ABOVE, self._tightest // 2)

    @property
    def largest_payload(self) -> int | None:
        """Return the size in bytes above which a payload disconnects its subscribers; None without such a limit.

        Redis counts allocated bytes, and jemalloc, its usual allocator, has four sizes from one power of two to
        the next: 28 MB are the largest size below a limit of 32 MB.
        """
        if self._limits.hard is None:
            return None
        room = self._limits.hard - min(FRAME, self._limits.hard // 8)
        step = 1 << max(room.bit_length() - 3, 0)
        return room // step * step - min(BLOCK, room // 8)

    async def begin(self) -> None:
        """Read the broker's limits and first output buffers. Raises `BrokerUnavailable`."""
        self._limits = await self._broker.output_limits()
        self._look(await self._broker.backlog())

    def _look(self, backlog: Backlog | None) -> None:
        self.active = backlog is not None
        subscriptions = 1 if backlog is None else max(backlog.subscriptions, 1)
        if subscriptions > self._subscriptions:
            self._copies.clear()  # a new subscription may match any channel
        self._subscriptions = subscriptions
        self._most_copies = max(self._most_copies, subscriptions)

    async def spend(self, wire: Sequence[Message]) -> None:
        """Wait until the credit suffices for these messages. Raises `ReplayFailed` after `max_hold`."""
        while (
            self.active
            and self._bound(wire) > self._credit
            and (need := sum(self._cost(*message) for message in wire)) > self._credit
        ):
            await self._renew(need)  # it may find more subscriptions of one client, which raises the cost

    def spent(self, wire: Sequence[Message], results: Sequence[Any]) -> None:
        """Subtract published messages from the credit; `results` are the broker's answers."""
        if (below := self._limits.counted_below) is not None:
            self._uncounted += sum(self._cost(*message) for message in wire if len(message[1]) >= below)
        if self._most_copies == 1:
            self._credit -= self._bound(wire)
            return
        for (channel, payload), receivers in zip(wire, results, strict=True):
            if receivers is None:  # the broker does not report receivers
                copies = self._subscriptions
            else:  # one client has at most as many copies as there were receivers
                copies = max(min(receivers, self._subscriptions), 1) if isinstance(receivers, int) else 1
            self._copies[channel] = max(self._copies.get(channel, 1), copies)
            self._credit -= (len(payload) + OVERHEAD) * copies

    def release(self) -> None:
        """Stop waiting for a subscriber."""
        self.held_by, self.stalled_ns = None, 0

    def _waiting(self, backlog: Backlog) -> int:
        """Return the bytes that wait for the slowest subscriber, at most."""
        if not backlog.waiting:
            self._uncounted = 0
        return backlog.waiting + self._uncounted

    async def _renew(self, need: int) -> None:
        """Wait until the largest output buffer is small enough, and renew the credit."""
        allowed = self._hold_above if need <= self._most_credit else min(DRAINED, self._hold_above)
        since = read_at = time.monotonic_ns()
        pause = FIRST_LOOK
        backlog = await self._broker.backlog()
        last = backlog
        while backlog is not None and last is not None and self._waiting(backlog) > allowed:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LAST_LOOK)
            now = time.monotonic_ns()
            self.held_ns, since = self.held_ns + now - since, now
            if backlog.waiting < last.waiting or backlog.delivered != last.delivered:
                last, read_at = backlog, now
            self.held_by, self.stalled_ns = backlog.slowest, now - read_at
            self._holding()
            if self._max_hold is not None and self.stalled_ns > self._max_hold * 1e9:
                raise ReplayFailed(
                    f"the subscriber {backlog.slowest} has read nothing for {self._max_hold:g} s, with "
                    f"{self._waiting(backlog):,} bytes waiting for it. End it, or allow a longer time with --max-hold"
                )
            backlog = await self._broker.backlog()
        self.release()
        self._look(backlog)
        self._credit = max(self._most_credit, need)
