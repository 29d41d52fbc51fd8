"""Longest silences: times in which an agent, a pair or a channel had no message, and who stopped altogether."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Unpack

from ..errors import StoreError
from ..experiments.records import Experiment
from ..html_table import html_table
from ..log.event import iso
from ..log.event_log import EventLog
from ..log.names import agent_text
from ..log.selection import Filters, Selection, selection_of
from ..projection.query import Progress, projected
from ..projection.reading import Reading
from ..projection.schema import agent_of
from ..projection.selecting import Rows
from ..text import plural

_KEYS = {"agent": ("from",), "pair": ("from", "to"), "channel": ("channel",)}
BY = tuple(_KEYS)


@dataclass(frozen=True, slots=True)
class Silence:
    """The longest time without a message of one sender, pair or channel. Times are ns UTC."""

    key: tuple[Any, ...]
    """(sender,), (sender, recipient) or (channel,)."""
    messages: int
    longest: int
    """In ns."""
    since: int
    """Its last message before the silence."""
    until: int | None
    """Its next message; None if there is none: it stopped, and the silence lasts to the end."""


@dataclass(frozen=True, slots=True, repr=False)
class Silences:
    """Result of `silences`. The longest is first."""

    by: str
    rows: tuple[Silence, ...]
    end: int | None
    """The last event of the time that is selected, ns UTC; None if there are no messages."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts of a row's key."""
        return _KEYS[self.by]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as records for data frames: ids as text, `longest_s` in seconds, times as ISO 8601."""
        return [
            dict(zip(self.names, map(agent_text, row.key), strict=True))
            | {"messages": row.messages, "longest_s": row.longest / 1e9, "since": iso(row.since)}
            | {"until": None if row.until is None else iso(row.until)}
            for row in self.rows
        ]

    def _repr_html_(self) -> str:
        return html_table(self.records())

    def __repr__(self) -> str:
        return f"<Silences by {self.by}: {plural(len(self.rows), 'row')}>"


async def silences(
    log: EventLog,
    of: Experiment,
    selection: Selection | None = None,
    *,
    by: str = "agent",
    progress: Progress | None = None,
    **filters: Unpack[Filters],
) -> Silences:
    """Return the longest silence of each sender, pair or channel: between two of its selected messages that follow each
    other, or from its last one to the last event of the selected time, whoever is in it.

    Messages without a sender count only by channel. `selection`, or its filters as arguments, selects messages.
    `progress` is called while the projection is brought up to date. Raises `StoreError` for an unknown `by`, for a
    selection with context or of the last of each, and if DuckDB or pyarrow is not installed.
    """
    if by not in BY:
        raise StoreError(f"silences by {by!r} are not computed: give {', '.join(BY)}")
    selection = selection_of(selection, filters)
    if selection.context or selection.last_per or selection.limit is not None:
        raise StoreError("silences are those among all messages of a time: leave out context, last_per and limit")
    selection = selection.of_kinds(None)
    columns = ", ".join("channel" if name == "channel" else f"{name}_id, {name}_type" for name in _KEYS[by])
    async with projected(log, of, progress) as here:
        chosen = await Reading(log, of, here, selection).condition()
        time = Selection(since=selection.since, until=selection.until, after=selection.after, around=selection.around)
        whole = await Reading(log, of, here, time, Rows.EVENTS).condition()
        [(end,)] = await asyncio.to_thread(here.rows, f"SELECT max(ts) FROM event e WHERE {whole.where}", whole.values)
        found = await asyncio.to_thread(
            here.rows,
            f"""WITH spoken AS (SELECT {columns}, ts::HUGEINT AS ts,
                    lead(ts) OVER (PARTITION BY {columns} ORDER BY ts, id) AS next
                    FROM event e WHERE {chosen.where} AND {columns.partition(",")[0]} IS NOT NULL),
                silent AS (SELECT *, coalesce(next, {end or 0}) - ts AS length FROM spoken)
            SELECT count(*), max(length), arg_max({{'ts': ts, 'next': next}}, (length, next IS NULL, -ts)), {columns}
            FROM silent GROUP BY {columns} ORDER BY 2 DESC, 3, {columns}""",
            chosen.values,
        )
    rows = tuple(
        Silence(
            tuple(key) if by == "channel" else tuple(agent_of(*key[at : at + 2]) for at in range(0, len(key), 2)),
            *(messages, longest, place["ts"], place["next"]),
        )
        for messages, longest, place, *key in found
    )
    return Silences(by, rows, end if rows else None)
