"""Messages as the page has them: as tables with `COLUMNS`, of a projection or of events, and their receptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NamedTuple

from ..experiments.records import Experiment
from ..log.cursor import clamped
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.message_rule import EARLY_NS, WITHIN_NS
from ..log.selection import Selection
from ..log.text import storable
from ..projection.event_lookup import events_at
from ..projection.query import Projection
from ..projection.reading import Reading
from ..projection.schema import name_columns, pyarrow, schema
from ..projection.selecting import Rows

Change = Callable[[Event], Event]
"""Returns the event to show instead of one."""

COLUMNS = (
    *("id", "ts", "recorder", "seq", "kind", "channel", "from_id", "from_type", "to_id", "to_type", "flags"),
    *("messager", "heard", "cause", "size", "text", "payload"),
)
"""Columns of the table `event` of a projection. A text is never null."""


class Shown(NamedTuple):
    """Messages in replay order."""

    messages: Any
    """A `pyarrow.Table` with `COLUMNS`."""
    receptions: Any
    """Also the one that represents a message whose sending was not recorded, if a Messager numbered it."""
    """A `pyarrow.Table`: `place` (row of the message), `recorder`, `ts`, `messager`, `arrival`; by place and time."""

    @property
    def last(self) -> Cursor | None:
        """The place of the last message."""
        rows = self.messages.num_rows
        return Cursor(*(self.messages[name][rows - 1].as_py() for name in Cursor._fields)) if rows else None


class Reader:
    """Reads the messages of a selection, each once, and what was blocked or failed."""

    def __init__(
        self, log: EventLog, of: Experiment, here: Projection, selection: Selection, change: Change | None = None
    ) -> None:
        self._log, self._of, self._here, self._selection, self._change = log, of, here, selection, change
        self._messagers: dict[str | None, str | None] = {None: None}

    async def chunks(self, rows: int, size: int) -> AsyncGenerator[Shown, None]:
        """Yield all, at most so many rows and hardly more bytes of payloads at a time."""
        waiting: list[Any] = []
        left, space = rows, size
        reading = Reading(self._log, self._of, self._here, self._selection, Rows.SHOWN).rows(COLUMNS)
        async with aclosing(reading) as batches:
            async for batch in batches:
                while batch.num_rows:
                    taken = batch.slice(0, min(left, fitting(batch["size"], space)))
                    batch = batch.slice(taken.num_rows)
                    waiting.append(taken)
                    left, space = left - taken.num_rows, space - sum(taken["size"].to_pylist())
                    if left == 0 or space <= 0:
                        yield await self._shown(waiting)
                        waiting, left, space = [], rows, size
        if waiting:
            yield await self._shown(waiting)

    async def page(
        self,
        limit: int,
        size: int,
        *,
        after: Cursor | None = None,
        before: Cursor | None = None,
        backward: bool = False,
        last_seqs: dict[int, int] | None = None,
    ) -> Shown:
        """Return the first ones between two places, or with `backward` the last ones; none only if there are no more.

        They are at most `limit`, and have hardly more bytes of payloads than `size`. With `last_seqs`, they are those
        that a tail position includes.
        """
        span = await self._selection.span(self._log.database, self._of)
        if after is not None and (span.after is None or after > span.after):
            span = replace(span, after=after)
        if before is not None and (span.end is None or before < span.end):
            span = replace(span, end=before)
        reading = Reading(self._log, self._of, self._here, self._selection, Rows.SHOWN)
        rows = reading.rows(COLUMNS, span=replace(span, limit=limit), upto=last_seqs, backward=backward)
        found: list[Any] = []
        async with aclosing(rows) as batches:
            async for batch in batches:
                taken = batch.slice(0, fitting(batch["size"], size))
                size -= sum(taken["size"].to_pylist())
                found.append(taken)
                if size <= 0:
                    break
        return await self._shown(found, backward=backward)

    async def _shown(self, batches: list[Any], *, backward: bool = False) -> Shown:
        pa = pyarrow()
        messages = pa.Table.from_batches(batches) if batches else schema().empty_table().select(COLUMNS)
        if backward:
            messages = messages.take(pa.array(range(messages.num_rows - 1, -1, -1), pa.int64()))
        receptions = await asyncio.to_thread(self._receptions, messages)
        if self._change is not None:
            return await self._changed(self._change, messages, receptions)
        content = self._selection.content
        if content is not None and content.has_path:
            events = await self._events(messages)
            texts = [self._selection.text_of(entry) for entry in events]
        elif messages["text"].null_count:
            columns = (messages[name].to_pylist() for name in ("text", "flags", "payload"))
            texts = [
                text if text is not None else Event(0, 1, 1, "sent", None, payload, flags=flags).text
                for text, flags, payload in zip(*columns, strict=True)
            ]
        else:
            return Shown(messages, receptions)
        at = messages.schema.get_field_index("text")
        return Shown(messages.set_column(at, "text", pa.array(map(storable, texts), pa.string())), receptions)

    async def _events(self, messages: Any) -> list[Event]:
        places = [Cursor(*at) for at in zip(*(messages[name].to_pylist() for name in Cursor._fields), strict=True)]
        known = await events_at(self._log.database, self._of, places)
        return [known[at] for at in places]

    async def _changed(self, change: Change, messages: Any, receptions: Any) -> Shown:
        events = [change(entry) for entry in await self._events(messages)]

        def changed(messager: str | None) -> str | None:
            if messager not in self._messagers:
                entry = change(Event(0, 1, 1, "received", None, b"", messager=messager))
                self._messagers[messager] = entry.messager
            return self._messagers[messager]

        pa = pyarrow()
        by = pa.array(map(changed, receptions["messager"].to_pylist()), pa.string())
        at = receptions.schema.get_field_index("messager")
        return Shown(table_of(events, self._selection.text_of), receptions.set_column(at, "messager", by))

    def _receptions(self, messages: Any) -> Any:
        pa = pyarrow()
        if not messages.num_rows:
            return no_receptions()
        ts = pa.compute.min_max(messages["ts"]).as_py()
        values = {"early": clamped(ts["min"] - EARLY_NS), "late": clamped(ts["max"] + WITHIN_NS)}
        places = pa.array(range(messages.num_rows), pa.int64())
        self._here.connection.register("shown", pa.table({"place": places, "id": messages["id"]}))
        return self._here.table(_RECEPTIONS, values)


_RECEPTIONS = """
    SELECT s.place, r.recorder, r.ts, r.messager, r.arrival
    FROM shown s JOIN event r ON r.message_id = s.id
    WHERE (r.id <> s.id OR r.arrival IS NOT NULL) AND NOT r.is_copy AND r.ts BETWEEN $early AND $late
    ORDER BY s.place, r.ts, r.id"""


def no_receptions() -> Any:
    """Return the table of no receptions."""
    pa = pyarrow()
    numbers = {name: pa.array([], pa.int64()) for name in ("place", "recorder", "ts", "arrival")}
    return pa.table(numbers | {"messager": pa.array([], pa.string())})


def fitting(sizes: Any, space: int) -> int:
    """Return how many of these sizes are needed to fill a space, at least one if there is any."""
    pa = pyarrow()
    if not len(sizes):
        return 0
    ends = pa.compute.cumulative_sum(sizes)
    full: int = pa.compute.sum(pa.compute.less(ends, space)).as_py()
    return min(len(sizes), full + 1)


def table_of(events: Sequence[Event], text: Callable[[Event], str]) -> Any:
    """Return events as a `pyarrow.Table` with `COLUMNS`; their `id` is null."""
    pa = pyarrow()
    values: dict[str, list[Any]] = {
        **name_columns(events),
        "id": [None] * len(events),
        "ts": [entry.ts for entry in events],
        "recorder": [entry.recorder for entry in events],
        "seq": [entry.seq for entry in events],
        "kind": [entry.kind for entry in events],
        "flags": [entry.flags for entry in events],
        "heard": [None if entry.kind == "received" else entry.arrival for entry in events],
        "cause": [None if entry.cause is None else f"{entry.cause[0]}:{entry.cause[1]}" for entry in events],
        "size": [len(entry.payload) for entry in events],
        "text": [storable(text(entry)) for entry in events],
        "payload": [entry.payload for entry in events],
    }
    kinds = {field.name: field.type for field in schema()}
    plain = {name: pa.string() if pa.types.is_dictionary(kinds[name]) else kinds[name] for name in COLUMNS}
    return pa.table({name: pa.array(values[name], plain[name]) for name in COLUMNS})
