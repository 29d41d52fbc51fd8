"""Delivery times of messages, and times from a message to its reply."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Unpack

from ..errors import StoreError
from ..experiments.records import Experiment
from ..html_table import html_table
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.names import agent_text
from ..log.recipients import has_recipients
from ..log.selection import Filters, Selection, selection_of
from ..text import length, plural
from .audit.early_receptions import EarlyReceptions, clock_difference
from .audit.listeners import listeners_of
from .audit.receptions import Receptions
from .audit.sendings import sendings
from .index import index_or_warn
from .percentiles import percentiles
from .replies import Replies, pair_key
from .texts import Progress

BY = ("pair", "channel")


@dataclass(frozen=True, slots=True)
class Delay:
    """The durations of one group, in ns. Percentiles are exact, by nearest rank (`percentiles`)."""

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
    complete: bool
    """False if the experiment could not be indexed completely."""
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


class _Groups:
    """Durations by basis, and pair or channel."""

    def __init__(self, by: str) -> None:
        self._by_pair = by == "pair"
        self._groups: dict[str, dict[tuple[Any, ...], array[int]]] = {}
        self._all = array("q")

    def add(self, entry: Event, basis: str, duration: int) -> None:
        """Add a duration to the group of a message."""
        key = pair_key(entry.from_id, entry.to_id) if self._by_pair else (entry.channel,)
        same = self._groups.setdefault(basis, {})
        if key not in same:
            same[key] = array("q")
        same[key].append(duration)
        self._all.append(duration)

    def total(self) -> Delay | None:
        """Return the row of all groups; None if there are none."""
        return _delay((), ", ".join(sorted(self._groups)), self._all) if self._all else None

    def take_rows(self) -> tuple[Delay, ...]:
        """Remove the groups; return their rows, the largest first, equal ones in the order of their first messages."""
        rows: list[Delay] = []
        for basis, groups in reversed(self._groups.items()):
            while groups:
                key, durations = groups.popitem()
                rows.append(_delay(tuple(map(_named, key)), basis, durations))
        rows.reverse()
        rows.sort(key=lambda row: row.number, reverse=True)
        return tuple(rows)


def _named(part: Any) -> Any:
    """Return the id of an agent, or the channel, of a key."""
    return json.loads(part) if isinstance(part, bytes) else part


def _delay(key: tuple[Any, ...], basis: str, durations: array[int]) -> Delay:
    p50, p95, p99, most = percentiles(durations, (50, 95, 99, 100))
    return Delay(key, basis, len(durations), p50, p95, p99, most, sum(one < 0 for one in durations))


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
    while the experiment is indexed.

    Memory use is 16 bytes a duration, and about 300 a group. Raises `StoreError` for an unknown `by`, and for a
    selection with context.
    """
    if by not in BY:
        raise StoreError(f"delays by {by!r} are not computed: give pair or channel")
    selection = selection_of(selection, filters)
    if selection.context or (replies and selection.last_per):
        raise StoreError("delays have no context, and replies no last one of each: leave out this filter")
    complete = await index_or_warn(log, of, progress=progress)
    recorders = await log.recorders(of)
    groups = _Groups(by)
    undelivered = unaddressed = 0
    if replies:
        found = Replies(log, of, selection)
        async for reply in found.read():
            groups.add(reply.event, reply.basis, reply.duration)
        unaddressed = found.unaddressed
    else:
        early = EarlyReceptions(Receptions(log, of), recorders)
        async with aclosing(sendings(log, of, selection, early, messages=True)) as pages:
            async for page in pages:
                for sending in page:
                    undelivered += not sending.deliveries
                    for each in sending.deliveries:
                        groups.add(sending.event, "delivery", each.received_at - sending.event.ts)
    total = groups.total()
    heard = any(row.kinds["received"] for row in recorders)
    return Delays(
        *(by, replies, groups.take_rows(), total, undelivered, unaddressed, clock_difference(recorders), complete),
        listeners=heard or replies or bool((await listeners_of(log.database, of, redacted=False)).all),
        recipients=total is not None or not replies or await has_recipients(log.database, of),
    )
