"""The selected events of a projection: as a condition of SQL, as rows, or as events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing, closing
from itertools import count
from typing import Any

from ..db.codes import REDACTED
from ..experiments.records import Experiment
from ..json_text import load_object
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.event_query import HELD
from ..log.message_rule import EARLY_NS, WITHIN_NS
from ..log.names import NameReader
from ..log.selection import Selection
from ..log.span import Span
from .event_lookup import events_at
from .query import BATCH, Projection, events_of
from .schema import pyarrow
from .selecting import Condition, Rows, add_span, condition_of

FEW = 500
"""Rows of a batch that are read as events together."""
_NUMBERS = count()
"""Those of tables of ids."""
_CONTENT = ("ts", "recorder", "seq", "kind", "channel", "payload", "redacted", "meta")
"""Columns that conditions on content need."""
_BEHIND = "(e.ts, e.id) > ($first_ts, $first_id) AND e.ts >= $first_ts"
_UP_TO = "(e.ts, e.id) <= ($last_ts, $last_id) AND e.ts <= $last_ts"


class Reading:
    """Reads a selection, window by window: a window has the time of one part, of more if little is found."""

    def __init__(
        self, log: EventLog, of: Experiment, here: Projection, selection: Selection, rows: Rows = Rows.MESSAGES
    ) -> None:
        self._log, self._of, self._here, self._selection, self._rows = log, of, here, selection, rows

    async def condition(self) -> Condition:
        """Return the condition, on the table `event e`, that the selected events fulfil."""
        selection = self._selection
        if selection.last_per is None and not selection.context and selection.limit is None and not self._tested:
            condition, span = await self._condition(selection)
            add_span(condition, span)
            return condition
        ids = [batch["id"] async for batch in self.rows(("id",))]
        name = f"narrowed_{next(_NUMBERS)}"
        self._register(name, ids)
        return Condition([f"e.id IN (FROM {name})"])

    async def rows(
        self,
        columns: tuple[str, ...] | None = None,
        *,
        span: Span | None = None,
        upto: Mapping[int, int] | None = None,
        backward: bool = False,
    ) -> AsyncGenerator[Any, None]:
        """Yield the selected rows of the view `events` as record batches, in replay order, or from last to first.

        With `columns`, those of the table `event`, which needs no look at receptions. With `span`, it is that part
        instead of the one of the selection; with `upto`, the events of each recorder (ordinal) are those up to a seq.
        """
        if self._selection.last_per is not None or self._selection.context:
            found = self._narrowed(columns)
        else:
            found = self._selected(columns, span, upto, backward)
        async with aclosing(found):
            async for batch in found:
                yield batch

    async def events(
        self, span: Span | None = None, upto: Mapping[int, int] | None = None, *, backward: bool = False
    ) -> AsyncGenerator[list[Event], None]:
        """Yield the selected events in lists, in the order of `rows`."""
        rows = self.rows(("ts", "recorder", "seq", "size"), span=span, upto=upto, backward=backward)
        names = NameReader(self._log.database)
        async with aclosing(rows) as batches:
            async for batch in batches:
                for places in _together(zip(*(column.to_pylist() for column in batch.columns), strict=True)):
                    found = await events_at(self._log.database, self._of, places, names)
                    if events := [found[place] for place in places if place in found]:
                        yield events

    @property
    def _tested(self) -> bool:
        """True if SQL alone does not test the conditions on content."""
        content = self._selection.content
        return content is not None and content.selects and not content.in_sql

    async def _selected(
        self,
        columns: tuple[str, ...] | None,
        span: Span | None = None,
        upto: Mapping[int, int] | None = None,
        backward: bool = False,
    ) -> AsyncGenerator[Any, None]:
        content = self._selection.content if self._tested else None
        skipped = self._selection.skipped(self._log.database, self._of)
        condition, own = await self._condition(self._selection)
        span = span or own
        add_span(condition, span)
        if upto is not None:
            seqs = [upto.get(ordinal, 0) for ordinal in range(1, max(upto, default=0) + 1)]
            condition.add("e.seq <= coalesce($upto[e.recorder], 0)", upto=seqs)
        left = span.limit
        if left == 0:
            return
        wanted = columns if columns is None or content is None else tuple(dict.fromkeys((*columns, *_CONTENT)))
        reading = self._windows(condition, span, wanted, None if content is not None else left, backward)
        async with aclosing(reading):
            async for batch in reading:
                if content is not None:
                    taken = [content.takes(entry, skipped) for entry in events_in(batch)]
                    batch = batch.filter(pyarrow().array(taken, pyarrow().bool_()))
                    batch = batch if columns is None else batch.select(columns)
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
                if left == 0:
                    return

    async def _narrowed(self, columns: tuple[str, ...] | None) -> AsyncGenerator[Any, None]:
        """Yield the last event of each channel or sender, or the selected events with those around them."""
        selection = self._selection
        whole = selection if selection.last_per is None else selection.limited(None)  # the limit is one of what is left
        reading = Reading(self._log, self._of, self._here, whole, self._rows)
        self._register("selected", [batch["id"] async for batch in reading._selected(("id",))])
        if selection.last_per is not None:
            by, key = ("channel", "channel") if selection.last_per == "channel" else ("from_id", "from_id, from_type")
            condition = Condition([f"e.{by} IS NOT NULL", "e.id IN (FROM selected)"])
            chosen = (
                f"SELECT id FROM event e WHERE {condition.where} QUALIFY row_number() OVER "
                f"(PARTITION BY {key} ORDER BY ts DESC, id DESC) = 1 ORDER BY ts, id"
            ) + ("" if selection.limit is None else f" LIMIT {selection.limit}")
        else:
            condition, span = await self._condition(selection.of_channels())
            add_span(condition, span)
            chosen = (
                "WITH numbered AS (SELECT id, channel, row_number() OVER (PARTITION BY channel ORDER BY ts, id) AS n "
                f"FROM event e WHERE {condition.where}), wanted AS (SELECT channel, n FROM numbered "
                "WHERE id IN (FROM selected)) SELECT DISTINCT a.id FROM numbered a JOIN wanted w "
                "ON a.channel IS NOT DISTINCT FROM w.channel "
                f"AND a.n BETWEEN w.n - {selection.context} AND w.n + {selection.context}"
            )
        found = await asyncio.to_thread(self._here.table, chosen, condition.values)
        self._here.connection.register("chosen", found)
        async with aclosing(self._windows(Condition(["e.id IN (FROM chosen)"]), Span(), columns)) as rows:
            async for batch in rows:
                yield batch

    async def _condition(self, selection: Selection) -> tuple[Condition, Span]:
        database = self._log.database
        condition = await condition_of(database, self._of, selection, self._rows)
        content = selection.content
        if content is not None and content.preselects:
            words = {f"word_{at}": word for at, word in enumerate(content.words)}
            condition.add(" OR ".join(f"contains(e.folded, ${name})" for name in words), **words)
        return condition, await selection.span(database, self._of)

    async def _windows(
        self,
        condition: Condition,
        span: Span,
        columns: tuple[str, ...] | None = None,
        limit: int | None = None,
        backward: bool = False,
    ) -> AsyncGenerator[Any, None]:
        """Yield the rows that fulfil a condition; no window outside of a span is read."""
        since = max((at.ts for at in (span.start, span.after) if at is not None), default=None)
        windows = [
            (first, last)
            for first, last in self._here.windows()
            if not (since is not None and last is not None and last[0] < since)
            and not (span.end is not None and first is not None and first[0] > span.end.ts)
        ]
        if backward:
            windows.reverse()
        order, wide, at = ("e.ts DESC, e.id DESC", 1, 0) if backward else ("e.ts, e.id", 1, 0)
        while at < len(windows):
            some = windows[at : at + wide]
            first, last = (some[-1][0], some[0][1]) if backward else (some[0][0], some[-1][1])
            at += wide
            made = Condition([*condition.texts], {**condition.values})
            received = "true"
            if first is not None:
                made.add(_BEHIND, first_ts=first[0], first_id=first[1])
                received += f" AND ts >= {max(first[0] - EARLY_NS, -(2**63))}"
            if last is not None:
                made.add(_UP_TO, last_ts=last[0], last_id=last[1])
                received += f" AND ts <= {min(last[0] + WITHIN_NS, 2**63 - 1)}"
            read = events_of(received) if columns is None else f"SELECT {', '.join(columns)} FROM event e"
            statement = f"{read} WHERE {made.where} ORDER BY {order}"
            statement += "" if limit is None else f" LIMIT {limit}"
            found = 0
            if columns is None:
                with closing(self._here.batches(statement, made.values)) as reader:
                    while (batch := await asyncio.to_thread(next, reader, None)) is not None:
                        found += batch.num_rows
                        yield batch
            else:  # the connection is free for other questions while they are used
                table = await asyncio.to_thread(self._here.table, statement, made.values)
                found = table.num_rows
                for batch in table.to_batches(BATCH):
                    yield batch
            wide = 2 * wide if found < BATCH else 1

    def _register(self, name: str, ids: list[Any]) -> None:
        pa = pyarrow()
        self._here.connection.register(name, pa.table({"id": pa.chunked_array(ids, pa.int64())}))


def _together(rows: Iterable[tuple[int, int, int, int]]) -> Iterator[list[Cursor]]:
    """Yield the places of events that are read together."""
    places: list[Cursor] = []
    held = 0
    for ts, recorder, seq, size in rows:
        places.append(Cursor(ts, recorder, seq))
        held += size
        if len(places) >= FEW or held >= HELD:
            yield places
            places, held = [], 0
    if places:
        yield places


def events_in(batch: Any) -> Iterator[Event]:
    """Yield the rows of a batch as events with what conditions on content need."""
    for ts, recorder, seq, kind, channel, payload, redacted, meta in zip(
        *(batch[name].to_pylist() for name in _CONTENT), strict=True
    ):
        flags = REDACTED if redacted else 0
        yield Event(ts, recorder, seq, kind, channel, payload, flags=flags, meta=load_object(meta) if meta else None)
