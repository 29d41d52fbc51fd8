"""Replay: publish the messages of a stored experiment again, in replay order.

The order of this module is the order of a replay: plan, refusals, subscribers, passes over the pages, due times,
publishing, report. The messages are selected in `plan`, harmful replays are refused in `guard`, and all waits are in
`waiting`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal

from messager import channels as grammar
from messager.brokers import Broker, Retaining, kind_of
from messager.errors import MessagerError

from ..errors import ReplayFailed, ReplayRefused, StoreError
from ..experiments.records import Experiment
from ..log.channel_map import ChannelMap
from ..log.cursor import Point
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.messages import ON_THE_WIRE
from ..log.selection import Selection
from .clock import Rate, ReplayClock, Timeline
from .flow_control import FlowControl, Message
from .guard import Guard
from .plan import Plan, make_plan
from .report import ReplayReport
from .waiting import ReplayState, Waits

BATCH_MESSAGES = 500

Progress = Callable[[ReplayReport], None]


def checked_speed(speed: float | str) -> float | None:
    """Return a speed as a positive number, or None for "max". Raises `StoreError`."""
    value = math.inf if speed == "max" else _number(speed)
    if not value > 0:
        raise StoreError(f"{speed!r} is not a speed: give a number above zero (10 is ten times as fast), or max")
    return None if value == math.inf else value


def checked_rate(rate: float | str) -> float:
    """Return a rate as messages per second. Raises `StoreError`."""
    value = _number(rate)
    if not 0 < value < math.inf:
        raise StoreError(f"{rate!r} is not a rate: give messages per second, a number above zero")
    return value


def _number(given: float | str) -> float:
    try:
        return float(given)
    except ValueError:
        return math.nan


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
        channels: Iterable[str] | str | None = None,
        exclude: Iterable[str] | str | None = None,
        agents: Iterable[Any] | int | str | None = None,
        from_ids: Iterable[Any] | int | str | None = None,
        to_ids: Iterable[Any] | int | str | None = None,
        kinds: Iterable[str] | str | None = None,
        since: Point = None,
        until: Point = None,
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
    ) -> None:
        paced = checked_speed(speed)
        most = None if rate is None else checked_rate(rate)
        if max_hold is not None and not max_hold > 0:
            raise StoreError(f"{max_hold!r} is not a time to hold back: give seconds, more than zero")
        if max_gap is not None and not max_gap >= 0:
            raise StoreError(f"{max_gap!r} is not a gap: give seconds, zero or more")
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
        self._selection = Selection(kinds, channels, exclude, agents, from_ids, to_ids)
        if self._selection.kinds and not self._selection.kinds <= ON_THE_WIRE:
            raise StoreError("gaps and marks were never on the wire: they cannot be replayed")
        self._since, self._until = since, until
        self._map = ChannelMap(mapping, to_exp)
        self._keep_names = keep_names
        self._max_gap = None if max_gap is None else int(max_gap * 1e9)
        self._loops = loops
        self._subscribers, self._wait_timeout = wait_for_subscribers, wait_timeout
        self._progress = progress or (lambda report: None)
        self.clock = clock or ReplayClock(paced or 1.0)
        """Clock of the replay; it can be paused, resumed and changed in speed while the replay runs."""
        self.report = ReplayReport("", paced, dry_run, most)
        """Result so far."""
        limit = None if most is None else Rate(most, self.clock)
        self._together = BATCH_MESSAGES if limit is None else min(BATCH_MESSAGES, limit.together)
        self._flow = FlowControl(broker, max_hold=max_hold, holding=self._tell)
        self._waits = Waits(self.clock, limit, self._flow, self._enter)
        self._guard = Guard(broker, self._flow, paced is not None or most is not None, force, into_live)
        self._started = 0

    async def run(self) -> ReplayReport:
        """Replay and return the report.

        Raises `ExperimentNotFound`, `BadCursor`, `ReplayRefused` if the replay would do harm and nothing was
        published, and `ReplayFailed` if the broker is unreachable or the replay cannot continue. After an error,
        `report` holds what was done.
        """
        plan = await self._planned()
        await self._guard.refuse_feedback(plan)
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
            self._tell()
            while self.report.planned and (self._loops == 0 or self.report.loops < self._loops):
                if self.report.loops:
                    await self._guard.refuse_feedback(plan)  # a recorder may have started during the last pass
                await self._pass(plan)
                self.report.loops += 1
            self._enter(ReplayState.FINISHED)
        except (MessagerError, ReplayRefused) as error:
            if isinstance(error, ReplayRefused) and not self.report.published:
                raise
            raise ReplayFailed(f"{error}; {self.report.published} messages were published") from error
        finally:
            if self.report.state is not ReplayState.FINISHED:
                self._enter(ReplayState.STOPPED)
            self._tell()
        return self.report

    async def _planned(self) -> Plan:
        """Make the plan and put its figures into the report."""
        found = self._experiment
        of = found if isinstance(found, Experiment) else await self._log.experiment(found)
        report = self.report
        report.exp_id = of.exp_id
        plan = await make_plan(
            self._log,
            of,
            self._selection,
            since=self._since,
            until=self._until,
            channel_map=self._map,
            broker_url=self._broker.url,
            keep_names=self._keep_names,
        )
        report.internal = plan.internal
        if report.dry_run:
            await self._preview(plan)
        else:
            report.planned = await plan.count()
        report.skipped = plan.events - report.planned
        if plan.complete:
            report.unrecorded_senders = plan.sources.unrecorded_senders
        return plan

    async def _preview(self, plan: Plan) -> None:
        """Count the messages of a dry run by channel, and those that are certain to be refused."""
        kind = kind_of(self._broker.url)
        async for page in plan.pages():
            self.report.planned += len(page)
            for entry in page:
                wire, payload = plan.message(entry)
                channel = grammar.decode(wire)
                self.report.channels[channel] = self.report.channels.get(channel, 0) + 1
                fault = kind.publish_fault(wire, len(payload))
                if fault is not None:
                    self.report.count_failure(channel, entry.cursor, "refused", fault)

    async def _wait_for_subscribers(self, plan: Plan) -> None:
        if not self._subscribers or not self.report.planned:
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

    async def _pass(self, plan: Plan) -> None:
        """Publish every message of the plan once."""
        timeline = Timeline(self._max_gap)
        async with aclosing(_prefetched(plan.pages())) as pages:
            async for page in pages:
                if not timeline.begun:
                    self.clock.seek(page[0].ts)
                    self._started = self._started or time.monotonic_ns()
                async for batch, dues in self._due_batches(page, timeline):
                    await self._publish(plan, batch, dues)
        self.report.recorded_s += timeline.length / 1e9

    async def _due_batches(self, page: list[Event], timeline: Timeline) -> AsyncIterator[tuple[list[Event], list[int]]]:
        """Yield messages that are due together, with their due times, when they are due; at full speed, all at once."""
        paced = self.report.requested_speed is not None
        if not paced and self._max_gap is None:
            timeline.due(page[0].ts)
            timeline.due(page[-1].ts)
            for at in range(0, len(page), self._together):
                yield page[at : at + self._together], []
            return
        batch: list[Event] = []
        dues: list[int] = []
        for entry in page:
            due = timeline.due(entry.ts)
            early = paced and self.clock.overdue(due) < 0
            if early or len(batch) >= self._together:
                yield batch, dues
                batch, dues = [], []
            if early:
                await self._waits.until_due(due)
            batch.append(entry)
            dues.append(due)
        yield batch, dues

    async def _publish(self, plan: Plan, batch: list[Event], dues: list[int]) -> None:
        """Publish messages in parts that the subscribers can take."""
        wire = [plan.message(entry) for entry in batch]
        begin = 0
        while begin < len(wire):
            end = self._flow.together(wire, begin)
            await self._publish_part(plan, batch[begin:end], wire[begin:end], dues[begin:end])
            begin = end

    async def _publish_part(self, plan: Plan, batch: list[Event], wire: list[Message], dues: list[int]) -> None:
        await self._waits.until_publishable(wire)
        self._guard.refuse_unsafe(batch, wire)  # after the wait, which may have found more subscriptions of a client
        report = self.report
        if report.requested_speed is not None:
            for due in dues:
                report.lag.add(self.clock.overdue(due))
        results: Sequence[Any]
        if isinstance(self._broker, Retaining):
            results = await self._broker.publish_as(wire, [plan.delivery_meta(entry) for entry in batch])
        else:
            results = await self._broker.publish(wire)
        self._flow.spent(wire, results)
        lost = report.count(batch, wire, results)
        if lost is not None:
            unknown = f"; the outcome of {report.unknown} is unknown" if report.unknown else ""
            raise ReplayFailed(
                f"{lost[1]}; {report.published} messages were published, up to {lost[0].cursor}{unknown}"
            )
        self._tell()

    def _enter(self, state: ReplayState) -> None:
        self.report.state = state

    def _tell(self) -> None:
        """Update the report and call `progress`."""
        if self._started:
            self.report.duration_s = (time.monotonic_ns() - self._started) / 1e9
        self.report.held_back_s = self._flow.held_ns / 1e9
        self.report.held_by, self.report.stalled_s = self._flow.held_by, self._flow.stalled_ns / 1e9
        self.report.flow_control = self._flow.active
        self._progress(self.report)


async def _prefetched(pages: AsyncIterator[list[Event]]) -> AsyncGenerator[list[Event], None]:
    """Yield the pages; each is read while the previous one is used."""

    async def fetch() -> list[Event] | None:
        return await anext(pages, None)

    task = asyncio.create_task(fetch())
    try:
        while (page := await task) is not None:
            task = asyncio.create_task(fetch())
            yield page
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
