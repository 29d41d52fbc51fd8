"""Counts of messages by one or two dimensions: who talks to whom, how much, when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack

from ...errors import StoreError
from ...experiments.records import Experiment
from ...html_table import html_table
from ...log.cursor import duration_ns
from ...log.event import utc
from ...log.event_log import EventLog
from ...log.names import agent_text
from ...log.selection import Filters, Selection, selection_of
from ...projection.query import Progress, Projection, projected
from ...projection.reading import Reading
from ...projection.selecting import Rows
from ...text import plural
from .dimensions import Dimension, Of, decoded, dimensions, identity, natural
from .groups import Groups, Key
from .timeline import Stretch, stretches

Order = Literal["messages", "payload_bytes", "name"]
NO_TIMELINE = "there are no silences to cut without a time: count by minute, hour, day or a length of time as well"


@dataclass(frozen=True, slots=True)
class Count:
    """The messages of one group."""

    keys: tuple[Any, ...]
    """Its values, one for each dimension: a channel, an id with its JSON type, the start of a bucket in ns UTC ...;
    None for a missing one."""
    messages: int
    payload_bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class Counts:
    """Result of `count`: groups in the order of time, marks or numbers if a dimension has one, else as asked for."""

    by: tuple[str, ...]
    """The names of the dimensions."""
    rows: tuple[Count, ...]
    messages: int
    """Number of messages, each once; the rows of `agent` have each twice."""
    payload_bytes: int
    skipped: int
    """Messages left out because their payload is not JSON."""
    dimensions: tuple[Dimension, ...]
    unit: str
    """messages, receptions or events"""
    stretches: tuple[Stretch, ...]
    """If a dimension is a time: the times between silences longer than `max_gap`, in order."""
    max_gap_ns: int | None
    """As it was asked for; None for no limit."""
    order: Order
    """The number that is the largest in the first row; or `name`, for the natural order of the keys."""
    notes: tuple[str, ...] = ()
    """Sentences on what the experiment does not have."""

    def __iter__(self) -> Iterator[Count]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as records for data frames: ids as text, as in `Run.table`, times as `datetime` in UTC."""
        return [
            {each.name: _plain(each.of, value) for each, value in zip(self.dimensions, row.keys, strict=True)}
            | {self.unit: row.messages, "payload_bytes": row.payload_bytes}
            for row in self.rows
        ]

    def _repr_html_(self) -> str:
        return html_table(self.records())

    def __repr__(self) -> str:
        """Return one line with the numbers."""
        number = plural(self.messages, self.unit.removesuffix("s"))
        return f"<Counts by {', '.join(self.by)}: {plural(len(self.rows), 'row')}, {number}>"

    def totals(self, at: int = 0) -> tuple[Count, ...]:
        """Return the sums over the other dimensions, by the values of dimension number `at`, in the same order."""
        keys: dict[Any, Any] = {}
        sums: dict[Any, list[int]] = {}
        for row in self.rows:
            named = identity(row.keys[at])
            keys.setdefault(named, row.keys[at])
            total = sums.setdefault(named, [0, 0])
            total[0] += row.messages
            total[1] += row.payload_bytes
        made = [Count((keys[named],), *total) for named, total in sums.items()]
        if self.dimensions[at].numeric:
            return tuple(sorted(made, key=_place("name")))
        return tuple(made if self.dimensions[at].ordered else sorted(made, key=_place(self.order)))


async def count(
    log: EventLog,
    of: Experiment,
    by: Sequence[str] | str = ("from", "to"),
    selection: Selection | None = None,
    *,
    max_gap: str | int | None = None,
    events: bool = False,
    order: Order = "messages",
    own_order: bool = True,
    progress: Progress | None = None,
    **filters: Unpack[Filters],
) -> Counts:
    """Count the selected messages of an experiment, each once (`log.message_rule`), by one or two `dimensions`.

    They are selected by `selection`, or by `filters`, which are the arguments of `Selection`.

    With `events`, count events of every kind. `max_gap` is the longest silence within a stretch of a timeline, in ns or
    as text such as `10m`; None for no limit. `order` is the number by which rows are sorted, the largest first, or
    `name`; with `own_order`, times, marks and fields that only have numbers are in their own order. `progress` is
    called while the projection is brought up to date.

    The sums are computed in the projection, which is brought up to date first. Memory use is bounded by the number of
    groups. Raises `StoreError` for an unknown dimension, for a `max_gap` that is no duration or has no timeline, and if
    DuckDB or pyarrow is not installed.
    """
    wanted = dimensions(by)
    limit = _gap_ns(max_gap)
    if limit is not None and not any(each.of is Of.TIME for each in wanted):
        raise StoreError(f"max_gap: {NO_TIMELINE}")
    selection = selection_of(selection, filters)
    async with projected(log, of, progress) as here:
        groups = await sums(log, of, here, wanted, selection, Rows.EVENTS if events else Rows.MESSAGES)
    found = _counts(groups, "events" if events else _unit(selection), limit, order, own_order)
    return replace(found, notes=tuple(_notes(of, found, groups.phases)))


async def sums(
    log: EventLog,
    of: Experiment,
    here: Projection,
    by: Sequence[Dimension],
    selection: Selection,
    rows: Rows,
) -> Groups:
    """Return the sums that `count` makes rows of."""
    condition = await Reading(log, of, here, selection, rows).condition()

    def grouped() -> Groups:
        phases = []
        if any(each.of is Of.MARK for each in by):
            here.add_marks()
            phases = here.rows("SELECT label FROM mark WHERE label IS NOT NULL ORDER BY ts, id")
        groups = Groups(by, [label for (label,) in phases])
        groups.add(here, condition)
        return groups

    return await asyncio.to_thread(grouped)


def _notes(of: Experiment, found: Counts, phases: Sequence[str]) -> Iterator[str]:
    """Yield a sentence on each dimension that nothing has."""
    for at, each in enumerate(found.dimensions):
        if each.of is Of.MARK and not phases:
            yield f"{of.exp_id} has no marks: it is one phase"
        if each.of is Of.FIELD and found.rows and all(row.keys[at] is None for row in found.rows):
            yield f"no payload has {each.name}"


def _unit(selection: Selection) -> str:
    """Return what is counted: the kinds that were asked for, or messages."""
    kinds = selection.kinds or set()
    if kinds == {"received"}:
        return "receptions"
    return "events" if kinds & {"received", "gap", "mark"} else "messages"


def _plain(of: Of, value: Any) -> Any:
    """Return the value of a dimension for a data frame, whose columns have one type."""
    if of is Of.TIME:
        return utc(value)
    if of is Of.PAIR:
        return " - ".join(agent_text(agent) or "-" for agent in value)
    return agent_text(value) if of in (Of.SENDER, Of.RECIPIENT, Of.AGENT) else value


def _gap_ns(text: str | int | None) -> int | None:
    try:
        return duration_ns(text) if isinstance(text, str) else text
    except ValueError as error:
        raise StoreError(f"max_gap: {error}") from None


def _counts(groups: Groups, unit: str, max_gap_ns: int | None, order: Order, own_order: bool) -> Counts:
    """Return the sums as rows, in order."""
    by, phases = groups.by, groups.phases
    keys = [key for key, sums in groups.sums.items() if sums[0]]
    cells = [{key[at] for key in keys} for at in range(len(by))]
    values = [{cell: decoded(each, cell, phases) for cell in mine} for each, mine in zip(by, cells, strict=True)]
    by = tuple(
        replace(each, own_order=own_order, numeric=own_order and each.of is Of.FIELD and _are_numbers(made.values()))
        for each, made in zip(by, values, strict=True)
    )
    _sort(keys, groups, by, values, order)
    times = [at for at, each in enumerate(by) if each.of is Of.TIME]
    found = stretches(cells[times[0]], by[times[0]].bucket_ns, max_gap_ns) if times else []
    return Counts(
        tuple(each.name for each in by),
        tuple(
            Count(tuple([made[cell] for made, cell in zip(values, key, strict=True)]), *groups.sums[key])
            for key in keys
        ),
        groups.messages,
        groups.payload_bytes,
        groups.skipped,
        by,
        unit,
        tuple(found),
        max_gap_ns,
        order,
    )


def _are_numbers(values: Iterable[Any]) -> bool:
    """Return whether there are numbers, and nothing else but missing values."""
    kinds = {value.__class__ for value in values} - {None.__class__}
    return bool(kinds) and kinds <= {int, float}


def _sort(
    keys: list[Key], groups: Groups, by: Sequence[Dimension], values: Sequence[dict[Any, Any]], order: Order
) -> None:
    """Sort the keys of groups by time, then by number, the largest first unless by name, and in natural order.

    Each sort keeps the order of the one before among equals. Numbers are compared several times as fast as tuples.
    """
    sums = groups.sums
    places = {
        at: {cell: number for number, cell in enumerate(sorted(made, key=lambda cell: natural(made[cell])))}
        for at, made in reversed(list(enumerate(values)))
        if by[at].numeric or not by[at].ordered
    }
    for at, place in places.items():
        keys.sort(key=lambda key: place[key[at]])
    for at in {"messages": (1, 0), "payload_bytes": (0, 1), "name": ()}[order]:
        keys.sort(key=lambda key: -sums[key][at])
    for at, place in places.items():
        if by[at].numeric:
            keys.sort(key=lambda key: place[key[at]])
    for at, each in enumerate(by):
        if each.ordered and not each.numeric:
            keys.sort(key=lambda key: key[at])


def _place(order: Order) -> Callable[[Count], tuple[Any, ...]]:
    """Return the function that gives a row's place: the largest first unless by name, then in natural order."""
    if order == "name":
        return lambda row: tuple(map(natural, row.keys))
    if order == "messages":
        return lambda row: (-row.messages, -row.payload_bytes, *map(natural, row.keys))
    return lambda row: (-row.payload_bytes, -row.messages, *map(natural, row.keys))
