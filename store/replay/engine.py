"""Replay: publish the messages of a stored experiment again, in replay order.

The order of this module is the order of a replay: plan, refusals, subscribers, passes over the pages, due times,
publishing, report. The messages are selected in `plan`, harmful replays are refused in `guard`, and all waits are in
`waiting`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Literal, Unpack

from messager.brokers import Broker, kind_of
from messager.errors import MessagerError

from ..errors import ReplayFailed, ReplayRefused, StoreError
from ..experiments.records import Experiment
from ..log.channel_map import ChannelMap
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.messages import ON_THE_WIRE
from ..log.selection import Filters, Selection, selection_of
from .carriers import publish_as
from .clock import Rate, ReplayClock, Timeline, checked_rate, checked_speed
from .control import Control, Sought, Target
from .coverage import Coverage
from .flow_control import FlowControl, Message
from .guard import Guard
from .plan import Plan, make_plan, prefetched
from .report import ReplayReport
from .state import ReplayState
from .waiting import Waits

BATCH_MESSAGES = 500
STATE_MESSAGES = 10  # of the state of a seek, published together

Progress = Callable[[ReplayReport], None]


class Replay:
    """Publishes the messages of an experiment again, through `broker`, in the order `(ts, recorder, seq)`.

    Which events count as messages is defined in `messager_store.log.messages`. Messages on channels on which a server
    publishes by itself (see `BrokerKind.is_internal`) are left out and counted.

    Selection: `channels` and `exclude` are glob patterns on the recorded channels, `agents` are ids of senders or
    recipients, `from_ids` of senders, `to_ids` of recipients, `kinds` are kinds of event; `since` (included) and
    `until` (excluded) are points as in `messager_store.log.cursor`.

    Channels: `mapping` and `to_exp` rename channels (see `ChannelMap`). If the kind of broker differs from the recorded
    one, `exps:...` becomes `exps/...` and vice versa, unless `keep_names`.

    Pace: `speed` is in recorded seconds per second, or "max": as fast as the slowest subscriber reads. `rate` is the
    maximum number of messages per second, at any speed; "max" requires it if the broker does not report what its
    subscribers have not read yet. `max_gap` shortens silences to this many seconds. `loops` is the number of passes
    (0: until cancelled). `clock` is the replay clock.

    Waits: `wait_for_subscribers` is the number of clients that must be subscribed to a channel of the replay before it
    begins (on Redis, clients with any pattern count, as Redis does not list patterns); after `wait_timeout` seconds the
    replay fails. `max_hold` is the number of seconds that a subscriber may read nothing before the replay fails (None:
    no limit).

    Refusals: a payload for which the broker would disconnect its subscribers, unless `force`; channels that a live
    recorder records into this experiment, unless `into_live` (see `guard`).

    Messages that the broker refuses are counted and named in the report. `dry_run` publishes nothing and names the
    messages that are certain to be refused. `progress` is called with the report whenever it changes.
    """

    def __init__(
        self,
        log: EventLog,
        exp_id: str | Experiment,
        broker: Broker,
        *,
        speed: float | Literal["max"] = 1.0,
        rate: float | None = None,
        max_hold: float | None = None,
        selection: Selection | None = None,
        mapping: Mapping[str, str] | None = None,
        to_exp: str | None = None,
        keep_names: bool = False,
        max_gap: float | None = None,
        loops: int = 1,
        wait_for_subscribers: int = 0,
        wait_timeout: float = 60.0,
        dry_run: bool = False,
        force: bool = False,
        into_live: bool = False,
        progress: Progress | None = None,
        clock: ReplayClock | None = None,
        **filters: Unpack[Filters],
    ) -> None:
        chosen = selection_of(selection, filters)
        paced = checked_speed(speed)
        most = None if rate is None else checked_rate(rate)
        if max_hold is not None and not max_hold > 0:
            raise StoreError(f"{max_hold!r} is not a time to hold back: give seconds, more than zero")
        if max_gap is not None and not 0 <= max_gap < math.inf:
            raise StoreError(f"{max_gap!r} is not a gap: give seconds, zero or more")
        if chosen.after is not None or chosen.limit is not None or chosen.last_per or chosen.context:
            raise StoreError(
                "a replay publishes every message of its range: leave out after, limit, last_per and context"
            )
        if loops < 0:
            raise StoreError(f"{loops!r} is not a number of loops: give 1 or more, or 0 for no end")
        if wait_for_subscribers and not kind_of(broker.url).reports_subscribers:
            raise StoreError(
                f"an {kind_of(broker.url).name} broker does not report its subscribers, so a replay cannot wait for "
                "them: start the subscribers first, and replay without --wait-for-subscribers"
            )
        self._log = log
        self._experiment = exp_id
        self._broker = broker
        self._selection = chosen
        if self._selection.kinds and not self._selection.kinds <= ON_THE_WIRE:
            raise StoreError("gaps and marks were never on the wire: they cannot be replayed")
        self._map = ChannelMap(mapping, to_exp)
        self._keep_names = keep_names
        self._max_gap = None if max_gap is None else int(max_gap * 1e9)
        self._loops = loops
        self._subscribers, self._wait_timeout = wait_for_subscribers, wait_timeout
        self._progress = progress or (lambda report: None)
        self._plan: Plan | None = None
        self.clock = clock or ReplayClock(speed)
        """Clock of the replay; `control` pauses it, moves it and changes its speed while the replay runs."""
        self.report = self._new_report(paced, dry_run, most)
        """Result so far."""
        limit = None if most is None else Rate(most, self.clock)
        self._together = BATCH_MESSAGES if limit is None else min(BATCH_MESSAGES, limit.together)
        self._flow = FlowControl(broker, max_hold=max_hold, holding=self._hold)
        self._guard = Guard(broker, self._flow, self.report, force, into_live)
        self.control = Control(self.clock, self.report, self._guard)
        """Pause, resume, step, next, seek and speed of the running replay."""
        self._waits = Waits(self.clock, limit, self._flow, self.control, self._enter)
        self._coverage = Coverage()
        self._first_ts: int | None = None
        self._started = 0

    def _new_report(self, speed: float | None, dry_run: bool, rate: float | None) -> ReplayReport:
        return ReplayReport("", speed, dry_run, rate)

    async def run(self) -> ReplayReport:
        """Replay and return the report.

        Raises `ExperimentNotFound`, `BadCursor`, `ReplayRefused` if the replay would do harm and nothing was
        published, and `ReplayFailed` if the broker is unreachable or the replay cannot continue. After an error,
        `report` holds what was done.
        """
        try:
            plan = await self._planned()
            await self._guard.refuse_feedback(plan)
            return await self._run(plan)
        finally:
            self.control.end()

    async def _run(self, plan: Plan) -> ReplayReport:
        if self.report.dry_run:
            with contextlib.suppress(MessagerError):  # a dry run needs no broker, but applies its limits if reachable
                await self._flow.begin()
                await self._guard.refuse_oversized(plan)
            self._enter(ReplayState.FINISHED)
            return self.report
        try:
            await self._broker.connect()
            await self._flow.begin()
            await self._guard.refuse_oversized(plan)
            self._guard.refuse_unsafe()
            await self._wait_for_subscribers(plan)
            self.clock.begin()
            self.control.begin(plan)
            self._enter(ReplayState.PUBLISHING)
            self._tell()
            await self._publish_all(plan)
            self._enter(ReplayState.FINISHED)
        except (MessagerError, ReplayRefused) as error:
            if isinstance(error, ReplayRefused) and not self.report.published:
                raise
            raise ReplayFailed(f"{error}; {self.report.published} messages were published") from error
        finally:
            if self.report.state is not ReplayState.FINISHED:
                self._enter(ReplayState.STOPPED)
            self._tell()
            self.control.end()
        return self.report

    async def _planned(self) -> Plan:
        """Make the plan once, and put its figures into the report."""
        if self._plan is None:
            self._plan = await self._make_plan()
        return self._plan

    async def _make_plan(self) -> Plan:
        found = self._experiment
        of = found if isinstance(found, Experiment) else await self._log.experiment(found)
        report = self.report
        report.exp_id = of.exp_id
        plan = await make_plan(
            self._log,
            of,
            self._selection,
            channel_map=self._map,
            broker_url=self._broker.url,
            keep_names=self._keep_names,
        )
        report.internal = plan.internal
        if report.dry_run:
            async for channel, entry, fault in plan.preview(kind_of(self._broker.url)):
                report.planned += 1
                report.channels[channel] = report.channels.get(channel, 0) + 1
                if fault is not None:
                    report.count_failure(channel, entry.cursor, "refused", fault)
        else:
            report.planned, report.at_least = await plan.certain_count(), plan.rule.reads
        report.skipped = plan.events - report.planned
        return plan

    async def _wait_for_subscribers(self, plan: Plan) -> None:
        if not self._subscribers or not (self.report.planned or self.report.at_least):
            return
        wanted, url = await plan.published_channels(), self._broker.url

        async def count() -> int:
            subscribed = await self._broker.subscriber_count(wanted)
            if subscribed is None:
                raise ReplayFailed(
                    f"{url} does not report its subscribers{self._guard.refusal}: replay without waiting"
                )
            return subscribed

        await self._waits.for_subscribers(self._subscribers, self._wait_timeout, count, url)

    async def _publish_all(self, plan: Plan) -> None:
        """Publish the messages of the plan in as many passes as `loops` says."""
        while (self.report.planned or self.report.at_least) and (self._loops == 0 or self.report.loops < self._loops):
            if self.report.loops:
                await self._guard.refuse_feedback(plan)  # a recorder may have started during the last pass
            await self._pass(plan)
            self.report.loops += 1

    async def _pass(self, plan: Plan) -> None:
        """Publish every message of the plan once, unless `control` seeks: then continue from there."""
        self._coverage, seeks, ended = Coverage(), self.report.seeks, False
        while not ended:
            target = self.control.take()
            try:
                with contextlib.suppress(Sought):
                    await self._part(plan, target)
                    self.control.check()
                    ended = True
            finally:
                self.report.recorded_s += self.control.part_ns / 1e9
            self._flow.release()
            self._coverage.jump()
        if self.report.at_least:  # the pass has come to every message, unless it sought
            self._note(self._coverage.different if self.report.seeks == seeks else await plan.count(), plan)
            self.report.at_least = False
        if self.report.seeks > seeks:
            self.report.passed_over += self.report.planned - self._coverage.different

    async def _part(self, plan: Plan, target: Target | None) -> None:
        """Publish the messages of the plan from its beginning, or from the point of a seek on."""
        timeline = Timeline(self._max_gap)
        start = None if target is None else await self._sought(plan, target, timeline)
        async with aclosing(prefetched(plan.pages(start=start))) as pages:
            async for page in pages:
                if not timeline.begun:
                    self._first_ts = page[0].ts
                    self._move(page[0].ts, timeline)
                self._started = self._started or time.monotonic_ns()
                async for batch, dues in self._due_batches(page, timeline):
                    await self._publish(plan, batch, dues)

    async def _sought(self, plan: Plan, target: Target, timeline: Timeline) -> Cursor | None:
        """Carry out a seek, up to setting the clock; return the point to read from."""
        self.report.seeks += 1
        await self._guard.refuse_feedback(plan)  # a recorder may have started
        if target.cursor is None:
            return None
        if target.state:
            messages = await plan.last_messages(target.cursor)
            self.control.grant(len(messages))
            for at in range(0, len(messages), STATE_MESSAGES):
                await self._publish(plan, messages[at : at + STATE_MESSAGES], None)
        earliest = plan.first_ts if self._first_ts is None else self._first_ts
        self._move(max(target.cursor.ts, earliest), timeline)
        return target.cursor

    def _note(self, planned: int, plan: Plan) -> None:
        self.report.planned, self.report.skipped = planned, plan.events - planned

    def _move(self, ts: int, timeline: Timeline) -> None:
        """Set the clock to the recorded time at which a part of a pass begins."""
        self.control.moved(timeline.due(ts), timeline)
        self._tell()

    async def _due_batches(self, page: list[Event], timeline: Timeline) -> AsyncIterator[tuple[list[Event], list[int]]]:
        """Yield messages that are due together, with their due times, when they are due; at full speed, all at once."""
        batch: list[Event] = []
        dues: list[int] = []
        at = 0
        while at < len(page):
            paced = self.report.requested_speed is not None
            if not paced and self._max_gap is None and not batch:
                together = page[at : at + self._together]
                timeline.due(together[-1].ts)
                yield together, []
                at += len(together)
                continue
            entry = page[at]
            due = timeline.due(entry.ts)
            early = paced and self.clock.overdue(due) < 0
            if batch and (early or len(batch) >= self._together):
                yield batch, dues
                batch, dues = [], []
            if early:
                await self._waits.until_due(due)
            batch.append(entry)
            dues.append(due)
            at += 1
        if batch:
            yield batch, dues

    async def _publish(self, plan: Plan, batch: list[Event], dues: list[int] | None) -> None:
        """Publish messages in parts that are permitted; `dues` is empty if they are due at once, None for a state."""
        wire = [plan.message(entry) for entry in batch]
        begin = 0
        while begin < len(wire):
            end = min(self._flow.together(wire, begin), begin + self._together)
            end = begin + await self._waits.until_publishable(batch[begin:end], wire[begin:end], timed=dues is not None)
            await self._publish_part(plan, batch[begin:end], wire[begin:end], dues and dues[begin:end])
            begin = end

    async def _publish_part(self, plan: Plan, batch: list[Event], wire: list[Message], dues: list[int] | None) -> None:
        self._guard.refuse_unsafe(batch, wire)  # after the wait, which may have found more subscriptions of a client
        report = self.report
        if report.requested_speed is not None and not self.clock.paused:
            for due in dues or ():
                report.lag.add(self.clock.overdue(due))
        results = await publish_as(self._broker, batch, wire, [plan.delivery_meta(entry) for entry in batch])
        self._flow.spent(wire, results)
        lost = report.count(batch, wire, results)
        if lost is not None:
            unknown = f"; the outcome of {report.unknown} is unknown" if report.unknown else ""
            raise ReplayFailed(
                f"{lost[1]}; {report.published} messages were published, up to {lost[0].cursor}{unknown}"
            )
        if dues is None:
            report.state_messages += len(batch)
            self.control.published(batch, None)
        else:
            report.repeated += self._coverage.add(batch)
            if self._coverage.different > report.planned:
                self._note(self._coverage.different, plan)
            self.control.published(batch, dues[-1] if dues else batch[-1].ts)
        self._tell()

    def _enter(self, state: ReplayState) -> None:
        self.report.state = state

    def _hold(self) -> None:
        """Tell about a slow subscriber. Raises `Sought`."""
        self._tell()
        self.control.check()

    def _tell(self) -> None:
        """Update the report and call `progress`."""
        if self._started:
            self.report.duration_s = (time.monotonic_ns() - self._started) / 1e9
        self.report.held_back_s = self._flow.held_ns / 1e9
        self.report.held_by, self.report.stalled_s = self._flow.held_by, self._flow.stalled_ns / 1e9
        self.report.flow_control = self._flow.active
        self._progress(self.report)
