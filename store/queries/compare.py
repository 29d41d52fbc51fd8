"""Comparison of two experiments: per channel, in replay order, the first payload that differs."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from hashlib import sha256

from messager import channels
from messager.brokers import BROKER_KINDS

from ..db.database import Database
from ..errors import StoreError
from ..experiments.records import Experiment
from ..log.channel_map import ChannelMap, spelling
from ..log.cursor import Point
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.messages import ON_THE_WIRE, message_pages
from ..log.reading import Span
from ..log.selection import Selection
from .comparison import Comparison, Difference

__all__ = ["Comparison", "Difference", "compare"]

DETAILED = 100
"""Maximum number of channels whose difference is returned; the others are only counted."""

_Seen = tuple[Cursor, bytes | None]
"""Cursor of a message, and the digest of its payload, or None if it was redacted."""


class _ChannelComparison:
    """Comparison of one channel while both sides are read; side 0 is A, side 1 is B."""

    __slots__ = ("ahead", "before", "counts", "index", "pair", "redacted", "side")

    def __init__(self) -> None:
        self.ahead: deque[_Seen] = deque()
        """Messages of `side` without a counterpart so far."""
        self.side = 0
        self.counts = [0, 0]
        self.before: Cursor | None = None
        self.index = 0
        """Number of equal messages so far; `before` is the last of them."""
        self.redacted = 0
        self.pair: tuple[list[Cursor], list[Cursor]] | None = None
        """After the first difference: its cursors and those of the next messages, of A and B."""

    def add(self, side: int, seen: _Seen) -> None:
        """Compare a message with its counterpart, or keep it until that is read."""
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
                self.redacted += other[1] is None or seen[1] is None
                self.before = seen[0] if side == 0 else other[0]
                self.index += 1
            else:
                theirs = [other[0], *(cursor for cursor, _ in list(self.ahead)[:1])]
                self.pair = ([seen[0]], theirs) if side == 0 else (theirs, [seen[0]])
                self.ahead.clear()

    def end(self) -> None:
        """Both sides are read: the first message without a counterpart is the difference."""
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
    """Compare the payloads of the messages of two experiments. Messages are those that a replay would publish.

    `selection`, `since`, `until`, `after` and `limit` are as for `EventLog.read` and apply to each side: a point is
    resolved in each experiment, and `limit` counts the messages of each. If kinds of event are selected, these are
    compared instead of the messages. Raises `StoreError` for gaps and marks, which contain no message.

    `mapping` renames A's channels first; `log_b` is B's log if it is another store. If one side comes from Redis and
    the other from MQTT, `exps/...` counts as `exps:...` on both sides, and `selection` may use either, unless
    `keep_names`. For an import of unknown origin, the channel names decide, if they are all of one form.

    A message that is redacted on one side counts as equal to its counterpart. Memory use is one digest per message by
    which one side is ahead of the other on a channel. `progress` is called with the number of messages read.
    """
    other = log_b or log
    of_a = a if isinstance(a, Experiment) else await log.experiment(a)
    of_b = b if isinstance(b, Experiment) else await other.experiment(b)
    chosen = selection or Selection()
    if chosen.kinds and not chosen.kinds <= ON_THE_WIRE:
        raise StoreError("gaps and marks were never on the wire: they cannot be compared")
    spelt = {await _spelling(log, of_a), await _spelling(other, of_b)}
    as_one = not keep_names and spelt == {":", "/"}
    if as_one:
        chosen = _EitherSpelling(chosen)
    part = since, until, after, limit
    sides = (
        _Side(log, of_a, chosen, await log.span(of_a, *part), mapping, as_one),
        _Side(other, of_b, chosen, await other.span(of_b, *part), None, as_one),
    )
    known = await _read(sides, progress)
    result = Comparison(
        *(of_a.exp_id, of_b.exp_id, sides[0].read, sides[1].read),
        channels=len(known),
        redacted=sum(channel.redacted for channel in known.values()),
        translated=as_one,
        exp_ids=_exp_ids_apart(known) if mapping is None else None,
    )
    for name, channel in sorted(known.items()):
        if channel.pair is not None:
            result.differing += 1
            if result.differing <= DETAILED:
                result.differences.append(await _detailed(name, channel, channel.pair, sides))
    return result


async def _read(sides: tuple[_Side, _Side], progress: Callable[[int], None] | None) -> dict[str, _ChannelComparison]:
    """Read and compare both sides; return the comparison of each channel."""
    known: dict[str, _ChannelComparison] = {}
    open_ = [0, 1]
    while open_:
        side = min(open_, key=lambda at: sides[at].read)  # the side that is behind: few messages are kept in memory
        message = await anext(sides[side].messages, None)
        if message is None:
            open_.remove(side)
            continue
        sides[side].read += 1
        read = sides[0].read + sides[1].read
        if progress is not None and read % 1000 == 0:
            progress(read)
        name, seen = message
        channel = known.get(name)
        if channel is None:
            channel = known[name] = _ChannelComparison()
        channel.add(side, seen)
    for channel in known.values():
        channel.end()
    return known


def _exp_ids_apart(known: dict[str, _ChannelComparison]) -> tuple[str, str] | None:
    """Return the exp_ids in the channels of both sides if only they keep all channels apart; else None."""
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
    name: str, channel: _ChannelComparison, pair: tuple[list[Cursor], list[Cursor]], sides: tuple[_Side, _Side]
) -> Difference:
    """Return the difference on a channel, with its events."""
    a, a_next, *_ = [await sides[0].event(cursor) for cursor in (*pair[0], None, None)]
    b, b_next, *_ = [await sides[1].event(cursor) for cursor in (*pair[1], None, None)]
    return Difference(name, channel.index, a, b, await sides[0].event(channel.before), a_next, b_next, *channel.counts)


class _Side:
    """One side of a comparison: an experiment and its messages, in replay order."""

    def __init__(
        self, log: EventLog, of: Experiment, chosen: Selection, span: Span, mapping: ChannelMap | None, as_one: bool
    ) -> None:
        self._log = log
        self._of = of
        self.messages = _messages(log, of, chosen, span, mapping, as_one)
        self.read = 0

    async def event(self, cursor: Cursor | None) -> Event | None:
        """Return the event at a cursor."""
        if cursor is not None:
            async for entry in self._log.read(self._of, since=cursor, limit=1):
                return entry
        return None


class _EitherSpelling(Selection):
    """The same selection; a channel is matched by its name on Redis and by its name on MQTT."""

    def __init__(self, chosen: Selection) -> None:
        vars(self).update(vars(chosen))
        self._kinds = BROKER_KINDS

    async def as_recorded(self, database: Database, of: Experiment) -> Selection:
        return self  # one side is from MQTT, so patterns may be topic filters on both

    def takes_channel(self, channel: str | None) -> bool:
        names = (
            [] if channel is None else [channels.with_separator(channel, ":"), channels.with_separator(channel, "/")]
        )
        if self.channels is not None and not any(self.fits(self.channels, name) for name in names):
            return False
        return self.exclude is None or not any(self.fits(self.exclude, name) for name in names)


async def _spelling(log: EventLog, of: Experiment) -> channels.Separator | None:
    kinds = [row.broker_kind for row in await log.recorders(of)]
    return spelling(kinds, await log.channels(of))


async def _messages(
    log: EventLog,
    of: Experiment,
    chosen: Selection,
    span: Span,
    mapping: ChannelMap | None,
    as_one: bool,
) -> AsyncIterator[tuple[str, _Seen]]:
    async for page in message_pages(log, of, chosen, span, redacted=True):
        for entry in page:
            channel = entry.channel or ""
            name = channel if mapping is None else channels.decode(mapping(channel))
            if as_one:
                name = channels.with_separator(name, ":")
            yield name, (entry.cursor, None if entry.redacted else sha256(entry.payload).digest())
