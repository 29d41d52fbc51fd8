"""Comparison of two experiments: their messages aligned channel by channel.

Both sides are read once, in replay order. While a channel continues with equal messages on both sides, they are only
counted; from its first difference on, digests and positions of its messages are kept. These are aligned at the end, and
payloads are read again for what has to be looked at: unequal messages in one place, and the differences that are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from ...db.codes import REDACTED
from ...errors import StoreError
from ...experiments.records import Experiment
from ...log.channel_map import ChannelMap
from ...log.event import Event
from ...log.event_log import EventLog
from ...log.messages import ON_THE_WIRE
from ...log.selection import Filters, Selection
from ...matching.match import Match
from .absent_paths import AbsentPaths
from .canonical import Canonical
from .channel_differences import ChannelDifferences, Place, differences_of
from .channel_tails import ChannelTails, Content
from .result import ChannelCounts, Comparison, Counts, Difference
from .rows import AlignedRows
from .side import EitherSpelling, Side, comparable, exp_ids_apart, parts_of, spelt_apart

__all__ = ["ChannelCounts", "Comparison", "Counts", "Difference", "compare"]

DETAILED = 100
"""Default number of differences that are returned; the others are only counted."""


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
    details: int = DETAILED,
    rows: AlignedRows | None = None,
    progress: Callable[[int], None] | None = None,
    **filters: Unpack[Filters],
) -> Comparison:
    """Align the messages of two experiments by their payloads. Messages are those that a replay would publish.

    On each channel, a message of A is equal to one of B in the same order, moved (equal, but at another place), changed
    (another one is in its place, the most similar if there are several), or only in A; other messages are only in B.
    The first `details` differences are returned with their events, in the replay order of A.

    The selection applies to each side: a point is resolved in each experiment, and `limit` counts the messages of each.
    If kinds of event are selected, these are compared instead of the messages. Raises `StoreError` for gaps and marks,
    which contain no message, for a selection with `context` or `last_per`, and if events are removed meanwhile.

    `mapping` renames A's channels first; `log_b` is B's log if it is another store. Without a mapping, channels of A's
    experiment are compared as channels of B's, if the channels of each side name one experiment (`Comparison.exp_ids`).
    If one side comes from Redis and the other from MQTT, `exps/...` counts as `exps:...` on both sides, and `selection`
    may use either. For an import of unknown origin, the channel names decide, if they are all of one form. With
    `keep_names`, names are compared as they were recorded.

    Payloads are compared byte for byte, or by `match`: `Match()` compares JSON values. Its judge is asked about
    messages that would count as changed.

    With `by_sender`, the messages of each sender on a channel are compared on their own. The order between the senders
    of a channel then makes no difference, as in a replay with live agents, which reproduces the order of each Messager.
    Channels on which one side does not know all senders are compared as a whole.

    A message that is redacted on one side counts as equal to its counterpart. Memory use is about 350 bytes for each
    message behind the first difference of its channel, and for each by which one side is ahead of the other on a
    channel. Of a channel with more than a hundred messages behind its opening of which both sides have less than a
    tenth, only anchors are aligned (`ChannelCounts.by_anchors`). All messages are added to `rows`, equal ones as well.
    `progress` is called with the number of messages read.
    """
    other = log_b or log
    of_a = a if isinstance(a, Experiment) else await log.experiment(a)
    of_b = b if isinstance(b, Experiment) else await other.experiment(b)
    chosen = comparable(selection, filters)
    if chosen.kinds and not chosen.kinds <= ON_THE_WIRE:
        raise StoreError("gaps and marks were never on the wire: they cannot be compared")
    as_one = not keep_names and await spelt_apart([(log, of_a), (other, of_b)])
    if as_one:
        chosen = EitherSpelling(chosen)
    exp_ids = None if keep_names or mapping is not None else await exp_ids_apart((log, of_a), (other, of_b))
    if exp_ids is not None:
        mapping = ChannelMap(None, exp_ids[1])
    sides = (
        Side(log, of_a, chosen, await chosen.span(log.database, of_a), mapping, as_one, by_sender),
        Side(other, of_b, chosen, await chosen.span(other.database, of_b), None, as_one, by_sender),
    )
    if by_sender:
        whole = set[str]().union(*[await side.without_senders() for side in sides])
        for side in sides:
            side.leave_whole(whole)
    if match is not None and match.bytes_only and match.judge is None:
        match = None
    absent = AbsentPaths(() if match is None else (*match.own_ignore, *match.shape))
    canonical = Canonical(match)
    known = await _read(_Reading(sides, canonical, match is not None, rows), sides, absent, progress)
    result = Comparison(
        *(of_a.exp_id, of_b.exp_id, sides[0].read, sides[1].read),
        channels=len(known),
        translated=as_one,
        exp_ids=exp_ids,
        by_sender=by_sender,
        absent_paths=absent.paths,
    )
    first: list[Place] = []
    for key in sorted(known):
        found = await differences_of(key, known[key], sides, canonical, match, details, rows)
        _count(result, key, known[key], found)
        first = sorted([*first, *found.places[:details]], key=lambda place: place.order)[:details]
        if not found.places:
            del known[key]
    result.by_channel.sort(key=lambda row: row.first)
    result.differences = await _detailed(first, known, sides, match)
    return result


def _count(result: Comparison, key: str, channel: ChannelTails, found: ChannelDifferences) -> None:
    """Add the counts of a channel to the result."""
    counted = found.counts
    counts = Counts(found.equal, counted["moved"], counted["changed"], counted["only_a"], counted["only_b"])
    result.messages += counts
    result.redacted += found.redacted
    result.matched += found.matched
    if found.places:
        name, sender = parts_of(key)
        of_a, of_b = channel.counts
        row = ChannelCounts(name, sender, of_a, of_b, counts, found.places[0].order, found.by_anchors)
        result.by_channel.append(row)


async def _read(
    reading: _Reading, sides: tuple[Side, Side], absent: AbsentPaths, progress: Callable[[int], None] | None
) -> dict[str, ChannelTails]:
    """Read both sides; return the opening of each channel and what follows."""
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
            reading.compare(waiting[0][:together], waiting[1][:together])
        for side in (0, 1):
            rest = waiting[side][together:]
            if not together or ended[1 - side]:  # the other side has ended
                for entry in rest:
                    reading.add(side, entry)
                rest = []
            waiting[side] = rest
        read = sides[0].read + sides[1].read
        if progress is not None and read // 1000 > told // 1000:
            progress(read)
        told = read
    return reading.known


class _Reading:
    """The channels of both sides while these are read."""

    def __init__(
        self, sides: tuple[Side, Side], canonical: Canonical, by_value: bool, rows: AlignedRows | None
    ) -> None:
        self.known: dict[str, ChannelTails] = {}
        self._sides, self._canonical, self._by_value, self._rows = sides, canonical, by_value, rows

    def compare(self, these: list[Event], those: list[Event]) -> None:
        """Add as many messages of either side, in replay order.

        If neither side is ahead on a channel, and both continue with equal messages of it, their digests are not
        needed.
        """
        side_a, side_b = self._sides
        known, name_a, name_b, by_sender = self.known, side_a.name, side_b.name, side_a.by_sender
        for a, b in zip(these, those, strict=True):
            name = side_a.key(a) if by_sender else name_a(a.channel)
            channel = known.get(name)
            if (
                channel is not None
                and channel.level
                and a.payload == b.payload
                and name == (side_b.key(b) if by_sender else name_b(b.channel))
                and not (a.flags | b.flags) & REDACTED
            ):
                channel.counts[0] += 1
                channel.counts[1] += 1
                channel.opening += 1
                channel.last, channel.shift = a, 0
                if self._rows is not None:
                    self._rows.add(name, "equal", side_a.read, side_b.read)
                side_a.read += 1
                side_b.read += 1
            else:
                self.add(0, a)
                self.add(1, b)

    def add(self, side: int, entry: Event) -> None:
        """Add a message."""
        reading = self._sides[side]
        name = reading.key(entry)
        channel = self.known.get(name)
        if channel is None:
            channel = self.known[name] = ChannelTails()
        if entry.redacted:
            content = Content(None, (), 0)
        else:
            content = Content(*self._canonical.digest(entry.payload), hash(entry.payload) if self._by_value else 0)
        counterpart = channel.counterpart(side)
        near = counterpart is None or self._canonical.near(content.numbers, counterpart.numbers)
        equal = channel.add(side, entry, content, reading.read, near)
        if equal is not None and self._rows is not None:
            self._rows.add(name, "equal", *((equal, reading.read) if side else (reading.read, equal)))
        reading.read += 1


async def _detailed(
    places: list[Place], known: dict[str, ChannelTails], sides: tuple[Side, Side], match: Match | None
) -> list[Difference]:
    """Return differences with their events, the first one with its neighbours."""
    events_a = await sides[0].events(place.a for place in places if place.a is not None)
    events_b = await sides[1].events(place.b for place in places if place.b is not None)
    found = []
    for place in places:
        name, sender = parts_of(place.key)
        a = None if place.a is None else events_a[place.a]
        b = None if place.b is None else events_b[place.b]
        of_a, of_b = known[place.key].counts
        found.append(Difference(name, place.kind, a, b, place.index_a, place.index_b, of_a, of_b, match, sender))
    if found:
        await _add_neighbours(found[0], known[places[0].key], sides)
    return found


async def _add_neighbours(difference: Difference, channel: ChannelTails, sides: tuple[Side, Side]) -> None:
    """Add the message before a difference, and the next ones of both sides."""
    index, side = (difference.index_a, 0) if difference.index_a is not None else (difference.index_b or 0, 1)
    wanted = [(0, channel.before) if index == channel.opening else (side, channel.cursor(side, index - 1))]
    for at, own in enumerate((difference.index_a, difference.index_b)):
        wanted.append((at, None if own is None else channel.cursor(at, own + 1)))
    neighbours = []
    for at, cursor in wanted:
        found = {} if cursor is None else await sides[at].events([cursor])
        neighbours.append(found.get(cursor) if cursor is not None else None)
    difference.before, difference.a_next, difference.b_next = neighbours
