"""Comparison of two experiments: per channel, in replay order, the first payload that differs."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import Unpack

from messager import channels
from messager.brokers import BROKER_KINDS

from ..db.codes import REDACTED
from ..db.database import Database
from ..errors import StoreError
from ..experiments.records import Experiment
from ..log.channel_map import ChannelMap, spelling
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.messages import ON_THE_WIRE, message_pages
from ..log.selection import Filters, Selection, selection_of
from ..log.span import Span
from .absent_paths import AbsentPaths
from .comparison import Comparison, Difference
from .match import Match

__all__ = ["Comparison", "Difference", "compare"]

DETAILED = 100
"""Maximum number of channels whose difference is returned; the others are only counted."""

_MOST_NAMES = 100_000
_SENDER = "\0from "
"""Between a channel and its sender in a key."""

_Seen = tuple[Cursor, bytes | None]
"""Cursor of a message, and the digest of its payload (with a `Match` its payload), or None if it was redacted."""
_Pair = tuple[_Seen, _Seen]
"""A message of A and its counterpart of B."""


class _ChannelComparison:
    """Comparison of one channel while both sides are read; side 0 is A, side 1 is B."""

    __slots__ = ("_before", "ahead", "counts", "index", "last", "matched", "pair", "redacted", "side")

    def __init__(self) -> None:
        self.ahead: deque[_Seen] = deque()
        """Messages of `side` without a counterpart so far."""
        self.side = 0
        self.counts = [0, 0]
        self._before: Cursor | None = None
        self.last: Event | None = None
        """A's last equal message, if it was found without digests."""
        self.index = 0
        """Number of equal messages so far; `before` is the last of them."""
        self.redacted = 0
        self.matched = 0
        """Number of messages that are equal by the `Match`, but not byte for byte."""
        self.pair: tuple[list[Cursor], list[Cursor]] | None = None
        """After the first difference: its cursors and those of the next messages, of A and B."""

    @property
    def before(self) -> Cursor | None:
        """Cursor of A's last equal message."""
        return self._before if self.last is None else self.last.cursor

    def add(self, side: int, seen: _Seen) -> _Pair | None:
        """Compare a message with its counterpart, or keep it until that is read. Return the two if they are unequal."""
        self.counts[side] += 1
        if self.pair is not None:
            if len(self.pair[side]) < 2:
                self.pair[side].append(seen[0])
        elif not self.ahead or self.side == side:
            self.side = side
            self.ahead.append(seen)
        else:
            other = self.ahead.popleft()
            a, b = (seen, other) if side == 0 else (other, seen)
            if a[1] != b[1] and a[1] is not None and b[1] is not None:
                return a, b
            self.redacted += a[1] is None or b[1] is None
            self.equal(a)
        return None

    def equal(self, a: _Seen) -> None:
        """Count a message of A that is equal to its counterpart."""
        self._before, self.last = a[0], None
        self.index += 1

    def differ(self, a: _Seen, b: _Seen) -> None:
        """These are the first messages that differ."""
        self.pair = [a[0]], [b[0]]
        self.pair[self.side].extend(cursor for cursor, _ in list(self.ahead)[:1])
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
    mapping: ChannelMap | None = None,
    keep_names: bool = False,
    match: Match | None = None,
    by_sender: bool = False,
    progress: Callable[[int], None] | None = None,
    **filters: Unpack[Filters],
) -> Comparison:
    """Compare the payloads of the messages of two experiments. Messages are those that a replay would publish.

    The selection applies to each side: a point is resolved in each experiment, and `limit` counts the messages of each.
    Its `context` and `last_per` do not count. If kinds of event are selected, these are
    compared instead of the messages. Raises `StoreError` for gaps and marks, which contain no message.

    `mapping` renames A's channels first; `log_b` is B's log if it is another store. If one side comes from Redis and
    the other from MQTT, `exps/...` counts as `exps:...` on both sides, and `selection` may use either, unless
    `keep_names`. For an import of unknown origin, the channel names decide, if they are all of one form.

    Payloads are compared byte for byte, or by `match`: `Match()` compares JSON values. It changes which payloads are
    equal, not the order: a message is compared with the one at the same position of its channel.

    With `by_sender`, the messages of each sender on a channel are compared on their own. The order between the senders
    of a channel then makes no difference, as in a replay with live agents, which reproduces the order of each Messager.

    A message that is redacted on one side counts as equal to its counterpart. Memory use is one digest per message by
    which one side is ahead of the other on a channel; with `match` it is one payload. `progress` is called with the
    number of messages read.
    """
    other = log_b or log
    of_a = a if isinstance(a, Experiment) else await log.experiment(a)
    of_b = b if isinstance(b, Experiment) else await other.experiment(b)
    chosen = selection_of(selection, filters)
    if chosen.kinds and not chosen.kinds <= ON_THE_WIRE:
        raise StoreError("gaps and marks were never on the wire: they cannot be compared")
    spelt = {await _spelling(log, of_a), await _spelling(other, of_b)}
    as_one = not keep_names and spelt == {":", "/"}
    if as_one:
        chosen = _EitherSpelling(chosen)
    sides = (
        _Side(log, of_a, chosen, await chosen.span(log.database, of_a), mapping, as_one, by_sender),
        _Side(other, of_b, chosen, await chosen.span(other.database, of_b), None, as_one, by_sender),
    )
    if match is not None and match.bytes_only and match.judge is None:
        match = None
    absent = AbsentPaths(() if match is None else (*match.ignore, *match.shape))
    known = await _read(sides, match, absent, progress)
    result = Comparison(
        *(of_a.exp_id, of_b.exp_id, sides[0].read, sides[1].read),
        channels=len(known),
        redacted=sum(channel.redacted for channel in known.values()),
        matched=sum(channel.matched for channel in known.values()),
        translated=as_one,
        exp_ids=_exp_ids_apart(known) if mapping is None else None,
        by_sender=by_sender,
        absent_paths=absent.paths,
    )
    for name, channel in sorted(known.items()):
        if channel.pair is not None:
            result.differing += 1
            if result.differing <= DETAILED:
                result.differences.append(await _detailed(name, channel, channel.pair, sides, match))
    return result


async def _read(
    sides: tuple[_Side, _Side], match: Match | None, absent: AbsentPaths, progress: Callable[[int], None] | None
) -> dict[str, _ChannelComparison]:
    """Read and compare both sides; return the comparison of each channel."""
    known: dict[str, _ChannelComparison] = {}
    waiting: list[list[Event]] = [[], []]
    ended = [False, False]
    told = 0
    while not all(ended):
        for side in (0, 1):
            if not waiting[side] and not ended[side]:
                page = await anext(sides[side].pages, None)
                ended[side] = page is None
                waiting[side] = page or []
                if absent.paths:
                    for entry in waiting[side]:
                        absent.search(entry.payload)
        together = min(map(len, waiting))
        if together:
            await _compare(sides, match, known, waiting[0][:together], waiting[1][:together])
        for side in (0, 1):
            rest = waiting[side][together:]
            if not together or ended[1 - side]:  # the other side has ended
                for entry in rest:
                    await _add(sides, match, known, side, entry)
                rest = []
            sides[side].read += len(waiting[side]) - len(rest)
            waiting[side] = rest
        read = sides[0].read + sides[1].read
        if progress is not None and read // 1000 > told // 1000:
            progress(read)
        told = read
    for channel in known.values():
        channel.end()
    return known


async def _compare(
    sides: tuple[_Side, _Side],
    match: Match | None,
    known: dict[str, _ChannelComparison],
    these: list[Event],
    those: list[Event],
) -> None:
    """Compare as many messages of either side, in replay order.

    If neither side is ahead on a channel, and both continue with equal messages of it, their digests are not needed.
    """
    name_a, name_b = sides[0].name, sides[1].name
    key_a, key_b = sides[0].key, sides[1].key
    by_sender = sides[0].by_sender
    for a, b in zip(these, those, strict=True):
        name = key_a(a) if by_sender else name_a(a.channel)
        channel = known.get(name)
        if (
            channel is not None
            and not channel.ahead
            and channel.pair is None
            and a.payload == b.payload
            and name == (key_b(b) if by_sender else name_b(b.channel))
            and not (a.flags | b.flags) & REDACTED
        ):
            channel.counts[0] += 1
            channel.counts[1] += 1
            channel.index += 1
            channel.last = a
        else:
            await _add(sides, match, known, 0, a)
            await _add(sides, match, known, 1, b)


async def _add(
    sides: tuple[_Side, _Side], match: Match | None, known: dict[str, _ChannelComparison], side: int, entry: Event
) -> None:
    """Compare a message with its counterpart on the other side, or keep it until that is read."""
    name = sides[side].key(entry)
    channel = known.get(name)
    if channel is None:
        channel = known[name] = _ChannelComparison()
    content = None if entry.redacted else entry.payload if match is not None else sha256(entry.payload).digest()
    unequal = channel.add(side, (entry.cursor, content))
    if unequal is None:
        return
    (_, of_a), (_, of_b) = unequal
    if match is not None and of_a is not None and of_b is not None and await match.accepts(of_a, of_b):
        channel.matched += 1
        channel.equal(unequal[0])
    else:
        channel.differ(*unequal)


def _exp_ids_apart(known: dict[str, _ChannelComparison]) -> tuple[str, str] | None:
    """Return the exp_ids in the channels of both sides if only they keep all channels apart; else None."""
    a, b = ({_parts(key)[0] for key, channel in known.items() if channel.counts[side]} for side in (0, 1))
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


def _parts(key: str) -> tuple[str, str]:
    """Return the channel and the sender, as JSON, of a key of `_Side.key`; without `by_sender`, the sender is empty."""
    name, _, sender = key.partition(_SENDER)
    return name, sender


async def _detailed(
    key: str,
    channel: _ChannelComparison,
    pair: tuple[list[Cursor], list[Cursor]],
    sides: tuple[_Side, _Side],
    match: Match | None,
) -> Difference:
    """Return the difference on a channel, with its events."""
    a, a_next, *_ = [await sides[0].event(cursor) for cursor in (*pair[0], None, None)]
    b, b_next, *_ = [await sides[1].event(cursor) for cursor in (*pair[1], None, None)]
    before = await sides[0].event(channel.before)
    counts = {"messages_a": channel.counts[0], "messages_b": channel.counts[1]}
    name, sender = _parts(key)
    return Difference(name, channel.index, a, b, before, a_next, b_next, **counts, match=match, sender=sender)


class _Side:
    """One side of a comparison: an experiment and its messages, in replay order."""

    def __init__(
        self,
        log: EventLog,
        of: Experiment,
        chosen: Selection,
        span: Span,
        mapping: ChannelMap | None,
        as_one: bool,
        by_sender: bool,
    ) -> None:
        self._log = log
        self._of = of
        self.pages = message_pages(log, of, chosen, span, redacted=True, brief=not by_sender)
        self.by_sender = by_sender
        self.read = 0
        """Number of messages compared."""
        self._mapping = mapping
        self._as_one = as_one
        self._names: dict[str | None, str] = {}

    def key(self, entry: Event) -> str:
        """Return what a message is compared by: its channel, or with `by_sender`, its channel and its sender."""
        name = self.name(entry.channel)
        return f"{name}{_SENDER}{json.dumps(entry.from_id)}" if self.by_sender else name

    def name(self, channel: str | None) -> str:
        """Return the name under which a channel is compared."""
        found = self._names.get(channel)
        if found is None:
            text = channel or ""
            found = text if self._mapping is None else channels.decode(self._mapping(text))
            if self._as_one:
                found = channels.with_separator(found, ":")
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            self._names[channel] = found
        return found

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
