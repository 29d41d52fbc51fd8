"""The mark before each event: the phase of a run. Marks that a Messager logs itself do not count."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from messager.record import is_own

from ..experiments.records import Experiment
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.mark_labels import MarkLabels
from ..log.reading import pages
from ..log.selection import Selection
from ..log.span import Span
from .schema import is_utf_8

Change = Callable[[Event], Event]
"""Returns the event to use instead of one."""


def mark_name(meta: dict[str, Any] | None) -> str | None:
    """Return the name of a mark; None for one of a Messager itself."""
    name = (meta or {}).get("name")
    if not isinstance(name, str) or is_own(name):
        return None
    return name if is_utf_8(name) else name.encode("utf-8", "backslashreplace").decode()


async def labels_before(log: EventLog, of: Experiment, place: Cursor | None) -> MarkLabels:
    """Return the labels up to a place; the next one is that of the first mark behind it."""
    labels = MarkLabels()
    if place is not None and await has_marks(log, of):
        marks = pages(log.database, of, Selection("mark"), Span(end=place))
        async with aclosing(marks):
            async for page in marks:
                for entry in page:
                    if (name := mark_name(entry.meta)) is not None:
                        labels.next(name)
    return labels


async def has_marks(log: EventLog, of: Experiment) -> bool:
    """Return whether an experiment has marks, possibly only those of Messagers themselves."""
    return any(row.kinds["mark"] for row in await log.recorders(of))


class Marks:
    """The marks of an experiment, read along with its events."""

    def __init__(
        self, log: EventLog, of: Experiment, last_seqs: dict[int, int], *, keep: bool, change: Change | None = None
    ) -> None:
        """With `keep`, marks that were passed are kept, for events that are not in replay order.

        `change` returns the mark to use instead of each.
        """
        self._pages = pages(log.database, of, Selection("mark"), Span(last_seqs=last_seqs))
        self._keep = keep
        self._change = change
        self._cursors: list[Cursor] = []
        self._labels = MarkLabels()
        self._names: list[str] = []
        self._ended = False

    async def of_events(self, events: Sequence[Event]) -> list[str | None]:
        """Return the label of the mark at or before each event."""
        last = max((entry.cursor for entry in events), default=None)
        while last is not None and not self._ended and (not self._cursors or self._cursors[-1] <= last):
            page = await anext(self._pages, None)
            self._ended = page is None
            for entry in page or ():
                name = mark_name(entry.meta)
                if name is not None and self._change is not None:
                    name = mark_name(self._change(entry).meta)
                if name is not None:
                    self._cursors.append(entry.cursor)
                    self._names.append(self._labels.next(name))
        ends = [bisect_right(self._cursors, entry.cursor) for entry in events]
        found = [self._names[end - 1] if end else None for end in ends]
        if ends and not self._keep and (passed := ends[-1] - 1) > 0:
            del self._cursors[:passed], self._names[:passed]
        return found

    async def close(self) -> None:
        """Stop reading."""
        await self._pages.aclose()
