"""Properties of messages as columns of the side table `activity`: dimensions, and conditions on events.

`activity.kind` is negative for redacted events; 0 is no channel, no sender or no recipient.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Label, Select, case, func, literal_column
from sqlalchemy.sql import visitors

from ..db.codes import KINDS, REDACTED
from ..db.schema import activity, event
from ..log.names import NameReader
from .dimensions import Agents, Dimension, Of, both
from .texts import BUCKET_NS

KIND: ColumnElement[int] = func.abs(activity.c.kind)
"""The code of the kind, also of redacted events."""
_AS_ACTIVITY: dict[Any, ColumnElement[Any]] = {
    event.c.kind: KIND,
    event.c.channel_id: func.nullif(activity.c.channel_id, 0),
    event.c.from_id: func.nullif(activity.c.from_id, 0),
    event.c.to_id: func.nullif(activity.c.to_id, 0),
    event.c.flags: case((activity.c.kind < 0, REDACTED), else_=0),
}
"""What stands for a column of `event` in a condition on `activity`."""


def translated(conditions: Sequence[ColumnElement[bool]]) -> list[ColumnElement[bool]] | None:
    """Return conditions on `event` as conditions on `activity`; None if they ask for more than it has."""
    given: dict[str, Any] = {}
    found = [visitors.replacement_traverse(each, given, _in_activity) for each in conditions]
    for each in found:
        for part in visitors.iterate(each):
            if isinstance(part, Select) or getattr(part, "table", None) not in (None, activity):
                return None
    return found


def _in_activity(element: Any, **_: Any) -> Any:
    return _AS_ACTIVITY.get(element)


def is_known(dimension: Dimension) -> bool:
    """Return whether `activity` tells the values in a dimension."""
    if dimension.of is Of.TIME:
        return dimension.bucket_ns % BUCKET_NS == 0
    return dimension.of not in (Of.MARK, Of.FIELD)


Maker = Callable[..., Sequence[Hashable]]
"""Returns the values of a group in one dimension, given its columns."""


class Columns:
    """The columns of `activity` for the dimensions of a count."""

    def __init__(self, by: Sequence[Dimension], names: NameReader, agents: Agents) -> None:
        self._names = names.values
        self._key = agents.key
        self._keys: dict[int, bytes | None] = {0: None}
        self._makers: list[tuple[int, int, Maker]] = []
        self.all: list[Label[Any]] = []
        for each in by:
            columns, maker = self._of(each)
            self._makers.append((len(self.all), len(self.all) + len(columns), maker))
            self.all += columns

    def values(self, row: Sequence[Any]) -> list[Sequence[Hashable]]:
        """Return the values of a group, given the columns. Their names must be loaded."""
        return [maker(*row[begin:end]) for begin, end, maker in self._makers]

    def _of(self, dimension: Dimension) -> tuple[list[Label[Any]], Maker]:
        a = activity.c
        sender, recipient = a.from_id.label("from"), a.to_id.label("to")
        match dimension.of:
            case Of.CHANNEL:
                return [a.channel_id.label("channel")], lambda number: (self._names[number or None],)
            case Of.SENDER:
                return [sender], lambda number: (self._agent(number),)
            case Of.RECIPIENT:
                return [recipient], lambda number: (self._agent(number),)
            case Of.AGENT:
                return [sender, recipient], lambda one, other: both(self._agent(one), self._agent(other))
            case Of.KIND:
                return [KIND.label("kind")], lambda code: (KINDS[code - 1],)
        return [_bucket(dimension.bucket_ns).label("time")], lambda at: (at,)

    def _agent(self, number: int) -> bytes | None:
        if number not in self._keys:
            self._keys[number] = self._key(self._names[number])
        return self._keys[number]


def _bucket(length: int) -> ColumnElement[int]:
    """Return the start of the bucket of a minute. The length is part of the statement, as GROUP BY requires."""
    number: ColumnElement[int] = literal_column(str(length))
    at = activity.c.bucket
    return at - ((at % number) + number) % number
