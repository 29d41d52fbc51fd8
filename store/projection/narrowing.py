"""Selected events in lists, narrowed to the last of each channel or sender, or in groups with context."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from ..db.database import Database
from ..experiments.records import Experiment
from ..log.content import Skipped
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.last_of_each import Read, last_of_each
from ..log.reading import pages
from ..log.selection import Selection
from ..log.span import Span

PIECE = 1000
"""Events of a group that is not complete from which a piece of it is yielded."""

MOST_WAITING = 16 * 1024 * 1024
"""Bytes of events that wait for the end of an earlier group; above that, it is yielded as far as it is known."""
_EVENT_BYTES = 1000
"""Bytes of an event in memory, without its payload."""


class Piece(list[Event]):
    """Events of one channel that follow each other there: a group of selected events with context, or a part of it."""

    def __init__(self, events: list[Event], *, continues: bool) -> None:
        super().__init__(events)
        self.continues = continues
        """True if it continues the piece before it."""


async def selected_pages(log: EventLog, of: Experiment, selection: Selection) -> AsyncGenerator[list[Event], None]:
    """Yield the events of a selection, read from the log, in lists as `narrowed` does.

    Raises `BadCursor` for a point that is none.
    """
    span = await selection.span(log.database, of)
    read = partial(pages, log.database, of)
    async with aclosing(narrowed(read, log.database, of, selection, span)) as found:
        async for page in found:
            yield page


async def narrowed(
    read: Read, database: Database, of: Experiment, selection: Selection, span: Span
) -> AsyncGenerator[list[Event], None]:
    """Yield what `read` selects, narrowed to the last event of each or with context, in lists.

    With context, each list is a `Piece` of a group: events that were selected, with those before and after them on
    their channel, whoever sent them and whatever they contain. Groups are in the order of their first selected events,
    unless more than `MOST_WAITING` would have to wait. `limit` then counts the selected events.
    """
    if selection.last_per is not None:
        found = await last_of_each(read, database, of, selection, replace(span, limit=None), selection.last_per)
        if found[: span.limit]:
            yield found[: span.limit]
        return
    here = await selection.as_recorded(database, of)
    skipped = selection.skipped(database, of)
    pages = _groups(read, here, span, skipped) if selection.context else read(selection, span)
    async with aclosing(pages):
        async for page in pages:
            yield page


@dataclass(slots=True)
class _Group:
    """Selected events of a channel that are close to each other, with their context."""

    events: list[Event] = field(default_factory=list)
    """Those that were not yielded yet."""
    ended: bool = False
    """True if a later event cannot belong to it."""
    waits: bool = False
    """True if it is in the queue."""


@dataclass(slots=True)
class _Channel:
    """Position in one channel."""

    before: deque[Event]
    """The last events behind the group, as many as are asked for."""
    group: _Group = field(default_factory=lambda: _Group(ended=True))
    """The last group."""
    after: int = 0
    """Number of events that still belong to the group whatever they are, unless it has ended."""


class _Queue:
    """Groups with events that were not yielded yet, in the order in which their first ones came."""

    def __init__(self) -> None:
        self._groups: deque[_Group] = deque()
        self._waiting = 0
        """Bytes of their events."""
        self._last: _Group | None = None
        """The group that was yielded last."""

    def add(self, group: _Group, *events: Event) -> None:
        """Add events to a group that has not ended."""
        if not group.waits:
            group.waits = True
            self._groups.append(group)
        group.events += events
        self._waiting += sum(_EVENT_BYTES + len(entry.payload) for entry in events)

    def take(self, *, everything: bool = False) -> Iterator[Piece]:
        """Remove and yield what need not wait: complete groups at the front, and pieces of long ones."""
        while self._groups:
            front = self._groups[0]
            full = self._waiting > MOST_WAITING
            if not (everything or front.ended or full or len(front.events) >= PIECE):
                return
            if everything or front.ended or full:
                self._groups.popleft()
                front.waits = False
            if front.events:
                self._waiting -= sum(_EVENT_BYTES + len(entry.payload) for entry in front.events)
                yield Piece(front.events, continues=front is self._last)
                front.events, self._last = [], front


async def _groups(
    read: Read, selection: Selection, span: Span, skipped: Skipped | None
) -> AsyncGenerator[list[Event], None]:
    """Yield the selected events with their context."""
    most, left = selection.context, span.limit
    channels: dict[str | None, _Channel] = {}
    queue = _Queue()
    async with aclosing(read(selection.of_channels(), replace(span, limit=None))) as pages:
        async for page in pages:
            for entry in page:
                channel = channels.get(entry.channel)
                if channel is None:
                    channel = channels[entry.channel] = _Channel(deque(maxlen=most))
                if left != 0 and selection.takes(entry, skipped):
                    left = None if left is None else left - 1
                    if channel.group.ended:
                        channel.group = _Group()
                    queue.add(channel.group, *channel.before, entry)
                    channel.before.clear()
                    channel.after = most
                elif channel.after and not channel.group.ended:
                    queue.add(channel.group, entry)
                    channel.after -= 1
                else:
                    if len(channel.before) == most:  # the next group does not touch this one
                        channel.group.ended = True
                    channel.before.append(entry)
                for piece in queue.take():
                    yield piece
            if left == 0 and not any(channel.after for channel in channels.values() if not channel.group.ended):
                break
    for piece in queue.take(everything=True):
        yield piece
