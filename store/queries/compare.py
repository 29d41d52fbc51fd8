"""Two experiments side by side: per channel, in replay order, the same payloads or the first that differs."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from hashlib import sha256

from messager import channels
from messager.brokers import BROKER_KINDS

from ..db.database import Database
from ..db.schema import CHANNEL
from ..errors import StoreError
from ..experiments.registry import Experiment, recorders_of
from ..log.channel_map import ChannelMap, spelling
from ..log.cursor import Point
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.messages import ON_THE_WIRE, message_pages
from ..log.names import all_names
from ..log.reading import Selection, Span, span_of
from .comparison import Comparison, Difference

__all__ = ["Comparison", "Difference", "compare"]

DETAILED = 100
"""Channels whose difference is given with its neighbours; the others are counted."""

_Seen = tuple[Cursor, bytes | None]
"""A message that was read: where it stands, and the digest of its payload, or None where that was redacted."""


class _Channel:
    """What is known of one channel while both sides are read."""

    __slots__ = ("ahead", "before", "counts", "index", "pair", "side", "unknown")

    def __init__(self) -> None:
        self.ahead: deque[_Seen] = deque()  # read on one side, not yet on the other
        self.side = 0
        self.counts = [0, 0]
        self.before: Cursor | None = None
        self.index = 0
        self.unknown = 0
        self.pair: tuple[list[Cursor], list[Cursor]] | None = None
        """Once it differs: the cursors of the first difference and what follows it, for A and B."""

    def meet(self, side: int, seen: _Seen) -> None:
        """One more message: hold it against the other side's, or keep it until that comes."""
        self.counts[side] += 1
        if self.pair is not None:
            if len(self.pair[side]) < 2:
                self.pair[side].append(seen[0])
        elif not self.ahead or self.side == side:
            self.side = side
            self.ahead.append(seen)
        else:
            other = self.ahead.popleft()
            if other[1] == seen[1] or other[1] is None or seen[1] is None:
                self.unknown += other[1] is None or seen[1] is None
                self.before = seen[0] if side == 0 else other[0]
                self.index += 1
            else:
                theirs = [other[0], *(cursor for cursor, _ in list(self.ahead)[:1])]
                self.pair = ([seen[0]], theirs) if side == 0 else (theirs, [seen[0]])
                self.ahead.clear()

    def end(self) -> None:
        """Nothing more comes: what still waits has no counterpart."""
        if self.pair is None and self.ahead:
            left = [cursor for cursor, _ in list(self.ahead)[:2]]
            self.pair = (left, []) if self.side == 0 else ([], left)
            self.ahead.clear()


async def compare(
    log: EventLog,
    a: str | Experiment,
    b: str | Experiment,
    *,
    log_b: EventLog | None = None,
    selection: Selection | None = None,
    since: Point = None,
    until: Point = None,
    after: Point = None,
    limit: int | None = None,
    mapping: ChannelMap | None = None,
    keep_names: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare the messages of two experiments (as a replay would publish them), payload by payload.

    `selection`, `since`, `until`, `after` and `limit` are as for `EventLog.read`, and hold for each side: a point is
    looked for in each experiment, and `limit` counts the messages of each. Kinds of event that are given are compared
    instead of the messages. `StoreError` is raised for gaps and marks, which hold no message.

    `mapping` renames A's channels first; `log_b` is B's log where it is another store. Where one comes from Redis and
    the other from MQTT, `exps/...` counts as `exps:...` on both sides, and `selection` may name either, unless
    `keep_names`. Of an import, which does not tell where it comes from, its names do, where they are all alike.
    Memory grows only with how far one side runs ahead of the other on a channel, by a
    digest a message. What was redacted on one side is taken for the same as what stands across, and counted.
    `progress` is told how many messages were read.
    """
    other = log_b or log
    of_a = a if isinstance(a, Experiment) else await log.experiment(a)
    of_b = b if isinstance(b, Experiment) else await other.experiment(b)
    chosen = selection or Selection()
    if chosen.kinds and not chosen.kinds <= ON_THE_WIRE:
        raise StoreError("gaps and marks were never on the wire: they cannot be compared")
    spelt = {await _spelling(log.database, of_a), await _spelling(other.database, of_b)}
    as_one = not keep_names and spelt == {":", "/"}
    if as_one:
        chosen = _EitherSpelling(chosen)
    result = Comparison(of_a.exp_id, of_b.exp_id, translated=as_one)
    known: dict[str, _Channel] = {}
    part = since, until, after, limit
    sides = [
        _messages(log.database, of_a, chosen, await span_of(log.database, of_a, *part), mapping, as_one),
        _messages(other.database, of_b, chosen, await span_of(other.database, of_b, *part), None, as_one),
    ]
    read = [0, 0]
    open_ = [True, True]
    while any(open_):
        # the side that is behind, so that little has to wait in memory
        side = 0 if open_[0] and (read[0] <= read[1] or not open_[1]) else 1
        message = await anext(sides[side], None)
        if message is None:
            open_[side] = False
            continue
        read[side] += 1
        if progress is not None and sum(read) % 1000 == 0:
            progress(sum(read))
        name, seen = message
        channel = known.get(name)
        if channel is None:
            channel = known[name] = _Channel()
        channel.meet(side, seen)
    result.messages_a, result.messages_b = read
    result.channels = len(known)
    if mapping is None:
        result.exp_ids = _apart_by_exp_id(known)
    for name in sorted(known):
        channel = known[name]
        channel.end()
        result.redacted += channel.unknown
        if channel.pair is not None:
            result.differing += 1
            if result.differing <= DETAILED:
                result.differences.append(await _detailed(name, channel, log, of_a, other, of_b))
    return result


def _apart_by_exp_id(known: dict[str, _Channel]) -> tuple[str, str] | None:
    """The exp_ids in the names of both sides, where no channel is on both and B's exp_id in A's names changes that."""
    a, b = ({name for name, channel in known.items() if channel.counts[side]} for side in (0, 1))
    if a & b:
        return None
    of_a, of_b = ({parsed.exp_id for name in names if (parsed := channels.parse(name))} for names in (a, b))
    if len(of_a) != 1 or len(of_b) != 1:
        return None
    [exp_a], [exp_b] = of_a, of_b
    try:
        renamed = ChannelMap(None, exp_b)
    except StoreError:
        return None
    return (exp_a, exp_b) if any(channels.decode(renamed(name)) in b for name in a) else None


async def _detailed(
    name: str, channel: _Channel, log: EventLog, of_a: Experiment, other: EventLog, of_b: Experiment
) -> Difference:
    """A difference with the events themselves."""
    assert channel.pair is not None
    a = [await _at(log, of_a, cursor) for cursor in channel.pair[0]] + [None, None]
    b = [await _at(other, of_b, cursor) for cursor in channel.pair[1]] + [None, None]
    before = None if channel.before is None else await _at(log, of_a, channel.before)
    return Difference(name, channel.index, a[0], b[0], before, a[1], b[1], *channel.counts)


async def _at(log: EventLog, of: Experiment, cursor: Cursor) -> Event | None:
    async for entry in log.read(of, since=cursor, limit=1):
        return entry
    return None


class _EitherSpelling(Selection):
    """The same events, with channels chosen by their names as channels or as topics."""

    def __init__(self, chosen: Selection) -> None:
        vars(self).update(vars(chosen))
        self._kinds = BROKER_KINDS

    async def as_recorded(self, database: Database, of: Experiment) -> Selection:
        return self  # a filter is one for both sides, as one of them is of MQTT

    def takes_channel(self, channel: str | None) -> bool:
        names = (
            [] if channel is None else [channels.with_separator(channel, ":"), channels.with_separator(channel, "/")]
        )
        if self.channels is not None and not any(self.fits(self.channels, name) for name in names):
            return False
        return self.exclude is None or not any(self.fits(self.exclude, name) for name in names)


async def _spelling(database: Database, of: Experiment) -> channels.Separator | None:
    brokers = [row.broker for row in await recorders_of(database, of.id)]
    return spelling(brokers, (await all_names(database, of.id, CHANNEL)).values())


async def _messages(
    database: Database,
    of: Experiment,
    chosen: Selection,
    span: Span,
    mapping: ChannelMap | None,
    as_one: bool,
) -> AsyncIterator[tuple[str, _Seen]]:
    async for page in message_pages(database, of, chosen, span, redacted=True):
        for entry in page:
            channel = entry.channel or ""
            name = channel if mapping is None else channels.decode(mapping(channel))
            if as_one:
                name = channels.with_separator(name, ":")
            yield name, (entry.cursor, None if entry.redacted else sha256(entry.payload).digest())
