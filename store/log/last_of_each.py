"""The last event on each channel, or of each sender: the state at a moment."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
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


class Read(Protocol):
    """Reads the events or the messages of an experiment in pages, in replay order or backward."""

    def __call__(
        self, chosen: Selection, span: Span, *, backward: bool = False
    ) -> AsyncGenerator[list[Event], None]: ...


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
