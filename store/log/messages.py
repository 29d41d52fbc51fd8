"""The choice of events that represent the messages of an experiment, each message once.

The sendings, except those that a `failed` event retracts. At times when no recorder that sent on a channel was
recording: the receptions of one listener, preferably a tap, then the one that received the most, then the first. A
listener that ran at another time than all listeners that rank before it counts as well, because the sessions of an
experiment follow each other. A reception that belongs to a sending never counts again, also after the end of the
sender's recorder. The view `message` has the same rule.

A redacted message does not count: there is nothing to publish, and a reception does not replace a redacted sending.
(The view contains it, with an empty payload.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from sqlalchemy import func, select

from ..db.codes import KINDS, SEQ_BITS, SEQ_MASK
from ..db.schema import RECORDER_ID, event
from ..experiments.records import Experiment, RecorderRow
from .attributes import KEYS, decode
from .event import Event
from .event_log import EventLog
from .late_receptions import Heard, Interval, Times, late_receptions
from .names import NameReader
from .narrowing import last_of_each, narrowed
from .reading import count, pages
from .redaction_records import redactions_of
from .selection import Selection
from .span import Span

ON_THE_WIRE = {"sent", "received", "blocked", "failed"}
"""Kinds of event that hold a message."""
_SENT, _RECEIVED, _FAILED = (KINDS.index(kind) + 1 for kind in ("sent", "received", "failed"))


class Sources:
    """The source of each channel's messages."""

    def __init__(self) -> None:
        self.kinds: set[str] = {"sent"}
        """The kinds of events that may be messages."""
        self.sent: set[str] | None = None
        """Channels with sendings; None if the kind alone decides."""
        self.listeners: dict[str, set[int]] = {}
        """By channel, the ordinals of the recorders whose receptions count."""
        self.recorded: dict[str, Times] = {}
        """For channels with sendings, the times when their senders were recorded: receptions do not count then."""
        self.paired: set[tuple[int, int]] = set()
        """(ordinal, seq) of receptions that belong to a sending, and are outside of those times."""
        self.unrecorded_senders: dict[str, int] = {}
        """Receptions without a recorded sending, by channel, while senders were recorded: not all were. They do not
        count as messages. Of use only if `sources` was asked to count them."""
        self.retracted: set[tuple[int, int]] = set()
        """(ordinal, seq) of sendings that a `failed` event retracts."""

    def takes(self, entry: Event) -> bool:
        """Return whether an event represents a message."""
        if self.retracted and (entry.recorder, entry.seq) in self.retracted:
            return False
        if self.sent is None or entry.kind not in ("sent", "received"):
            return True
        channel = entry.channel or ""
        if entry.kind == "sent":
            return channel in self.sent
        if entry.recorder not in self.listeners.get(channel, ()):
            return False
        recorded = self.recorded.get(channel)
        return recorded is None or (entry.ts not in recorded and (entry.recorder, entry.seq) not in self.paired)


async def sources(
    log: EventLog,
    of: Experiment,
    kinds: set[str] | None = None,
    *,
    counted: bool = False,
) -> Sources:
    """Return the sources of an experiment. With `kinds`, of these kinds; receptions are still those of one recorder.

    They are computed from a summary of `activity`: `known`, else a new one; else from all events. With `counted`,
    `unrecorded_senders` is right, which takes longer.
    """
    recorders = await log.recorders(of)
    found = Sources()
    found.kinds = {"sent", "received"} if kinds is None else kinds
    heard = [row for row in recorders if row.kinds["received"]]
    any_sent, any_failed = (any(row.kinds[kind] for row in recorders) for kind in ("sent", "failed"))
    if kinds is None and not heard:
        found.kinds = {"sent"}
    only_one = len(heard) == 1 and not (any_sent and "sent" in found.kinds)
    chooses = "received" in found.kinds and not only_one
    if any_failed:
        ordinals = {row.id: row.ordinal for row in recorders}
        found.retracted = await causes(log, of, ordinals, failed_only=True)
    if chooses:
        await _choose(log, of, found, recorders, await _counts(log, of))
    return found


async def message_pages(
    log: EventLog,
    of: Experiment,
    chosen: Selection,
    span: Span,
    *,
    rule: Sources | None = None,
    above: int | None = None,
    redacted: bool = False,
    brief: bool = False,
    backward: bool = False,
    growing: bool = False,
) -> AsyncGenerator[list[Event], None]:
    """Yield the messages of an experiment in replay order, or with `backward` from the last to the first.

    With `above`, only those with more payload bytes than that; with `redacted`, also redacted ones; with `brief`, only
    with the fields that a comparison needs (`event_rows.columns`). `growing` is that of `reading.pages`. `rule` is the
    result of `sources` for `chosen.kinds`, computed if not given. `span.limit` counts messages.
    """
    rule = rule or await sources(log, of, chosen.kinds)
    takes = None if rule.sent is None and not rule.retracted else rule.takes
    wanted = chosen.of_kinds(rule.kinds)
    wanted = wanted if redacted else wanted.without_redacted()
    reading = pages(
        log.database, of, wanted, span, rule=takes, above=above, brief=brief, backward=backward, growing=growing
    )
    async with aclosing(reading):
        async for page in reading:
            yield page


async def selected_pages(
    log: EventLog,
    of: Experiment,
    selection: Selection,
    *,
    messages: bool = False,
    rule: Sources | None = None,
    redacted: bool = False,
) -> AsyncGenerator[list[Event], None]:
    """Yield the events of a selection, or with `messages` each message once, in lists.

    They are in replay order, except that `narrowing.narrowed` describes the order of a selection with context. With
    `redacted`, redacted messages are included. Raises `BadCursor` for a point that is none.
    """
    span = await selection.span(log.database, of)
    if messages and rule is None:
        rule = await sources(log, of, selection.kinds)

    def read(chosen: Selection, span: Span, *, backward: bool = False) -> AsyncGenerator[list[Event], None]:
        if not messages:
            return pages(log.database, of, chosen, span, backward=backward)
        return message_pages(log, of, chosen, span, rule=rule, redacted=redacted, backward=backward)

    async with aclosing(narrowed(read, log.database, of, selection, span)) as found:
        async for page in found:
            yield page


async def last_messages(log: EventLog, of: Experiment, chosen: Selection, span: Span, rule: Sources) -> list[Event]:
    """Return the last message on each channel in a span, in replay order."""

    def read(chosen: Selection, span: Span, *, backward: bool = False) -> AsyncGenerator[list[Event], None]:
        return message_pages(log, of, chosen, span, rule=rule, backward=backward)

    return await last_of_each(read, log.database, of, chosen, span, "channel")


async def message_count(
    log: EventLog, of: Experiment, chosen: Selection, span: Span, rule: Sources, *, redacted: bool = False
) -> int:
    """Return the number of messages that `message_pages` yields."""
    if rule.sent is None and not rule.retracted:
        if chosen.everything and (counted := await _counted(log, of, span, rule, redacted)) is not None:
            return counted
        wanted = chosen.of_kinds(rule.kinds)
        return await count(log.database, of, wanted if redacted else wanted.without_redacted(), span)
    total = 0
    async for page in message_pages(log, of, chosen, span, rule=rule, redacted=redacted):
        total += len(page)
    return total


async def _counted(log: EventLog, of: Experiment, span: Span, rule: Sources, redacted: bool) -> int | None:
    """Return the number from the recorders' counters, in a time that does not depend on the number of events.

    None if the counters do not tell: for a part of the experiment, or if payloads may have been redacted.
    """
    recorders = await log.recorders(of)
    upto = {row.ordinal: row.last_seq for row in recorders}
    if replace(span, last_seqs=None) != Span() or span.last_seqs not in (None, upto):
        return None
    if not redacted and (any(row.role == "import" for row in recorders) or await redactions_of(log.database, of.id)):
        return None
    return sum(row.kinds[kind] for row in recorders for kind in rule.kinds)


async def _counts(log: EventLog, of: Experiment) -> list[tuple[int | None, int, int, int]]:
    """Return the counts of a `Summary`, all of them, from the events."""
    query = (
        select(event.c.channel_id, event.c.kind, RECORDER_ID, func.count())
        .where(event.c.experiment_id == of.id, event.c.kind.in_((_SENT, _RECEIVED)))
        .group_by(event.c.channel_id, event.c.kind, RECORDER_ID)
    )
    async with log.database.reading() as connection:
        rows = await connection.execute(query)
        return [(channel_id, kind, number, events) for channel_id, kind, number, events in rows]


async def _choose(
    log: EventLog,
    of: Experiment,
    found: Sources,
    recorders: list[RecorderRow],
    counts: Sequence[tuple[Any, int, int, int]],
) -> None:
    names = NameReader(log.database)
    await names.load({row[0] for row in counts})
    by_id = {row.id: row for row in recorders}
    found.sent = set()
    heard: dict[int, list[tuple[int, RecorderRow]]] = {}
    senders: dict[int, list[RecorderRow]] = {}
    said: Counter[int] = Counter()
    for channel_id, kind, number, events in counts:
        if number not in by_id:
            continue
        if kind == _RECEIVED:
            heard.setdefault(channel_id, []).append((events, by_id[number]))
        elif kind == _SENT and "sent" in found.kinds:
            senders.setdefault(channel_id, []).append(by_id[number])
            said[channel_id] += events
    found.sent.update(names.values[channel_id] for channel_id in senders)
    both: dict[int, Heard] = {}
    received: Counter[int] = Counter()
    for channel_id, listeners in heard.items():
        ranked = sorted(listeners, key=lambda pair: _rank(*pair), reverse=True)
        chosen = [
            (events, row)
            for at, (events, row) in enumerate(ranked)
            if not any(_overlap(row, better) for _, better in ranked[:at])
        ]
        found.listeners[names.values[channel_id]] = {row.ordinal for _, row in chosen}
        if channel_id in senders:
            recorded = Times(row.recorded for row in senders[channel_id])
            both[channel_id] = Heard(recorded, {row.id: row for _, row in chosen})
            found.recorded[names.values[channel_id]] = recorded
            received[channel_id] = sum(events for events, _ in chosen)
    late = await late_receptions(log.database, of, both, recorders)
    found.paired = {(by_id[number >> SEQ_BITS].ordinal, number & SEQ_MASK) for number in late.paired}
    for channel_id, events in received.items():
        if (more := events - late.counts[channel_id] - said[channel_id]) > 0:
            found.unrecorded_senders[names.values[channel_id]] = more


def _rank(events: int, row: RecorderRow) -> tuple[bool, int, int]:
    return (row.original_role != "messager", events, -row.ordinal)


def _overlap(a: RecorderRow, b: RecorderRow) -> bool:
    """Return whether two recorders ran at the same time, so that both may have received a message."""
    (a_start, a_end), (b_start, b_end) = a.session, b.session
    return a_start <= b_end and b_start <= a_end


async def causes(
    log: EventLog,
    of: Experiment,
    ordinals: dict[int, int] | None = None,
    *,
    failed_only: bool = False,
    times: Sequence[Interval] | None = None,
) -> set[tuple[int, int]]:
    """Return (recorder, seq) of the events that other events, or only `failed` ones, name as their cause.

    With `times`, of events at these times only.
    """
    if ordinals is None:
        ordinals = {row.id: row.ordinal for row in await log.recorders(of)}
    ordinals_of = {row.uuid: row.ordinal for row in await log.recorders(of)}
    query = select(event.c.id, event.c.attributes).where(
        event.c.experiment_id == of.id, event.c.attributes.contains(f'"{KEYS["cause"]}":')
    )
    if failed_only:
        query = query.where(event.c.kind == _FAILED)
    found: set[tuple[int, int]] = set()
    async with log.database.reading() as connection:
        for part in [query] if times is None else [query.where(event.c.ts.between(*each)) for each in times]:
            for number, text in await connection.execute(part):
                if isinstance(cause := decode(text).get("cause"), int):
                    found.add((ordinals.get(number >> SEQ_BITS, 0), cause))
                elif cause is not None:
                    found.add((ordinals_of.get(cause[0], 0), cause[1]))
    return found
