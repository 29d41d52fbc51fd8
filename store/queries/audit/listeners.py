"""Listeners of an experiment: who was subscribed to what, when, and when that was in doubt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sqlalchemy import func, select

from messager import channels
from messager.brokers import BROKER_KINDS
from messager.record import SUBSCRIBED

from ...db.codes import CHANNEL, KINDS, REDACTED, SEQ_BITS, SEQ_MASK
from ...db.database import Database
from ...db.schema import RECORDER_ID, delivery, event
from ...experiments.records import SILENT_NS, Experiment, RecorderRow
from ...experiments.registry import recorders_of
from ...log.attributes import meta_of
from ...log.gap import gap_of
from ...log.late_receptions import Interval, Times
from ...log.matching import WITHIN_NS
from ...log.matching import Listener as Key
from ...log.names import all_names

SUBSCRIBING_NS = 1_000_000_000
"""Time after the start of a recorder within which its subscription becomes active, if no mark says when."""
_RECEIVED, _GAP, _MARK = (KINDS.index(kind) + 1 for kind in ("received", "gap", "mark"))
_WILD = re.compile(r"[*?\[\\+#]")


@dataclass(slots=True)
class Listener:
    """A Messager, or a recorder whose Messagers are unknown, such as a tap."""

    key: Key
    recorder: RecorderRow
    subscriptions: list[tuple[int, list[str], bool]] = field(default_factory=list)
    """From when (ns UTC), the patterns, and True if they came to the earlier ones."""
    reached_until: int | None = None
    """`ts` of the last sending that reached it; None if none did."""

    def got(self, keys: Iterable[Key]) -> bool:
        """Return whether one of these listeners is this one."""
        return self.key in keys if self.key[1] is not None else any(key[0] == self.key[0] for key in keys)

    def times(self, channel: str) -> list[Interval]:
        """Return the times, both ends included, at which it was subscribed to a channel, as far as is known."""
        found: list[Interval] = []
        since: int | None = None
        for ts, patterns, added in self.subscriptions:
            here = bool(self.matching(patterns, channel)) or (added and since is not None)
            if here and since is None:
                since = ts
            elif not here and since is not None:
                found.append((since, ts - 1))
                since = None
        if since is not None:
            found.append((since, max(self._end, since)))
        return found

    @property
    def crashed(self) -> bool:
        """True if its recorder ended without saying so, or its end is not in this store."""
        return self.recorder.state in ("unclean", "repaired", "incomplete")

    @property
    def _end(self) -> int:
        """Time until which its recorder may have listened."""
        row = self.recorder
        return max(row.session[1], row.complete_until) + SILENT_NS if row.unclean else row.recorded[1]

    def matching(self, patterns: Iterable[str], channel: str) -> list[str]:
        """Return the patterns that match a channel."""
        kind = self.recorder.broker_kind
        if kind is not None:
            return [pattern for pattern in patterns if kind.matches(pattern, channels.encode(channel))]
        return [pattern for pattern in patterns if any(_matches(pattern, channel))]

    def patterns(self, channel: str, ts: int) -> list[str]:
        """Return the patterns that matched a channel at a time."""
        known: dict[str, None] = {}
        for since, patterns, added in self.subscriptions:
            if since <= ts:
                known = dict.fromkeys([*known, *patterns] if added else patterns)
        return self.matching(known, channel)


def _matches(pattern: str, channel: str) -> Iterator[bool]:
    yield channels.matches(pattern, channel)
    for kind in BROKER_KINDS:
        yield kind.is_own_pattern(pattern) and kind.matches(pattern, channels.encode(channel))


class Listeners:
    """The listeners of an experiment."""

    def __init__(self, listeners: list[Listener], gaps: dict[int, Times], redacted: set[tuple[int, str]]) -> None:
        self.all = listeners
        self._gaps = gaps
        self._redacted = redacted
        self._by_key = {one.key: one for one in listeners}
        self._by_prefix: dict[str, dict[Key, Listener]] = {}
        """By the start of a pattern, up to its first wildcard."""
        for one in listeners:
            for _, patterns, _ in one.subscriptions:
                for pattern in patterns:
                    wild = _WILD.search(pattern)
                    start = pattern[: wild.start()].rstrip("/") if wild else pattern  # a/# matches a
                    self._by_prefix.setdefault(start, {})[one.key] = one
        self._lengths = sorted({len(start) for start in self._by_prefix})
        self._of_channel: dict[str, list[tuple[Listener, list[Interval]]]] = {}

    def of(self, key: Key) -> Listener | None:
        """Return a listener by its key."""
        return self._by_key.get(key) or self._by_key.get((key[0], None))

    def at(self, channel: str, ts: int) -> list[Listener]:
        """Return those that were subscribed to a channel at a time."""
        known = self._of_channel.get(channel)
        if known is None:
            near = {key: one for n in self._lengths for key, one in self._by_prefix.get(channel[:n], {}).items()}
            known = [(one, times) for one in near.values() if (times := one.times(channel))]
            self._of_channel[channel] = known
        return [one for one, times in known if any(start <= ts <= end for start, end in times)]

    def ever(self, channel: str) -> bool:
        """Return whether any listener was ever subscribed to a channel."""
        self.at(channel, 0)
        return bool(self._of_channel[channel])

    def had_gap(self, one: Listener, ts: int) -> bool:
        """Return whether a listener may have missed what was sent at a time."""
        gaps = self._gaps.get(one.key[0])
        return gaps is not None and ts in gaps

    def is_redacted(self, one: Listener, channel: str) -> bool:
        """Return whether receptions by a listener on a channel were redacted, so that they cannot be matched."""
        return (one.key[0], channel) in self._redacted


async def listeners_of(database: Database, of: Experiment, *, redacted: bool) -> Listeners:
    """Return the listeners of an experiment. `redacted` says whether events may be redacted.

    A Messager listens from the mark of its subscription. A tap listens on the patterns of its row, from its first
    event or a second after its start. A recorder with neither, as in earlier versions, listens on the channels from
    which it has receptions, from its first event.
    """
    rows = await recorders_of(database, of.id)
    found: dict[Key, Listener] = {}
    by_id = {row.id: row for row in rows}
    for ts, recorder_id, messager_id, patterns, added in await _subscriptions(database, of, rows):
        one = found.setdefault((recorder_id, messager_id), Listener((recorder_id, messager_id), by_id[recorder_id]))
        one.subscriptions.append((ts, patterns, added))
    marked = {recorder_id for recorder_id, _ in found}
    names = await all_names(database, of.id, CHANNEL)
    for row in rows:
        if row.id in marked or row.first_ts is None:
            continue
        if row.patterns:
            start = row.session[0] + SUBSCRIBING_NS if row.session[0] > 0 else row.first_ts
            patterns = row.patterns
        elif row.kinds["received"]:
            start, patterns = row.first_ts, [channels.literal(names[n]) for n in await _heard(database, of, row)]
        else:
            continue
        found[row.id, None] = Listener((row.id, None), row, [(min(start, row.first_ts), patterns, False)])
    for row in rows:
        if row.kinds["received"] and (row.id in marked or (row.id, None) in found):
            for key, ts in (await _reached(database, row)).items():
                for own in {key, (row.id, None)} & found.keys():
                    found[own].reached_until = max(ts, found[own].reached_until or ts)
    hidden = await _redacted(database, of) if redacted else set()
    return Listeners(
        list(found.values()),
        await _gaps(database, of, rows),
        {(recorder_id, names[number]) for recorder_id, number in hidden},
    )


async def _subscriptions(
    database: Database, of: Experiment, rows: list[RecorderRow]
) -> list[tuple[int, int, int | None, list[str], bool]]:
    """Return time, recorder, Messager, patterns and `added` of each mark of a subscription, in replay order."""
    if not any(row.kinds["mark"] for row in rows):
        return []
    query = (
        select(event.c.id, event.c.ts, event.c.messager_id, event.c.attributes)
        .where(event.c.experiment_id == of.id, event.c.kind == _MARK, event.c.attributes.contains(SUBSCRIBED))
        .order_by(event.c.ts, event.c.id)
    )
    async with database.reading() as connection:
        marks = (await connection.execute(query)).all()
    found = []
    for number, ts, messager_id, attributes in marks:
        mark = meta_of(attributes)
        fields = mark.get("fields")
        if mark.get("name") != SUBSCRIBED or not isinstance(fields, dict):
            continue
        if isinstance(patterns := fields.get("patterns"), list):
            known = [pattern for pattern in patterns if isinstance(pattern, str)]
            found.append((ts, number >> SEQ_BITS, messager_id, known, bool(fields.get("added"))))
    return found


async def _heard(database: Database, of: Experiment, row: RecorderRow) -> list[int]:
    """Return the ids of the channels on which a recorder received something."""
    query = (
        select(event.c.channel_id)
        .where(event.c.id.between(row.id << SEQ_BITS, row.id << SEQ_BITS | SEQ_MASK), event.c.kind == _RECEIVED)
        .where(event.c.channel_id.is_not(None))
        .distinct()
    )
    async with database.reading() as connection:
        return list((await connection.execute(query)).scalars())


async def _reached(database: Database, row: RecorderRow) -> dict[Key, int]:
    """Return `ts` of the last sending that reached each Messager of a recorder.

    It is among the receptions of the last minute: none takes longer.
    """
    mine = delivery.c.event_id.between(row.id << SEQ_BITS, row.id << SEQ_BITS | SEQ_MASK)
    last = (
        select(event.c.messager_id, func.max(delivery.c.received_at))
        .join(event, event.c.id == delivery.c.event_id)
        .where(mine)
        .group_by(event.c.messager_id)
    )
    reception, sending = event.alias(), event.alias()
    found: dict[Key, int] = {}
    async with database.reading() as connection:
        for messager_id, received_at in (await connection.execute(last)).all():
            sent_at = (
                select(func.max(sending.c.ts))
                .select_from(delivery)
                .join(reception, reception.c.id == delivery.c.event_id)
                .join(sending, sending.c.id == delivery.c.sending_id)
                .where(mine, delivery.c.received_at >= received_at - WITHIN_NS)
                .where(reception.c.messager_id.is_not_distinct_from(messager_id))
            )
            found[row.id, messager_id] = (await connection.execute(sent_at)).scalar_one()
    return found


async def _gaps(database: Database, of: Experiment, rows: list[RecorderRow]) -> dict[int, Times]:
    """Return the times in which each recorder may have missed messages. A repair logs those of another recorder."""
    if not any(row.kinds["gap"] for row in rows):
        return {}
    columns = event.c.id, event.c.ts, event.c.attributes
    query = select(*columns).where(event.c.experiment_id == of.id, event.c.kind == _GAP)
    by_ordinal = {row.ordinal: row.id for row in rows}
    found: dict[int, list[Interval]] = {}
    async with database.reading() as connection:
        for number, ts, attributes in await connection.execute(query):
            gap = gap_of(meta_of(attributes))
            recorder_id = by_ordinal.get(gap.recorder or 0, number >> SEQ_BITS)
            found.setdefault(recorder_id, []).append(gap.within(ts))
    return {recorder_id: Times(intervals) for recorder_id, intervals in found.items()}


async def _redacted(database: Database, of: Experiment) -> set[tuple[int, int]]:
    """Return recorder and channel of redacted receptions."""
    query = (
        select(RECORDER_ID, event.c.channel_id)
        .where(event.c.experiment_id == of.id, event.c.kind == _RECEIVED, event.c.flags.op("&")(REDACTED) != 0)
        .distinct()
    )
    async with database.reading() as connection:
        return {(recorder_id, channel_id) for recorder_id, channel_id in await connection.execute(query)}
