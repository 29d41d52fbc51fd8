"""Two experiments side by side: per channel, in replay order, the same payloads or the first that differs."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from messager import channels

from .database import Database
from .event import Event
from .experiments import Experiment
from .log import EventLog
from .messages import message_pages
from .reading import Selection, Span
from .replay.channelmap import ChannelMap


@dataclass(slots=True)
class Difference:
    """Where one channel first differs, with the neighbours on both sides."""

    channel: str
    index: int
    """The place within the channel, from 0."""
    a: Event | None
    """What A has there; None where A has ended."""
    b: Event | None
    before: Event | None
    """The last message that was the same (A's), or None."""
    a_next: Event | None = None
    b_next: Event | None = None


@dataclass(slots=True)
class Comparison:
    """What a comparison found."""

    a: str
    b: str
    messages_a: int = 0
    messages_b: int = 0
    channels: int = 0
    """Channels that either has."""
    same: int = 0
    """Channels with the same payloads in the same order."""
    differences: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.differences


class _Channel:
    """What is known of one channel while both sides are read."""

    __slots__ = ("ahead", "before", "difference", "index", "side")

    def __init__(self) -> None:
        self.ahead: deque[Event] = deque()  # read on one side, not yet on the other
        self.side = 0
        self.before: Event | None = None
        self.index = 0
        self.difference: Difference | None = None


async def compare(
    log: EventLog,
    a: str | Experiment,
    b: str | Experiment,
    *,
    log_b: EventLog | None = None,
    selection: Selection | None = None,
    mapping: ChannelMap | None = None,
) -> Comparison:
    """Compare the messages of two experiments (as a replay would publish them), payload by payload.

    `mapping` renames A's channels first; `log_b` is B's log where it is another store.
    Memory grows only with how far one side runs ahead of the other on a channel.
    """
    other = log_b or log
    of_a = a if isinstance(a, Experiment) else await log.experiment(a)
    of_b = b if isinstance(b, Experiment) else await other.experiment(b)
    chosen = selection or Selection()
    result = Comparison(of_a.exp_id, of_b.exp_id)
    known: dict[str, _Channel] = {}
    sides = [
        _messages(log.database, of_a, chosen, mapping),
        _messages(other.database, of_b, chosen, None),
    ]
    read = [0, 0]
    open_ = [True, True]
    while any(open_):
        # the side that is behind, so that little has to wait in memory
        side = 0 if open_[0] and (read[0] <= read[1] or not open_[1]) else 1
        pair = await anext(sides[side], None)
        if pair is None:
            open_[side] = False
            continue
        read[side] += 1
        _meet(known.setdefault(pair[0], _Channel()), side, *pair)
    result.messages_a, result.messages_b = read
    for name in sorted(known):
        channel = known[name]
        if channel.difference is None and channel.ahead:
            extra = [*list(channel.ahead)[:2], None, None]
            here, there = (extra, [None, None]) if channel.side == 0 else ([None, None], extra)
            channel.difference = Difference(name, channel.index, here[0], there[0], channel.before, here[1], there[1])
        if channel.difference is not None:
            result.differences.append(channel.difference)
    result.channels = len(known)
    result.same = len(known) - len(result.differences)
    return result


def _meet(channel: _Channel, side: int, name: str, entry: Event) -> None:
    """One more message on a channel: hold it against the other side's, or keep it until that comes."""
    found = channel.difference
    if found is not None:
        if side == 0 and found.a_next is None:
            found.a_next = entry
        elif side == 1 and found.b_next is None:
            found.b_next = entry
        return
    if not channel.ahead or channel.side == side:
        channel.side = side
        channel.ahead.append(entry)
        return
    other = channel.ahead.popleft()
    if other.payload == entry.payload:
        channel.before = entry if side == 0 else other
        channel.index += 1
        return
    a, b = (entry, other) if side == 0 else (other, entry)
    channel.difference = Difference(name, channel.index, a, b, channel.before)
    if channel.ahead:
        following = channel.ahead.popleft()
        if channel.side == 0:
            channel.difference.a_next = following
        else:
            channel.difference.b_next = following
    channel.ahead.clear()


async def _messages(
    database: Database, of: Experiment, chosen: Selection, mapping: ChannelMap | None
) -> AsyncIterator[tuple[str, Event]]:
    async for page in message_pages(database, of, chosen, Span()):
        for entry in page:
            channel = entry.channel or ""
            yield (channel if mapping is None else channels.decode(mapping(channel))), entry
