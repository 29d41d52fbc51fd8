"""The parts of a selection that depend on more than one event: the last event of each, and context."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ..db.codes import AGENT, CHANNEL
from ..db.database import Database
from ..experiments.records import Experiment
from .event import Event
from .names import agent_value, all_names
from .selection import Selection
from .span import Span

FEW = 50
"""A page in which less than one event of so many is the last of its channel or sender has hardly anything new."""

MOST_GROUPS = 1000
"""Groups that wait for an earlier one, on a channel that is silent; above that, it is taken as ended."""


class Read(Protocol):
    """Reads the events or the messages of an experiment in pages, in replay order or backward."""

    def __call__(
        self, chosen: Selection, span: Span, *, backward: bool = False
    ) -> AsyncGenerator[list[Event], None]: ...


async def narrowed(
    read: Read, database: Database, of: Experiment, selection: Selection, span: Span
) -> AsyncGenerator[list[Event], None]:
    """Yield what `read` selects, narrowed to the last event of each or with context, in lists.

    With context, each list is a group: events that were selected, with those before and after them on their channel,
    whoever sent them and whatever they contain.
    Groups are in the order of their first selected events. `limit` then counts the selected events.
    """
    if selection.last_per is not None:
        found = await last_of_each(read, database, of, selection, replace(span, limit=None), selection.last_per)
        if found[: span.limit]:
            yield found[: span.limit]
        return
    here = await selection.as_recorded(database, of)
    pages = _groups(read, here, span) if selection.context else read(selection, span)
    async with aclosing(pages):
        async for page in pages:
            yield page


async def last_of_each(
    read: Read, database: Database, of: Experiment, selection: Selection, span: Span, per: str
) -> list[Event]:
    """Return the last event on each channel, or of each sender, in replay order.

    The log is read backward. When a page has hardly anything new, reading continues without the channels or senders
    that are found: the database passes over their events.
    """
    if per == "channel":
        here = await selection.as_recorded(database, of)
        names = (await all_names(database, of.id, CHANNEL)).values()
        missing: set[Any] = {name for name in names if here.takes_channel(name)}
    else:
        missing = {agent_value(agent) for agent in (await all_names(database, of.id, AGENT)).values()}
    found: dict[Any, Event] = {}
    while missing:
        senders = [entry.from_id for entry in found.values()]
        left = selection.without(found) if per == "channel" else selection.without_senders(senders)
        async with aclosing(read(left, span, backward=True)) as pages:
            async for page in pages:
                before = len(found)
                for entry in page:
                    key = entry.channel if per == "channel" else _sender(entry)
                    if key is not None:
                        found.setdefault(key, entry)
                if (len(found) - before) * FEW < len(page):
                    break
            else:
                break
        missing.difference_update(found)
        span = replace(span, end=page[-1].cursor)
    return sorted(found.values(), key=lambda entry: entry.cursor)


def _sender(entry: Event) -> bytes | None:
    return None if entry.from_id is None else agent_value(entry.from_id)


@dataclass(slots=True)
class _Group:
    """Selected events of a channel that are close to each other, with their context."""

    events: list[Event]
    ended: bool = False
    """True if a later event cannot belong to it."""


@dataclass(slots=True)
class _Channel:
    """Position in one channel."""

    before: deque[Event]
    """The last events behind the group, as many as are asked for."""
    group: _Group = field(default_factory=lambda: _Group([], ended=True))
    """The last group."""
    after: int = 0
    """Number of events that still belong to the group whatever they are, unless it has ended."""


async def _groups(read: Read, selection: Selection, span: Span) -> AsyncGenerator[list[Event], None]:
    """Yield the selected events with their context."""
    most, left = selection.context, span.limit
    channels: dict[str | None, _Channel] = {}
    begun: deque[_Group] = deque()
    async with aclosing(read(selection.of_channels(), replace(span, limit=None))) as pages:
        async for page in pages:
            for entry in page:
                channel = channels.get(entry.channel)
                if channel is None:
                    channel = channels[entry.channel] = _Channel(deque(maxlen=most))
                if left != 0 and selection.takes(entry):
                    left = None if left is None else left - 1
                    if channel.group.ended:
                        channel.group = _Group([])
                        begun.append(channel.group)
                    channel.group.events += [*channel.before, entry]
                    channel.before.clear()
                    channel.after = most
                elif channel.after and not channel.group.ended:
                    channel.group.events.append(entry)
                    channel.after -= 1
                else:
                    if len(channel.before) == most:  # the next group does not touch this one
                        channel.group.ended = True
                    channel.before.append(entry)
                while begun and (begun[0].ended or len(begun) > MOST_GROUPS):
                    begun[0].ended = True
                    yield begun.popleft().events
            if left == 0 and not any(channel.after for channel in channels.values() if not channel.group.ended):
                break
    for group in begun:
        yield group.events
