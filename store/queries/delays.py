"""Delivery times of messages, and times from a message to its reply."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

from ..errors import StoreError
from ..experiments.records import Experiment
from ..html_table import html_table
from ..log.event_log import EventLog
from ..log.names import agent_text
from ..log.selection import Filters, Selection, selection_of
from ..projection.query import Progress, Projection, projected
from ..projection.reading import Reading
from ..projection.schema import agent_of
from ..projection.selecting import Condition, Rows, condition_of
from ..text import length, plural
from .audit.clocks import clock_difference
from .audit.listeners import listeners_of
from .recipients import has_recipients
from .replies import replies as found_replies

BY = ("pair", "channel")


@dataclass(frozen=True, slots=True)
class Delay:
    """The durations of one group, in ns. Percentiles are exact: the smallest duration such that so many
    percent of all are equal or less."""

    key: tuple[Any, ...]
    """(sender, recipient), of replies (who replies, to whom), or (channel,); () for all groups together."""
    basis: str
    """How it is known where a duration begins: delivery, heard or next; for the total several, joined by a comma."""
    number: int
    p50: int
    p95: int
    p99: int
    max: int
    negative: int
    """Number of durations below zero: the clocks of two recorders differ."""


@dataclass(frozen=True, slots=True, repr=False)
class Delays:
    """Result of `delays`. The row with the largest number is first."""

    by: str
    replies: bool
    rows: tuple[Delay, ...]
    total: Delay | None
    """All rows together; None if there are none."""
    undelivered: int
    """Selected sendings without a delivery; 0 for replies. Redacted and retracted sendings do not count."""
    unaddressed: int
    """For replies: selected messages without a sender or without a recipient, which are no replies."""
    clocks_ns: int | None
    """Largest difference between the clocks of the recorders, as `clock_difference` measures it; None if unknown."""
    listeners: bool
    """False if no listener was recorded, so that nothing is known about deliveries. True for replies."""
    recipients: bool
    """False if no message of the experiment names a recipient, so that there are no replies."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts of a row's key."""
        return ("channel",) if self.by == "channel" else ("who" if self.replies else "from", "to")

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as records for data frames: ids as text, as in `Run.table`, durations in seconds (s)."""
        return [
            dict(zip(self.names, map(agent_text, row.key), strict=True))
            | {"basis": row.basis, "number": row.number}
            | {f"{name}_s": getattr(row, name) / 1e9 for name in ("p50", "p95", "p99", "max")}
            for row in self.rows
        ]

    def _repr_html_(self) -> str:
        return html_table(self.records(), "; ".join(self.notes))

    def __repr__(self) -> str:
        """Return one line with the numbers."""
        number = 0 if self.total is None else self.total.number
        times = plural(number, "reply" if self.replies else "delivery")
        return f"<Delays by {self.by}: {plural(len(self.rows), 'row')}, {times}>"

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the rows do not tell, in sentences."""
        return tuple(self._of_replies() if self.replies else self._of_deliveries())

    def _of_replies(self) -> Iterator[str]:
        if not self.recipients:
            yield "no replies: no message of the experiment names a recipient, as in a group chat"
        elif self.total is None:
            yield "no replies: no selected message between two agents follows one in the other direction"
        if self.unaddressed:
            yield f"{plural(self.unaddressed, 'message')} without a sender or a recipient: no replies"

    def _of_deliveries(self) -> Iterator[str]:
        if not self.listeners:
            yield "no deliveries: no listener was recorded"
            return
        if self.total is None:
            yield "no deliveries: no recorded listener received one of these messages"
        elif self.total.negative:
            yield f"{plural(self.total.negative, 'time')} below zero: the clocks of two recorders differ"
        if self.clocks_ns is not None:
            yield f"the clocks of the recorders differ by up to {length(self.clocks_ns / 1e9)}"
        if self.undelivered:
            yield f"{plural(self.undelivered, 'sending')} without a delivery: `messager problems` says why"


async def delays(
    log: EventLog,
    of: Experiment,
    selection: Selection | None = None,
    *,
    by: str = "pair",
    replies: bool = False,
    progress: Progress | None = None,
    **filters: Unpack[Filters],
) -> Delays:
    """Return delivery times, or with `replies` the times from a message to its reply, by pair or by channel.

    A delivery time is that from a sending (`ts`) to a reception of it. Each delivery counts: a message that three
    recorded listeners received counts three times. Redacted sendings, of which the deliveries are unknown, and those
    that a `failed` event retracts are left out. `replies` describes what a reply is. `selection`, or its filters as
    arguments, selects the sendings, or the replies and what they answer; its kinds do not count. `progress` is called
    while the projection is brought up to date.

    Raises `StoreError` for an unknown `by`, for a selection with context, and if DuckDB or pyarrow is not installed.
    """
    if by not in BY:
        raise StoreError(f"delays by {by!r} are not computed: give pair or channel")
    selection = selection_of(selection, filters)
    if selection.context or (replies and selection.last_per):
        raise StoreError("delays have no context, and replies no last one of each: leave out this filter")
    recorders = await log.recorders(of)
    async with projected(log, of, progress) as here:
        if replies:
            both = selection.of_kinds(None).without_agents().limited(None)
            condition = await Reading(log, of, here, both).condition()
            chosen = await condition_of(log.database, of, selection.of_agents(), Rows.MESSAGES)
            found = found_replies(condition, chosen, selection.limit)
            condition = Condition([*condition.texts, *chosen.texts], {**condition.values, **chosen.values})
            left_out = f"{condition.where} AND (e.from_id IS NULL OR e.to_id IS NULL)"
        else:
            condition = await Reading(log, of, here, selection.of_kinds({"sent"})).condition()
            found = f"{_DELIVERIES} WHERE {condition.where}"
            left_out = f"{condition.where} AND e.id NOT IN (SELECT id FROM measured)"
        numbers = partial(_numbers, here, found, left_out, condition.values, by)
        rows, total, others = await asyncio.to_thread(numbers)
        listeners = replies or any(row.kinds["received"] for row in recorders)
        listeners = listeners or bool((await listeners_of(log, of, here)).all)
    return Delays(
        *(by, replies, rows, total, 0 if replies else others, others if replies else 0, clock_difference(recorders)),
        listeners=listeners,
        recipients=total is not None or not replies or await has_recipients(log.database, of),
    )


_DELIVERIES = """SELECT e.*, 'delivery' AS basis, r.ts - e.ts AS duration
    FROM event e JOIN event r ON r.message_id = e.id AND r.id <> e.id AND NOT r.is_copy"""
_NUMBERS = "count(*), quantile_disc(duration, [0.5, 0.95, 0.99]), max(duration), count(*) FILTER (duration < 0)"


def _numbers(
    here: Projection, found: str, left_out: str, values: Mapping[str, Any], by: str
) -> tuple[tuple[Delay, ...], Delay | None, int]:
    """Return the rows, the total, and the number of messages that fulfil the condition `left_out`."""
    keys = "from_id, from_type, to_id, to_type" if by == "pair" else "channel"
    here.connection.register("measured", here.table(f"SELECT id, ts, basis, duration, {keys} FROM ({found})", values))
    groups = here.rows(
        f"SELECT {_NUMBERS}, basis, {keys} FROM measured GROUP BY basis, {keys} "
        "ORDER BY count(*) DESC, min(ts), min(id)"
    )
    [(*numbers, bases)] = here.rows(f"SELECT {_NUMBERS}, string_agg(DISTINCT basis, ', ' ORDER BY basis) FROM measured")
    [(others,)] = here.rows(f"SELECT count(*) FROM event e WHERE {left_out}", values)
    rows = [
        _delay(key if by == "channel" else (agent_of(*key[:2]), agent_of(*key[2:])), basis, *sums)
        for *sums, basis, key in ((*row[:5], row[5:]) for row in groups)
    ]
    return tuple(rows), _delay((), bases, *numbers) if bases else None, others


def _delay(key: tuple[Any, ...], basis: str, number: int, percentiles: list[int], most: int, negative: int) -> Delay:
    p50, p95, p99 = percentiles
    return Delay(key, basis, number, p50, p95, p99, most, negative)
