"""Replay: publish the messages of a stored experiment again, in replay order.

The order of this module is the order of a replay: plan, refusals, subscribers, publishing, report. The messages are
selected in `plan`, yielded when they are due by `tape`, published by `pipeline`; harmful replays are refused in
`guard`, and all waits are in `waiting`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Unpack

from messager.brokers import Broker, BrokerKind, kind_of
from messager.errors import MessagerError

from ..errors import ReplayFailed, ReplayRefused, StoreError
from ..experiments.records import Experiment
from ..log.channel_map import ChannelMap
from ..log.event_log import EventLog
from ..log.messages import ON_THE_WIRE
from ..log.selection import Filters, Selection, selection_of
from .clock import ReplayClock
from .control import Control
from .pipeline import Pipeline
from .plan import Plan, make_plan
from .report import ReplayReport
from .settings import ReplayOptions, ReplaySettings
from .state import ReplayState
from .tape import Tape

Progress = Callable[[ReplayReport], None]


class _Options(ReplayOptions, Filters, total=False):
    """Settings and filters."""


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

    FIXED_ORDER: str | None = None
    """The reason for which seek and speed are refused, or None."""

    def __init__(
        self,
        log: EventLog,
        exp_id: str | Experiment,
        broker: Broker,
        *,
        selection: Selection | None = None,
        progress: Progress = lambda report: None,
        clock: ReplayClock | None = None,
        **options: Unpack[_Options],
    ) -> None:
        given = {name: value for name, value in options.items() if name in ReplayOptions.__annotations__}
        filters = {name: value for name, value in options.items() if name not in given}
        self.settings = ReplaySettings(**given)  # type: ignore[arg-type]
        self._selection = selection_of(selection, filters)  # type: ignore[arg-type]
        self._check(kind_of(broker.url))
        self._log = log
        self._experiment = exp_id
        self._broker = broker
        self._map = ChannelMap(self.settings.mapping, self.settings.to_exp)
        self._plan: Plan | None = None
        self.report = self._new_report()
        """Result so far."""
        self._pipeline = Pipeline(
            *(broker, self.report, self.settings, clock or ReplayClock(self.settings.speed), progress),
            fixed_order=self.FIXED_ORDER,
            live=self._live_status,
        )

    @property
    def clock(self) -> ReplayClock:
        """Clock of the replay; `control` pauses it, moves it and changes its speed while the replay runs."""
        return self._pipeline.clock

    @property
    def control(self) -> Control:
        """Pause, resume, step, next, seek and speed of the running replay."""
        return self._pipeline.control

    def _check(self, kind: BrokerKind) -> None:
        chosen = self._selection
        if chosen.after is not None or chosen.limit is not None or chosen.last_per or chosen.context:
            raise StoreError(
                "a replay publishes every message of its range: leave out after, limit, last_per and context"
            )
        if chosen.kinds and not chosen.kinds <= ON_THE_WIRE:
            raise StoreError("gaps and marks were never on the wire: they cannot be replayed")
        if self.settings.wait_for_subscribers and not kind.reports_subscribers:
            raise StoreError(
                f"an {kind.name} broker does not report its subscribers, so a replay cannot wait for them: start the "
                "subscribers first, and replay without --wait-for-subscribers"
            )

    def _live_status(self) -> dict[str, Any] | None:
        """Return the status of the live agents; None without."""
        return None

    def _new_report(self) -> ReplayReport:
        given = self.settings
        return ReplayReport("", given.requested_speed, given.dry_run, given.requested_rate)

    async def run(self) -> ReplayReport:
        """Replay and return the report.

        Raises `ExperimentNotFound`, `BadCursor`, `ReplayRefused` if the replay would do harm and nothing was
        published, and `ReplayFailed` if the broker is unreachable or the replay cannot continue. After an error,
        `report` holds what was done.
        """
        try:
            plan = await self._planned()
            await self._pipeline.guard.refuse_feedback(plan)
            return await self._run(plan)
        finally:
            self.control.end()

    async def _run(self, plan: Plan) -> ReplayReport:
        flow, guard, enter = self._pipeline.flow, self._pipeline.guard, self._pipeline.enter
        if self.report.dry_run:
            with contextlib.suppress(MessagerError):  # a dry run needs no broker, but applies its limits if reachable
                await flow.begin()
                await guard.refuse_oversized(plan)
            enter(ReplayState.FINISHED)
            return self.report
        try:
            await self._broker.connect()
            await flow.begin()
            await guard.refuse_oversized(plan)
            guard.refuse_unsafe()
            await self._wait_for_subscribers(plan)
            self.clock.begin()
            self.control.begin(plan)
            enter(ReplayState.PUBLISHING)
            self._pipeline.tell()
            await self._publish_all(plan)
            enter(ReplayState.FINISHED)
        except (MessagerError, ReplayRefused) as error:
            if isinstance(error, ReplayRefused) and not self.report.published:
                raise
            raise ReplayFailed(f"{error}; {self.report.published} messages were published") from error
        finally:
            if self.report.state is not ReplayState.FINISHED:
                enter(ReplayState.STOPPED)
            self._pipeline.tell()
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
            keep_names=self.settings.keep_names,
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
        wanted = self.settings.wait_for_subscribers
        if not wanted or not (self.report.planned or self.report.at_least):
            return
        names, url = await plan.published_channels(), self._broker.url

        async def count() -> int:
            subscribed = await self._broker.subscriber_count(names)
            if subscribed is None:
                raise ReplayFailed(
                    f"{url} does not report its subscribers{self._pipeline.guard.refusal}: replay without waiting"
                )
            return subscribed

        await self._pipeline.waits.for_subscribers(wanted, self.settings.wait_timeout, count, url)

    async def _publish_all(self, plan: Plan) -> None:
        """Publish the messages of the plan in as many passes as `loops` says."""
        gap = self.settings.max_gap
        tape = Tape(plan, self._pipeline, self.settings.loops, None if gap is None else int(gap * 1e9))
        await self._pipeline.run(tape, plan)
