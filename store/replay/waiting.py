"""Waiting: all points where a replay waits, and the state of a replay.

| wait for          | until                                                      | method                |
|-------------------|------------------------------------------------------------|-----------------------|
| subscribers       | enough clients are subscribed                              | `for_subscribers`     |
| due time          | the next message is due by the clock, which is not paused  | `until_due`           |
| backpressure      | the slowest subscriber has read enough (`flow_control`)    | `until_publishable`   |
| rate limit        | the rate allows the messages                               | `until_publishable`   |
| pause             | the clock is not paused, at any speed                      | `until_publishable`   |
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum

from ..errors import ReplayFailed
from .clock import Rate, ReplayClock
from .flow_control import FlowControl, Message

SUBSCRIBER_POLL_S = 0.02


class ReplayState(Enum):
    """State of a replay.

        PLANNING ──> SUBSCRIBERS ──> PUBLISHING ──> FINISHED
                                       │   ^
                                       v   │
                             DUE, BACKPRESSURE, RATE

    An error or a cancellation in any state leads to STOPPED. While the clock is paused, the state is DUE.
    """

    PLANNING = "planning"
    SUBSCRIBERS = "waiting for subscribers"
    PUBLISHING = "publishing"
    DUE = "waiting for the next due time"
    BACKPRESSURE = "waiting for a slow subscriber"
    RATE = "waiting for the rate limit"
    FINISHED = "finished"
    STOPPED = "stopped"


class Waits:
    """All waits of one replay. `enter` is called with the state of each wait, and with PUBLISHING after it."""

    def __init__(
        self, clock: ReplayClock, rate: Rate | None, flow: FlowControl, enter: Callable[[ReplayState], None]
    ) -> None:
        self._clock = clock
        self._rate = rate
        self._flow = flow
        self._enter = enter

    async def for_subscribers(
        self, wanted: int, timeout_s: float, count: Callable[[], Awaitable[int]], broker_url: str
    ) -> None:
        """Wait until `count` returns at least `wanted`. Raises `ReplayFailed` after the timeout."""
        self._enter(ReplayState.SUBSCRIBERS)
        deadline = time.monotonic() + timeout_s
        while (subscribed := await count()) < wanted:
            if time.monotonic() > deadline:
                raise ReplayFailed(f"only {subscribed} of {wanted} subscribers at {broker_url} after {timeout_s:g} s")
            await asyncio.sleep(SUBSCRIBER_POLL_S)
        self._enter(ReplayState.PUBLISHING)

    async def until_due(self, due: int) -> None:
        """Wait until a recorded time (ns UTC) is due."""
        self._enter(ReplayState.DUE)
        await self._clock.wait_until(due)
        self._enter(ReplayState.PUBLISHING)

    async def until_publishable(self, wire: Sequence[Message]) -> None:
        """Wait until messages may be published: backpressure, rate limit, pause. Raises `ReplayFailed`."""
        self._enter(ReplayState.BACKPRESSURE)
        await self._flow.spend(wire)
        if self._rate is not None:
            self._enter(ReplayState.RATE)
            await self._rate.take(len(wire))
        if self._clock.paused:
            self._enter(ReplayState.DUE)
            await self._clock.while_paused()
        self._enter(ReplayState.PUBLISHING)
