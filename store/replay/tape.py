"""Tape: the messages of a plan when they are due, in passes, and from the points of seeks on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from ..log.event import Cursor, Event
from .clock import Timeline
from .control import Sought, Target
from .coverage import Coverage
from .flow_control import Message
from .pipeline import Due, Pipeline
from .plan import Plan, prefetched

STATE_MESSAGES = 10  # of the state of a seek, published together


class Tape:
    """Source of a replay that nobody live takes part in. `loops` is the number of passes (0: no end)."""

    def __init__(self, plan: Plan, pipeline: Pipeline, loops: int, max_gap: int | None) -> None:
        self._plan = plan
        self._pipeline = pipeline
        self._report, self._control, self._clock = pipeline.report, pipeline.control, pipeline.clock
        self._loops = loops
        self._max_gap = max_gap  # ns
        self._coverage = Coverage()
        self._first_ts: int | None = None

    async def batches(self) -> AsyncGenerator[Due, None]:
        """Yield the messages of every pass, when they are due; at full speed, at once."""
        report = self._report
        while (report.planned or report.at_least) and (self._loops == 0 or report.loops < self._loops):
            if report.loops:
                await self._pipeline.guard.refuse_feedback(self._plan)  # a recorder may have started meanwhile
            async with aclosing(self._pass()) as batches:
                async for batch in batches:
                    yield batch
            report.loops += 1

    def publishing(self, batch: list[Event], wire: list[Message]) -> None:
        """Do nothing."""

    def published(self, batch: list[Event], dues: list[int] | None) -> None:
        """Count messages: those of a seek's state, and those that an earlier part of the pass has published."""
        if dues is None:
            self._report.state_messages += len(batch)
            return
        self._report.repeated += self._coverage.add(batch)
        if self._coverage.different > self._report.planned:
            self._note_planned(self._coverage.different)

    async def _pass(self) -> AsyncGenerator[Due, None]:
        """Yield every message of the plan once, unless `control` seeks: then continue from there."""
        self._coverage, seeks, control, report = Coverage(), self._report.seeks, self._control, self._report
        ended = False
        while not ended:
            target = control.take()
            try:
                with contextlib.suppress(Sought):
                    async with aclosing(self._part(target)) as batches:
                        async for batch in batches:
                            yield batch
                            control.check()
                    control.check()
                    ended = True
            finally:
                report.recorded_s += control.part_ns / 1e9
            self._pipeline.flow.release()
            self._coverage.jump()
        if report.at_least:  # the pass has come to every message, unless it sought
            self._note_planned(self._coverage.different if report.seeks == seeks else await self._plan.count())
            report.at_least = False
        if report.seeks > seeks:
            report.passed_over += report.planned - self._coverage.different

    async def _part(self, target: Target | None) -> AsyncGenerator[Due, None]:
        """Yield the messages of the plan from its beginning, or from the point of a seek on."""
        timeline = Timeline(self._max_gap)
        start: Cursor | None = None
        if target is not None:
            self._report.seeks += 1
            await self._pipeline.guard.refuse_feedback(self._plan)  # a recorder may have started
            if (start := target.cursor) is not None:
                messages = await self._plan.last_messages(start) if target.state else []
                self._control.grant(len(messages))
                for at in range(0, len(messages), STATE_MESSAGES):
                    yield messages[at : at + STATE_MESSAGES], None
                earliest = self._plan.first_ts if self._first_ts is None else self._first_ts
                self._move(max(start.ts, earliest), timeline)
        async with aclosing(prefetched(self._plan.pages(start=start))) as pages:
            async for page in pages:
                if not timeline.begun:
                    self._first_ts = page[0].ts
                    self._move(page[0].ts, timeline)
                async for batch in self._due(page, timeline):
                    yield batch

    async def _due(self, page: list[Event], timeline: Timeline) -> AsyncIterator[tuple[list[Event], list[int]]]:
        """Yield messages that are due together, with their due times, when they are due; at full speed, all at once."""
        together = self._pipeline.together
        batch: list[Event] = []
        dues: list[int] = []
        at = 0
        while at < len(page):
            paced = self._report.requested_speed is not None
            if not paced and self._max_gap is None and not batch:
                at_once = page[at : at + together]
                timeline.due(at_once[-1].ts)
                yield at_once, []
                at += len(at_once)
                continue
            entry = page[at]
            due = timeline.due(entry.ts)
            early = paced and self._clock.overdue(due) < 0
            if batch and (early or len(batch) >= together):
                yield batch, dues
                batch, dues = [], []
            if early:
                await self._pipeline.waits.until_due(due)
            batch.append(entry)
            dues.append(due)
            at += 1
        if batch:
            yield batch, dues

    def _move(self, ts: int, timeline: Timeline) -> None:
        """Set the clock to the recorded time at which a part of a pass begins."""
        self._control.moved(timeline.due(ts), timeline)
        self._pipeline.tell()

    def _note_planned(self, planned: int) -> None:
        self._report.planned, self._report.skipped = planned, self._plan.events - planned
