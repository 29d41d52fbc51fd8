"""Waiting: all points where a replay waits.

| wait for          | until                                                      | method                |
|-------------------|------------------------------------------------------------|-----------------------|
| subscribers       | enough clients are subscribed                              | `for_subscribers`     |
| due time          | the next message is due by the clock, which is not paused  | `until_due`           |
| backpressure      | the slowest subscriber has read enough (`flow_control`)    | `until_publishable`   |
| rate limit        | the rate allows the messages                               | `until_publishable`   |
| pause             | the replay is not paused, or a step is to be made          | `until_publishable`   |

A seek ends the waits for due time, backpressure and pause with `control.Sought`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from ..errors import ReplayFailed
from ..log.event import Event
from .clock import Rate, ReplayClock
from .control import Control
from .flow_control import FlowControl, Message
from .state import ReplayState

SUBSCRIBER_POLL_S = 0.02
CAREFUL_RATE = 500.0
"""Messages per second without due times, if neither flow control nor a rate limits them."""


class Waits:
    """All waits of one replay. `enter` is called with the state of each wait, and with PUBLISHING after it."""

    def __init__(
        self,
        clock: ReplayClock,
        rate: Rate | None,
        flow: FlowControl,
        control: Control,
        enter: Callable[[ReplayState], None],
    ) -> None:
        self._clock = clock
        self._rate = rate
        self._careful = Rate(CAREFUL_RATE, clock)
        self._flow = flow
        self._control = control
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
        """Wait until a recorded time (ns UTC) is due, or a step is to be made. Raises `Sought`."""
        self._enter(ReplayState.DUE)
        await self._clock.wait_until(due, unless=self._control.interrupts)
        self._control.check()
        self._enter(ReplayState.PUBLISHING)

    async def until_publishable(self, batch: Sequence[Event], wire: Sequence[Message], *, timed: bool) -> int:
        """Wait until messages may be published: backpressure, rate limit, pause. Return how many may, from the first.

        `timed` is False for messages that nothing but flow control and the rate may delay. Raises `ReplayFailed` and
        `Sought`.
        """
        self._enter(ReplayState.BACKPRESSURE)
        await self._flow.spend(wire)
        rate = self._rate
        if rate is None and not self._flow.active and (not timed or self._control.stepping):
            rate = self._careful
        if rate is not None:
            self._enter(ReplayState.RATE)
            await rate.take(len(wire))
        if self._control.paused:
            self._enter(ReplayState.DUE)
        permitted = await self._control.permit(batch)
        self._enter(ReplayState.PUBLISHING)
        return permitted
