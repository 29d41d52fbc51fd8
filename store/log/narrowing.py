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
    Groups are in the order of their ends. `limit` then counts the selected events.
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

    The log is read backward, one page at a time, and each page leaves out what is found: the database passes over
    these events.
    """
    if per == "channel":
        here = await selection.as_recorded(database, of)
        names = (await all_names(database, of.id, CHANNEL)).values()
        missing: set[Any] = {name for name in names if here.takes_channel(name)}
    else:
        missing = {agent_value(agent) for agent in (await all_names(database, of.id, AGENT)).values()}
    found: dict[Any, Event] = {}
    left = selection if per == "channel" else selection.without_senders([])
    while missing:
        async with aclosing(read(left, span, backward=True)) as pages:
            page = await anext(pages, None)
        if page is None:
            break
        for entry in page:
            key = entry.channel if per == "channel" else None if entry.from_id is None else agent_value(entry.from_id)
            if key is not None:
                found.setdefault(key, entry)
        missing.difference_update(found)
        if per == "channel":
            left = selection.without(found)
        else:
            left = selection.without_senders(entry.from_id for entry in found.values())
        span = replace(span, end=page[-1].cursor)
    return sorted(found.values(), key=lambda entry: entry.cursor)


@dataclass(slots=True)
class _Channel:
    """The events of a channel around a selected one."""

    before: deque[Event]
    """Events behind the last group, at most as many as are asked for."""
    group: list[Event] = field(default_factory=list)
    after: int = 0
    """Number of events that are missing at the end of the group."""


async def _groups(read: Read, selection: Selection, span: Span) -> AsyncGenerator[list[Event], None]:
    """Yield the selected events with their context."""
    most, left = selection.context, span.limit
    channels: dict[str | None, _Channel] = {}
    async with aclosing(read(selection.of_channels(), replace(span, limit=None))) as pages:
        async for page in pages:
            for entry in page:
                channel = channels.get(entry.channel)
                if channel is None:
                    channel = channels[entry.channel] = _Channel(deque(maxlen=most))
                if left != 0 and selection.takes(entry):
                    left = None if left is None else left - 1
                    channel.group += [*channel.before, entry]
                    channel.before.clear()
                    channel.after = most
                elif channel.group:
                    channel.group.append(entry)
                    channel.after -= 1
                    if not channel.after:
                        yield channel.group
                        channel.group = []
                else:
                    channel.before.append(entry)
            if left == 0 and not any(channel.group for channel in channels.values()):
                return
    for channel in channels.values():
        if channel.group:
            yield channel.group
