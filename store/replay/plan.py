"""Plan of a replay: which messages are published, on which channels, and with which broker options."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from messager import channels
from messager.brokers import BrokerKind, kind_of

from ..errors import StoreError
from ..experiments.records import Experiment, RecorderRow
from ..log.channel_map import ChannelMap, between
from ..log.decisions import Decisions, decisions
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.messages import certain_count, last_messages, message_count, message_pages
from ..log.reading import pages
from ..log.selection import Selection
from ..log.span import Span
from .flow_control import Message


@dataclass(slots=True)
class Plan:
    """The messages of a replay. It is made once: events that are recorded later do not change it."""

    log: EventLog
    of: Experiment
    selection: Selection
    span: Span
    rule: Decisions
    """Which events are messages."""
    channel_map: ChannelMap
    recorders: list[RecorderRow]
    internal: dict[str, int] = field(default_factory=dict)
    """Messages left out because a server published them by itself, by channel, most first."""
    delivery_defaults: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """By recorder: meta of a delivery that its events leave out (see `BrokerKind.default_meta`)."""

    @property
    def events(self) -> int:
        """Return the number of events of the experiment, of any kind."""
        return sum(row.last_seq for row in self.recorders)

    @property
    def payload_bytes(self) -> int:
        """Return the payload bytes of the experiment."""
        return sum(row.payload_bytes for row in self.recorders)

    @property
    def first_ts(self) -> int:
        """Return the earliest time of the plan, ns UTC: its start, or the first event of the experiment."""
        first = min((row.first_ts for row in self.recorders if row.first_ts is not None), default=0)
        return first if self.span.start is None else max(first, self.span.start.ts)

    def pages(self, *, start: Cursor | None = None) -> AsyncIterator[list[Event]]:
        """Read the messages in replay order, from `start` on."""
        span = self.span
        if start is not None and (span.start is None or start > span.start):
            span = replace(span, start=start)
        return message_pages(self.log, self.of, self.selection, span, rule=self.rule)

    async def large(self, above: int) -> AsyncIterator[list[Event]]:
        """Read the messages with more payload bytes than that; the rule is asked only about events that large."""
        chosen = self.selection.of_kinds(self.rule.kinds)
        async for page in pages(self.log.database, self.of, chosen, self.span, above=above):
            yield await self.messages_among(page)

    async def last_messages(self, before: Cursor) -> list[Event]:
        """Return the last message before a point on each channel, in replay order."""
        span = self.span
        if span.end is None or before < span.end:
            span = replace(span, end=before)
        return await last_messages(self.log, self.of, self.selection, span, self.rule)

    async def certain_count(self) -> int:
        """Return the number of messages without a look at receptions, of which more may be messages."""
        return await certain_count(self.log, self.of, self.selection, self.span, self.rule)

    async def count(self) -> int:
        """Return the number of messages."""
        return await message_count(self.log, self.of, self.selection, self.span, self.rule)

    async def experiment_events(self, *kinds: str) -> list[Event]:
        """Return all events of the experiment, of these kinds (none: of any), that it had when the plan was made."""
        everything = Span(last_seqs=self.span.last_seqs)
        read = pages(self.log.database, self.of, Selection(kinds or None), everything)
        return [entry async for page in read for entry in page]

    async def messages_among(self, events: list[Event]) -> list[Event]:
        """Return those of some events that are messages of the experiment, in whichever part of it."""
        rule = self.rule
        await rule.reach(None)
        return [
            entry
            for entry in events
            if entry.kind in rule.kinds
            and not entry.redacted
            and entry.channel not in self.internal
            and rule.takes(entry)
        ]

    def message(self, entry: Event) -> Message:
        """Return the channel and payload to publish."""
        return self.channel_map(entry.channel or ""), entry.payload

    def delivery_meta(self, entry: Event) -> Mapping[str, Any] | None:
        """Return how the message was delivered when it was recorded."""
        default = self.delivery_defaults.get(entry.cursor.recorder)
        return {**default, **(entry.meta or {})} if default else entry.meta

    async def preview(self, kind: BrokerKind) -> AsyncIterator[tuple[str, Event, str | None]]:
        """Yield each message with its channel, and the reason for which this kind of broker refuses it, or None."""
        async for page in self.pages():
            for entry in page:
                wire, payload = self.message(entry)
                fault = kind.carrier_fault(entry.carrier, payload, entry.meta)
                fault = fault or kind.publish_fault(wire, len(payload))
                yield channels.decode(wire), entry, fault

    async def published_channels(self) -> list[bytes]:
        """Return the channels that the replay may publish on, sorted. Only channel patterns restrict them."""
        known = await self.log.channels(self.of)
        chosen = await self.log.as_recorded(self.of, self.selection)
        return sorted({self.channel_map(channel) for channel in known if chosen.takes_channel(channel)})


async def make_plan(
    log: EventLog,
    of: Experiment,
    selection: Selection,
    *,
    channel_map: ChannelMap,
    broker_url: str,
    keep_names: bool,
) -> Plan:
    """Return the plan of a replay through the broker at `broker_url`.

    Raises `BadCursor`, and `StoreError` for a start after the end or a useless or unsafe pair of `channel_map`.
    """
    span = await selection.span(log.database, of)
    if span.start is not None and span.end is not None and span.start > span.end:
        raise StoreError(f"the start {span.start} is after the end {span.end}: exchange them")
    recorders = await log.recorders(of)
    span = replace(span, last_seqs={row.ordinal: row.last_seq for row in recorders})
    if not keep_names:
        channel_map.rename = between((row.broker_kind for row in recorders), kind_of(broker_url))
    plan = Plan(
        log,
        of,
        selection,
        span,
        rule=await decisions(log, of, selection.kinds),
        channel_map=channel_map,
        recorders=recorders,
        delivery_defaults={row.ordinal: kind.default_meta for row in recorders if (kind := row.broker_kind)},
    )
    names = set(await log.channels(of))
    unfitted = channel_map.unfitted(names)
    if unfitted:
        raise StoreError(f"no channel of {of.exp_id} fits {', '.join(map(repr, unfitted))}: remove it from the mapping")
    await _leave_out_internal(plan, names, broker_url)
    return plan


async def _leave_out_internal(plan: Plan, names: set[str], broker_url: str) -> None:
    """Leave out, and count, messages on channels on which the server itself publishes, at either broker.

    Raises `StoreError` if a pair of the mapping leads to such a channel.
    """
    mapped = plan.channel_map
    kinds = {kind_of(broker_url), *(kind for row in plan.recorders if (kind := row.broker_kind))}
    internal = {name for name in names if any(kind.is_internal(mapped(name)) for kind in kinds)}
    for name in internal:
        if (pair := mapped.pair_for(name)) is not None:
            raise StoreError(
                f"--map {'='.join(pair)} leads to {channels.decode(mapped(name))!r}, where the server itself "
                "publishes: map to another channel"
            )
    if internal:
        counts: Counter[str] = Counter()
        only_internal = replace(plan, selection=plan.selection.without(names - internal))
        async for page in only_internal.pages():
            counts.update(entry.channel or "" for entry in page)
        plan.internal = dict(counts.most_common())
        plan.selection = plan.selection.without(internal)


async def prefetched(pages: AsyncIterator[list[Event]]) -> AsyncGenerator[list[Event], None]:
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
