"""Replay: a stored experiment, back on the wire in timestamp order."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

from messager import channels as grammar
from messager.brokers import Broker, Retaining, kind_of
from messager.errors import MessagerError

from ..db.schema import CHANNEL
from ..errors import ReplayFailed, ReplayRefused, StoreError
from ..experiments import registry
from ..experiments.registry import Experiment
from ..log.channel_map import ChannelMap, between
from ..log.cursor import Point, resolve
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.messages import ON_THE_WIRE, Sources, message_count, message_pages, sources
from ..log.names import all_names
from ..log.reading import Selection, Span
from .clock import Rate, ReplayClock
from .flow_control import FlowControl, Message
from .guard import published_channels, refuse_feedback
from .report import ReplayReport

BATCH_MESSAGES = 500

Progress = Callable[[ReplayReport], None]


def checked_speed(speed: float | str) -> float | None:
    """A speed as a positive number, or None for "max". Raises `StoreError`."""
    if speed == "max":
        return None
    try:
        value = float(speed)
    except ValueError:
        value = math.nan
    if value == math.inf:
        return None
    if not value > 0:
        raise StoreError(f"{speed!r} is no speed: give a number above zero (10 is ten times as fast), or max")
    return value


def checked_rate(rate: float | str) -> float:
    """A rate as messages a second. Raises `StoreError`."""
    try:
        value = float(rate)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise StoreError(f"{rate!r} is no rate: give messages a second, a number above zero")
    return value


class Replay:
    """Publishes the messages of an experiment again, through `broker`.

    What is published, per channel, is said in `messager_store.log.messages`; in which order,
    by `(ts, recorder, seq)`. `speed` is recorded seconds a second, or "max": as fast as the slowest
    subscriber reads. `rate` is how many messages a second there are at the most, whatever the speed;
    "max" needs one where the broker does not say what waits for its subscribers. `max_hold` is for
    how many seconds a subscriber may read nothing before the replay is given up (None: it is waited
    for without end, and `progress` is told whom it waits for). `channels` and
    `exclude` are glob patterns on the recorded channels, `agents` are ids of senders or recipients,
    `from_ids` of senders, `to_ids` of recipients, `kinds` kinds of event; `start` (included) and `end`
    (excluded) are points as in `messager_store.log.cursor`.
    `mapping` and `to_exp` say where messages go instead (see `ChannelMap`); on another kind of broker than
    was recorded, `exps:...` becomes `exps/...` and the other way round, unless `keep_names`. `max_gap` shortens
    silences to that many seconds. `loops` is how often (0: until cancelled).
    `wait_for_subscribers` waits until at least so many clients are subscribed to a channel of the replay, as
    `channels` and `exclude` choose them (on Redis also to any pattern, as it does not list these), and fails after
    `wait_timeout` seconds; an MQTT broker tells nobody. Messages for channels on which a server publishes by itself
    (see `BrokerKind.is_internal`) are left out and counted. What the broker refuses is counted and named in the report;
    `dry_run` publishes nothing, and names what is certain to be refused. A payload for which the broker would
    cut its subscribers off is refused, unless `force`; and so are channels that a recorder is recording into this
    very experiment at the moment, unless `into_live`. `progress` is called with the report as it grows.
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
        start: Point = None,
        end: Point = None,
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
        self._speed = checked_speed(speed)
        checked = None if rate is None else checked_rate(rate)
        if max_hold is not None and not max_hold > 0:
            raise StoreError(f"{max_hold!r} is no time to hold back: give seconds, more than zero")
        if max_gap is not None and not max_gap >= 0:
            raise StoreError(f"{max_gap!r} is no gap: give seconds, zero or more")
        if loops < 0:
            raise StoreError(f"{loops!r} is no number of loops: give 1 or more, or 0 for no end")
        if wait_for_subscribers and not kind_of(broker.url).reports_subscribers:
            raise StoreError(
                f"an {kind_of(broker.url).name} broker tells nobody who is subscribed, so nobody can wait for it: "
                "start the subscribers first, and replay without --wait-for-subscribers"
            )
        self._log = log
        self._wanted = exp_id
        self._broker = broker
        self._retaining = broker if isinstance(broker, Retaining) else None
        self._selection = Selection(kinds, channels, exclude, agents, from_ids, to_ids)
        if self._selection.kinds and not self._selection.kinds <= ON_THE_WIRE:
            raise StoreError("gaps and marks were never on the wire: they cannot be replayed")
        self._force = force
        self._into_live = into_live
        self._start, self._end = start, end
        self._map = ChannelMap(mapping, to_exp)
        self._keep_names = keep_names
        self._max_gap = None if max_gap is None else int(max_gap * 1e9)
        self._loops = loops
        self._subscribers = wait_for_subscribers
        self._wait_timeout = wait_timeout
        self._dry_run = dry_run
        self._progress = progress or (lambda report: None)
        self.clock = clock or ReplayClock(self._speed or 1.0)
        """Pause, resume, or change the speed of a replay that runs."""
        self._rate = None if checked is None else Rate(checked, self.clock)
        self._most = BATCH_MESSAGES if self._rate is None else min(BATCH_MESSAGES, self._rate.together)
        self._flow = FlowControl(broker, max_hold=max_hold, holding=self._tell)
        self.report = ReplayReport("", self._speed, dry_run, checked)
        """What was done so far."""
        self._started = 0
        self._default_meta: dict[int, Mapping[str, Any]] = {}
        """By recorder: the meta of a delivery that its events leave out (see `BrokerKind.default_meta`)."""

    async def run(self) -> ReplayReport:
        """Replay, and say what was done.

        Raises `ExperimentNotFound`, `BadCursor`, `ReplayRefused` where it would do harm, and
        `ReplayFailed` where the broker is out of reach or goes away; `report` then says how far
        it came.
        """
        of = self._wanted if isinstance(self._wanted, Experiment) else await self._log.experiment(self._wanted)
        self.report.exp_id = of.exp_id
        database = self._log.database
        span = Span(await resolve(database, of, self._start), await resolve(database, of, self._end))
        if span.start is not None and span.end is not None and span.start > span.end:
            raise StoreError(f"the start, {span.start}, lies behind the end, {span.end}")
        # once for all passes: what a recorder adds meanwhile is not replayed, and changes not which events are messages
        recorders = await registry.recorders_of(database, of.id)
        last_seqs = {row.ordinal: row.last_seq for row in recorders}
        if not self._keep_names:
            self._map.rename = between((row.broker for row in recorders), self._broker.url)
        self._default_meta = {row.ordinal: kind_of(row.broker).default_meta for row in recorders if row.broker}
        total = sum(last_seqs.values())
        span = replace(span, last_seqs=last_seqs)
        rule = await sources(database, of, self._selection.kinds)
        names = set((await all_names(database, of.id, CHANNEL)).values())
        unfitted = self._map.unfitted(names)
        if unfitted:
            raise StoreError(f"no channel of {of.exp_id} fits {', '.join(map(repr, unfitted))}: nothing to map there")
        whole = self._selection.everything and span == Span(last_seqs=last_seqs)
        await self._leave_out_internal(of, span, rule, names, [row.broker for row in recorders if row.broker])
        await self._plan(of, span, rule)
        self.report.skipped = total - self.report.planned
        if whole:
            self.report.unrecorded_senders = rule.unrecorded_senders
        if not self._into_live:
            await refuse_feedback(self._log, of, self._selection, self._map, self._broker.url)
        if self._dry_run:
            with contextlib.suppress(MessagerError):  # a dry run needs no broker, but tells what it would say
                await self._flow.begin()
                await self._refuse_oversized(of, span, rule)
            return self.report
        try:
            await self._broker.connect()
            await self._flow.begin()
            await self._refuse_oversized(of, span, rule)
            self._refuse_blind()
            await self._wait_for_subscribers(of)
            self._tell()
            while self.report.planned and (self._loops == 0 or self.report.loops < self._loops):
                if self.report.loops:
                    await self._refuse_joined(of)
                await self._pass(of, span, rule)
                self.report.loops += 1
        except MessagerError as error:
            raise ReplayFailed(f"{error}; {self.report.published} messages were published") from error
        finally:
            self._tell()
        return self.report

    async def _refuse_joined(self, of: Experiment) -> None:
        """Raise `ReplayFailed` where a recorder came since the pass before, and would record the next one."""
        if self._into_live:
            return
        try:
            await refuse_feedback(self._log, of, self._selection, self._map, self._broker.url)
        except ReplayRefused as error:
            raise ReplayFailed(f"{error}; {self.report.published} messages were published") from None

    async def _leave_out_internal(
        self, of: Experiment, span: Span, rule: Sources, names: set[str], recorded_at: list[str]
    ) -> None:
        """Leave out, and count, messages for channels on which the server publishes by itself, here or where recorded.

        Raises `StoreError` where `mapping` leads onto one.
        """
        kinds = set(map(kind_of, (self._broker.url, *recorded_at)))
        internal = {name for name in names if any(kind.is_internal(self._map(name)) for kind in kinds)}
        for name in internal:
            if (pair := self._map.pair_for(name)) is not None:
                raise StoreError(
                    f"--map {'='.join(pair)} leads onto {grammar.decode(self._map(name))!r}, where the server itself "
                    "publishes: map to another channel"
                )
        if internal:
            counts: Counter[str] = Counter()
            only = self._selection.without(names - internal)
            async for page in message_pages(self._log.database, of, only, span, rule=rule):
                counts.update(entry.channel or "" for entry in page)
            self.report.internal = dict(counts.most_common())
            self._selection = self._selection.without(internal)

    async def _plan(self, of: Experiment, span: Span, rule: Sources) -> None:
        """Count what one pass will publish; for a dry run, also where to, and what is certain to be refused."""
        if not self._dry_run:
            self.report.planned = await message_count(self._log.database, of, self._selection, span, rule)
            return
        kind = kind_of(self._broker.url)
        async for page in message_pages(self._log.database, of, self._selection, span, rule=rule):
            self.report.planned += len(page)
            for entry in page:
                wire = self._map(entry.channel or "")
                channel = grammar.decode(wire)
                self.report.channels[channel] = self.report.channels.get(channel, 0) + 1
                fault = kind.publish_fault(wire, len(entry.payload))
                if fault is not None:
                    self.report.count_failure(channel, entry.cursor, "refused", fault)

    async def _refuse_oversized(self, of: Experiment, span: Span, rule: Sources) -> None:
        """Raise `ReplayRefused` for a payload above what a subscriber may have waiting."""
        most = self._flow.largest_payload
        if most is None or self._force:
            return
        rows = await registry.recorders_of(self._log.database, of.id)
        if sum(row.payload_bytes for row in rows) <= most:
            return
        async for page in message_pages(self._log.database, of, self._selection, span, rule=rule, above=most):
            raise ReplayRefused(
                f"the payload of {page[0].cursor} has {len(page[0].payload):,} bytes: above {most:,} the broker "
                "cuts its subscribers off. Leave it out with --exclude, --start and --end, or publish it with --force."
            )

    def _refuse_blind(self) -> None:
        """Raise `ReplayRefused` where full speed could have subscribers cut off, and nobody could know."""
        if self._speed is None and self._rate is None and not self._flow.active:
            raise ReplayRefused(
                f"{self._broker.url} does not tell what waits for its subscribers{self._refusal()}, so at full speed "
                "it could cut them off. Give the most messages a second with --rate, or a speed"
            )

    def _refusal(self) -> str:
        """Why the broker does not tell, where it knows: a right that its user lacks."""
        refused = getattr(self._broker, "refused", None)
        return f" ({refused})" if refused else ""

    def _refuse_copies(self, batch: list[Event], wire: list[Message]) -> None:
        """Raise `ReplayRefused` for a payload whose copies are above what a subscriber may have waiting."""
        if self._force or (at := self._flow.cut_off(wire)) is None:
            return
        entry, copies, most = batch[at], self._flow.copies(wire[at][0]), self._flow.largest_payload
        raise ReplayRefused(
            f"the payload of {entry.cursor} has {len(entry.payload):,} bytes, and one subscriber may get it "
            f"{copies} times: above {most:,} bytes in all the broker cuts it off. Leave it out with "
            "--exclude, --start and --end, or publish it with --force"
        )

    async def _pass(self, of: Experiment, span: Span, rule: Sources) -> None:
        """Publish everything once."""
        first = previous = None
        cut = 0  # ns of silence taken out so far
        messages = message_pages(self._log.database, of, self._selection, span, rule=rule)
        async with aclosing(_ahead(messages)) as pages:
            async for page in pages:
                if first is None or previous is None:
                    first = previous = page[0].ts
                    self.clock.seek(first)
                    self._started = self._started or time.monotonic_ns()
                if self._max_gap is not None or self._speed is not None:
                    previous, cut = await self._paced(page, previous, cut)
                else:
                    previous = page[-1].ts
                    for at in range(0, len(page), self._most):
                        await self._publish(page[at : at + self._most], [])
        if first is not None and previous is not None:
            self.report.recorded_s += (previous - first - cut) / 1e9

    async def _paced(self, page: list[Event], previous: int, cut: int) -> tuple[int, int]:
        """Publish each when it is due, those together that are; the last ts, and how much silence was taken out."""
        paced = self._speed is not None
        batch: list[Event] = []
        dues: list[int] = []
        for entry in page:
            if self._max_gap is not None and entry.ts - previous > self._max_gap:
                cut += entry.ts - previous - self._max_gap
            previous = entry.ts
            due = entry.ts - cut
            early = paced and self.clock.overdue(due) < 0
            if early or len(batch) >= self._most:
                await self._publish(batch, dues)
                batch, dues = [], []
            if early:
                await self.clock.wait_until(due)
            batch.append(entry)
            dues.append(due)
        await self._publish(batch, dues)
        return previous, cut

    async def _publish(self, batch: list[Event], dues: list[int]) -> None:
        """Publish them, in as many parts as the subscribers can take; `dues` are for the paced."""
        channel = self._map
        wire = [(channel(entry.channel or ""), entry.payload) for entry in batch]
        begin = 0
        while begin < len(wire):
            end = self._flow.together(wire, begin)
            await self._publish_part(batch[begin:end], wire[begin:end], dues[begin:end])
            begin = end

    async def _publish_part(self, batch: list[Event], wire: list[Message], dues: list[int]) -> None:
        await self._flow.spend(wire)
        try:
            self._refuse_blind()
            self._refuse_copies(batch, wire)
        except ReplayRefused as error:
            if not self.report.published:
                raise
            raise ReplayFailed(f"{error}; {self.report.published} messages were published") from None
        if self._rate is not None:
            await self._rate.take(len(wire))
        await self.clock.while_paused()  # what is not paced waits for no time, but for this
        report = self.report
        if self._speed is not None:
            for due in dues:
                report.lag.add(self.clock.overdue(due))
        if self._retaining is not None:
            results = await self._retaining.publish_as(wire, [self._how(entry) for entry in batch])
        else:
            results = await self._broker.publish(wire)
        self._flow.spent(wire, results)
        lost = report.count(batch, wire, results)
        if lost is not None:
            at, why = lost[0].cursor, lost[1]
            unknown = f", and of {report.unknown} nobody knows" if report.unknown else ""
            raise ReplayFailed(f"{why}; {report.published} messages were published, up to {at}{unknown}")
        self._tell()

    def _how(self, entry: Event) -> dict[str, Any] | None:
        """How it was once delivered: what comes from MQTT and tells no quality of service had 1, not the broker's."""
        default = self._default_meta.get(entry.cursor.recorder)
        return {**default, **(entry.meta or {})} if default else entry.meta

    async def _wait_for_subscribers(self, of: Experiment) -> None:
        if not self._subscribers or not self.report.planned:
            return
        wanted = await published_channels(self._log, of, self._selection, self._map)
        deadline = time.monotonic() + self._wait_timeout
        while True:
            there = await self._broker.subscriber_count(wanted)
            if there is None:
                raise ReplayFailed(
                    f"{self._broker.url} does not tell who is subscribed{self._refusal()}; replay without waiting"
                )
            if there >= self._subscribers:
                return
            if time.monotonic() > deadline:
                raise ReplayFailed(
                    f"only {there} of {self._subscribers} subscribers at {self._broker.url} "
                    f"after {self._wait_timeout:g} s"
                )
            await asyncio.sleep(0.02)

    def _tell(self) -> None:
        """Bring the report up to date, and hand it to `progress`."""
        if self._started:
            self.report.duration_s = (time.monotonic_ns() - self._started) / 1e9
        self.report.held_back_s = self._flow.held_ns / 1e9
        self.report.held_by, self.report.stalled_s = self._flow.held_by, self._flow.stalled_ns / 1e9
        self.report.flow_control = self._flow.active
        self._progress(self.report)


async def _ahead(pages: AsyncIterator[list[Event]]) -> AsyncGenerator[list[Event], None]:
    """The same pages, each fetched while the one before it is used."""

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
