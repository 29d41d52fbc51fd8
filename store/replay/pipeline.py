"""Pipeline: the one loop through which every replay publishes.

    source ──> waits: backpressure, rate, pause ──> guard ──> broker ──> report, control, source

A source yields the messages that are to be published next: a `Tape` those of a log when they are due, a `Lockstep`
those between the messages of its live agents, for a replay as for a fork.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Protocol

from messager.brokers import Broker

from ..errors import ReplayFailed
from ..log.event import Event
from .clock import Rate, ReplayClock
from .control import Control, Sought
from .flow_control import FlowControl, Message
from .guard import REMEDY, Guard
from .plan import Plan
from .report import ReplayReport
from .settings import ReplaySettings
from .state import ReplayState
from .waiting import Waits

BATCH_MESSAGES = 500
"""Maximum number of messages that are published together."""

Due = tuple[list[Event], list[int] | None]
"""Messages that are published together, and their due times (ns UTC): none if they are due at once, None for messages
of a seek's state, which count for no position."""


class Source(Protocol):
    """Messages of a replay, in the order in which they are published."""

    def batches(self) -> AsyncGenerator[Due, None]:
        """Yield the next messages when they are due. After a seek, the rest of a batch is not published."""

    def publishing(self, batch: list[Event], wire: list[Message]) -> None:
        """Note messages that are about to be published."""

    def published(self, batch: list[Event], dues: list[int] | None) -> None:
        """Note messages that were published, or refused by the broker."""


class Pipeline:
    """Publishes the messages of a source. `progress` is called whenever the report changes. `fixed_order` and `live`
    are as in `Control`.

    `unlimited` permits full speed at a broker that does not report what its subscribers have not read: live agents
    set the pace. `remedy` is what to do about a payload that is too large.
    """

    def __init__(
        self,
        broker: Broker,
        report: ReplayReport,
        settings: ReplaySettings,
        clock: ReplayClock,
        progress: Callable[[ReplayReport], None] = lambda report: None,
        *,
        fixed_order: str | None = None,
        live: Callable[[], dict[str, Any] | None] = lambda: None,
        unlimited: bool = False,
        remedy: str = REMEDY,
    ) -> None:
        self.report = report
        self.clock = clock
        rate = None if settings.requested_rate is None else Rate(settings.requested_rate, clock)
        self.together = BATCH_MESSAGES if rate is None else min(BATCH_MESSAGES, rate.together)
        """Maximum number of messages that are published together."""
        self.flow = FlowControl(broker, max_hold=settings.max_hold, holding=self._hold)
        self.guard = Guard(broker, self.flow, report, settings.force, settings.into_live, unlimited, remedy)
        self.control = Control(clock, report, self.guard, fixed_order, live)
        self.waits = Waits(clock, rate, self.flow, self.control, self.enter)
        self._broker = broker
        self._progress = progress
        self._started: int | None = None

    async def run(self, source: Source, plan: Plan) -> None:
        """Publish what the source yields, on the channels and with the options of the plan.

        Raises `ReplayFailed`, `ReplayRefused`, and the errors of the source.
        """
        self._started = time.monotonic_ns()  # here, as live agents may leave nothing to be published
        async with aclosing(source.batches()) as batches:
            async for batch, dues in batches:
                with contextlib.suppress(Sought):
                    await self._publish(source, plan, batch, dues)

    async def _publish(self, source: Source, plan: Plan, batch: list[Event], dues: list[int] | None) -> None:
        """Publish messages in parts that are permitted. Raises `Sought`."""
        wire = [plan.message(entry) for entry in batch]
        begin = 0
        while begin < len(wire):
            end = min(self.flow.together(wire, begin), begin + self.together)
            end = begin + await self.waits.until_publishable(batch[begin:end], wire[begin:end], timed=dues is not None)
            await self._publish_part(source, plan, batch[begin:end], wire[begin:end], dues and dues[begin:end])
            begin = end

    async def _publish_part(
        self, source: Source, plan: Plan, batch: list[Event], wire: list[Message], dues: list[int] | None
    ) -> None:
        self.guard.refuse_unsafe(batch, wire)  # after the wait, which may have found more subscriptions of a client
        report = self.report
        if report.requested_speed is not None and not self.clock.paused:
            for due in dues or ():
                report.lag.add(self.clock.overdue(due))
        source.publishing(batch, wire)
        how, carriers = [plan.delivery_meta(entry) for entry in batch], [entry.carrier for entry in batch]
        results = await self._broker.publish_carried(wire, how, carriers)
        self.flow.spent(wire, results)
        lost = report.count(batch, wire, results)
        if lost is not None:
            unknown = f"; the outcome of {report.unknown} is unknown" if report.unknown else ""
            raise ReplayFailed(
                f"{lost[1]}; {report.published} messages were published, up to {lost[0].cursor}{unknown}"
            )
        source.published(batch, dues)
        self.control.published(batch, None if dues is None else dues[-1] if dues else batch[-1].ts)
        self.tell()

    def enter(self, state: ReplayState) -> None:
        """Enter a state."""
        self.report.state = state

    def tell(self) -> None:
        """Update the report and call `progress`."""
        if self._started is not None:
            self.report.duration_s = (time.monotonic_ns() - self._started) / 1e9
        self.report.held_back_s = self.flow.held_ns / 1e9
        self.report.held_by, self.report.stalled_s = self.flow.held_by, self.flow.stalled_ns / 1e9
        self.report.flow_control = self.flow.active
        self._progress(self.report)

    def _hold(self) -> None:
        """Tell about a slow subscriber. Raises `Sought`."""
        self.tell()
        self.control.check()
