"""A selection of events as record batches, in replay order and in constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import cache
from typing import Any, Unpack

from messager.record import is_own

from ..db.codes import REDACTED
from ..experiments.records import Experiment
from ..json_text import dump, load_object
from ..log.content import ContentFilter
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.event_lookup import events_at
from ..log.mark_labels import MarkLabels
from ..log.message_rule import EARLY_NS, WITHIN_NS
from ..log.names import as_utf_8, name_text
from ..log.selection import Filters, Selection, selection_of
from ..log.span import Span
from ..log.text import MAX_TEXT, storable
from . import schema
from .query import COLUMNS, Progress, events_of, projected
from .selecting import Condition, add_span, condition_of

BATCH = 5000
"""Rows of a batch, at most."""

_BEHIND = "(e.ts, e.id) > ($first_ts, $first_id) AND e.ts >= $first_ts"
_UP_TO = "(e.ts, e.id) <= ($last_ts, $last_id) AND e.ts <= $last_ts"

Change = Callable[[Event], Event]
"""Returns the event to use instead of one."""


@cache
def columns() -> Any:
    """Return the schema of tables of events. docs/analysis.md describes them."""
    pa = schema.pyarrow()
    time = pa.timestamp("us", "UTC")
    made = {"time": time, "received_at": time, "copies": pa.int64(), "from_id": pa.string(), "to_id": pa.string()}
    stored = schema.schema()
    return pa.schema([(name, made[name] if name in made else stored.field(name).type) for name in COLUMNS])


async def table(log: EventLog, of: Experiment, selection: Selection | None = None, **more: Any) -> Any:
    """Return a selection as a `pyarrow.Table`. The arguments are those of `batches`."""
    pa = schema.pyarrow()
    found = [batch async for batch in batches(log, of, selection, **more)]
    return pa.Table.from_batches(found, schema=columns()).unify_dictionaries()


async def batches(
    log: EventLog,
    of: Experiment,
    selection: Selection | None = None,
    *,
    events: bool = False,
    change: Change | None = None,
    progress: Progress | None = None,
    **filters: Unpack[Filters],
) -> AsyncGenerator[Any, None]:
    """Yield a selection as `pyarrow.RecordBatch` with the `columns`, at most `BATCH` rows each.

    Each message once; with `events`, all events. The projection is brought up to date first, with `progress`. `change`
    returns the event to use instead of each. Raises `StoreError` if DuckDB or pyarrow is not installed.
    """
    async with projected(log, of, progress) as here:
        chosen = selection_of(selection, filters)
        reading = _Reading(log, of, here, chosen, messages=not events)
        found = reading.narrowed() if chosen.last_per is not None or chosen.context else reading.selected()
        labels = None if change is None else await _labels(log, of, here.connection, change)
        async with aclosing(found):
            async for batch in found:
                if chosen.content is not None and chosen.content.has_path:
                    batch = _with_texts(batch, chosen.content)
                if change is not None and labels is not None:
                    batch = await _changed(log, of, batch, change, labels)
                yield _as(batch, columns())


class _Reading:
    """Reads a selection from a projection, window by window: a window has the events of the time of one part."""

    def __init__(self, log: EventLog, of: Experiment, here: Any, selection: Selection, *, messages: bool) -> None:
        self._log, self._of, self._here, self._selection, self._messages = log, of, here, selection, messages

    async def selected(self) -> AsyncGenerator[Any, None]:
        """Yield the selection, without what `narrowed` adds."""
        content = self._selection.content if self._selection.by_content else None
        skipped = self._selection.skipped(self._log.database, self._of)
        condition, span = await self._condition(self._selection)
        left = span.limit
        if left == 0:
            return
        async with aclosing(self._rows(condition, span)) as found:
            async for batch in found:
                if content is not None:
                    taken = [content.takes(entry, skipped) for entry in _events(batch)]
                    batch = batch.filter(schema.pyarrow().array(taken, schema.pyarrow().bool_()))
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= batch.num_rows
                if batch.num_rows:
                    yield batch
                if left == 0:
                    return

    async def narrowed(self) -> AsyncGenerator[Any, None]:
        """Yield the last event of each channel or sender, or the selected events with those around them."""
        selection, connection, pa = self._selection, self._here.connection, schema.pyarrow()
        if selection.last_per is not None:  # the limit is one of what is left then
            self._selection = selection.limited(None)
        ids = [batch["id"] async for batch in self.selected()]
        connection.register("selected", pa.table({"id": pa.chunked_array(ids, pa.int64())}))
        if selection.last_per is not None:
            by, key = ("channel", "channel") if selection.last_per == "channel" else ("from_id", "from_id, from_type")
            condition = Condition([f"e.{by} IS NOT NULL", "e.id IN (FROM selected)"])
            chosen = (
                f"SELECT id FROM event e WHERE {condition.where} QUALIFY row_number() OVER "
                f"(PARTITION BY {key} ORDER BY ts DESC, id DESC) = 1 ORDER BY ts, id"
            ) + ("" if selection.limit is None else f" LIMIT {selection.limit}")
        else:
            condition, _ = await self._condition(selection.of_channels())
            chosen = (
                "WITH numbered AS (SELECT id, channel, row_number() OVER (PARTITION BY channel ORDER BY ts, id) AS n "
                f"FROM event e WHERE {condition.where}), wanted AS (SELECT channel, n FROM numbered "
                "WHERE id IN (FROM selected)) SELECT DISTINCT a.id FROM numbered a JOIN wanted w "
                "ON a.channel IS NOT DISTINCT FROM w.channel "
                f"AND a.n BETWEEN w.n - {selection.context} AND w.n + {selection.context}"
            )
        found = await asyncio.to_thread(self._table, chosen, condition.values)
        connection.register("chosen", found)
        async with aclosing(self._rows(Condition(["e.id IN (FROM chosen)"]), Span())) as rows:
            async for batch in rows:
                yield batch

    async def _condition(self, selection: Selection) -> tuple[Condition, Span]:
        database = self._log.database
        condition = await condition_of(database, self._of, selection, messages=self._messages)
        span = await selection.span(database, self._of)
        add_span(condition, span)
        if selection.content is not None and selection.content.preselects:
            words = {f"word_{at}": word for at, word in enumerate(selection.content.words)}
            condition.add(" OR ".join(f"contains(e.folded, ${name})" for name in words), **words)
        return condition, span

    async def _rows(self, condition: Condition, span: Span) -> AsyncGenerator[Any, None]:
        """Yield the rows that fulfil a condition, in replay order; no window outside of a span is read."""
        since = max((at.ts for at in (span.start, span.after) if at is not None), default=None)
        for first, last in self._here.windows():
            if since is not None and last is not None and last[0] < since:
                continue
            if span.end is not None and first is not None and first[0] > span.end.ts:
                return
            made = Condition([*condition.texts], {**condition.values})
            received = "true"
            if first is not None:
                made.add(_BEHIND, first_ts=first[0], first_id=first[1])
                received += f" AND ts >= {max(first[0] - EARLY_NS, -(2**63))}"
            if last is not None:
                made.add(_UP_TO, last_ts=last[0], last_id=last[1])
                received += f" AND ts <= {min(last[0] + WITHIN_NS, 2**63 - 1)}"
            statement = f"{events_of(received)} WHERE {made.where} ORDER BY e.ts, e.id"
            reader = await asyncio.to_thread(self._reader, statement, made.values)
            while (batch := await asyncio.to_thread(next, reader, None)) is not None:
                yield batch

    def _reader(self, statement: str, values: dict[str, Any]) -> Iterator[Any]:
        used = {name: value for name, value in values.items() if f"${name}" in statement}
        return iter(self._here.connection.sql(statement, params=used or None).to_arrow_reader(BATCH))

    def _table(self, statement: str, values: dict[str, Any]) -> Any:
        used = {name: value for name, value in values.items() if f"${name}" in statement}
        return self._here.connection.sql(statement, params=used or None).to_arrow_table()


def _events(batch: Any) -> Iterator[Event]:
    """Yield the rows of a batch as events with what conditions on content need."""
    names = ("ts", "recorder", "seq", "kind", "channel", "payload", "redacted", "meta")
    for ts, recorder, seq, kind, channel, payload, redacted, meta in zip(
        *(batch[name].to_pylist() for name in names), strict=True
    ):
        flags = REDACTED if redacted else 0
        yield Event(ts, recorder, seq, kind, channel, payload, flags=flags, meta=load_object(meta) if meta else None)


def _with_texts(batch: Any, content: ContentFilter) -> Any:
    """Return a batch with the texts at the path of a selection."""
    texts = [None if entry.redacted else content.text(entry) for entry in _events(batch)]
    return _replaced(batch, {"text": [None if text is None else storable(text)[:MAX_TEXT] for text in texts]})


async def _labels(log: EventLog, of: Experiment, connection: Any, change: Change) -> dict[str, str | None]:
    """Return the labels of marks by those before they were changed."""
    rows = connection.execute("SELECT ts, recorder, seq, label FROM mark WHERE label IS NOT NULL ORDER BY ts, id")
    places = [(Cursor(ts, recorder, seq), label) for ts, recorder, seq, label in rows.fetchall()]
    marks = await events_at(log.database, of, [at for at, _ in places])
    made, found = MarkLabels(), {}
    for at, label in places:
        name = (change(marks[at]).meta or {}).get("name") if at in marks else None
        changed = isinstance(name, str) and not is_own(name)
        found[label] = made.next(as_utf_8(name)) if changed else made.last  # type: ignore[arg-type]
    return found


async def _changed(log: EventLog, of: Experiment, batch: Any, change: Change, labels: dict[str, str | None]) -> Any:
    """Return a batch of the events that are to be used instead."""
    cursors = [Cursor(*at) for at in zip(*(batch[name].to_pylist() for name in ("ts", "recorder", "seq")), strict=True)]
    known = await events_at(log.database, of, cursors)
    events = [change(known[at]) for at in cursors]
    senders = [schema.id_columns(one.from_id) if one.from_id is not None else (None, None) for one in events]
    recipients = [schema.id_columns(one.to_id) if one.to_id is not None else (None, None) for one in events]
    return _replaced(
        batch,
        {
            "channel": [None if one.channel is None else name_text(one.channel) for one in events],
            "from_id": [text for text, _ in senders],
            "from_type": [kind for _, kind in senders],
            "to_id": [text for text, _ in recipients],
            "to_type": [kind for _, kind in recipients],
            "msg_id": [one.msg_id for one in events],
            "text": [schema.text_of(one) for one in events],
            "payload": [one.payload for one in events],
            "messager": [one.messager for one in events],
            "meta": [None if one.meta is None else dump(one.meta) for one in events],
            "origin": [None if one.origin is None else f"{one.origin[0]}:{one.origin[1]}" for one in events],
            "mark": [None if label is None else labels.get(label) for label in batch["mark"].to_pylist()],
        },
    )


def _replaced(batch: Any, values: dict[str, list[Any]]) -> Any:
    pa = schema.pyarrow()
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, column in values.items():
        arrays[name] = pa.array(column, pa.binary() if name == "payload" else pa.string())
    return pa.RecordBatch.from_pydict(arrays)


def _as(batch: Any, of: Any) -> Any:
    """Return a batch with the columns of a schema."""
    pa = schema.pyarrow()
    arrays = []
    for field in of:
        column = batch[field.name]
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        arrays.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=of)
