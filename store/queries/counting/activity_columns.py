"""Properties of messages as columns of the side table `activity`: dimensions, and conditions on events.

`activity.kind` is negative for redacted events; 0 is no channel, no sender or no recipient.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Label, Select, case, func, literal_column
from sqlalchemy.sql import visitors

from ...db.codes import BUCKET_NS, KINDS, REDACTED
from ...db.schema import activity, event
from ...log.activity_summary import KIND
from ...log.names import NameReader
from .dimensions import Agents, Dimension, Of, both
from .groups import Groups

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


class Columns:
    """The columns of `activity` for the dimensions of a count."""

    def __init__(self, by: Sequence[Dimension], names: NameReader, agents: Agents) -> None:
        self._channels = _Known(lambda number: names.values[number or None])
        self._agents = _Known(lambda number: agents.key(names.values[number or None]))
        self._of_agent = [each.of is Of.AGENT for each in by]
        self._cells: list[Callable[[Any], Hashable]] = []
        self.all: list[Label[Any]] = []
        for each in by:
            self._add(each)

    def add(self, groups: Groups, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows of the columns, of messages and of payload bytes. Their names must be loaded."""
        if not rows:
            return
        *columns, messages, sizes = zip(*rows, strict=True)
        cells = [list(map(cell, column)) for cell, column in zip(self._cells, columns, strict=True)]
        if not any(self._of_agent):
            groups.add_sums(zip(*cells, strict=True), messages, sizes)
            return
        for *found, number, size in zip(*cells, messages, sizes, strict=True):
            rest = iter(found)
            groups.add(
                [both(next(rest), next(rest)) if pair else (next(rest),) for pair in self._of_agent], number, size
            )

    def _add(self, dimension: Dimension) -> None:
        """Add the columns of a dimension, and the functions that make cells of their values."""
        a = activity.c
        match dimension.of:
            case Of.CHANNEL:
                self.all.append(a.channel_id.label("channel"))
                self._cells.append(self._channels.__getitem__)
            case Of.SENDER:
                self.all.append(a.from_id.label("from"))
                self._cells.append(self._agents.__getitem__)
            case Of.RECIPIENT:
                self.all.append(a.to_id.label("to"))
                self._cells.append(self._agents.__getitem__)
            case Of.AGENT:
                self.all += [a.from_id.label("from"), a.to_id.label("to")]
                self._cells += [self._agents.__getitem__] * 2
            case Of.KIND:
                self.all.append(KIND.label("kind"))
                self._cells.append(lambda code: KINDS[code - 1])
            case _:
                self.all.append(_bucket(dimension.bucket_ns).label("time"))
                self._cells.append(lambda at: at)


class _Known(dict[int, Any]):
    """Values by the id of a name, 0 for none, made on first use."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def __missing__(self, number: int) -> Any:
        self[number] = self._make(number)
        return self[number]


def _bucket(length: int) -> ColumnElement[int]:
    """Return the start of the bucket of a minute. The length is part of the statement, as GROUP BY requires."""
    at = activity.c.bucket
    if length == BUCKET_NS:
        return at
    number: ColumnElement[int] = literal_column(str(length))
    return at - ((at % number) + number) % number
