"""A selection of events as record batches, in replay order and in constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import cache
from typing import Any, Unpack

from messager.record import is_own

from ..experiments.records import Experiment
from ..json_text import dump
from ..log.content import ContentFilter
from ..log.event import Cursor, Event
from ..log.event_log import EventLog
from ..log.mark_labels import MarkLabels
from ..log.names import as_utf_8
from ..log.selection import Filters, Selection, selection_of
from ..log.text import MAX_TEXT, storable
from . import schema
from .event_lookup import events_at
from .query import COLUMNS, Progress, Projection, brought_up, projected, reading
from .reading import Reading, events_in
from .selecting import Rows
from .whole import whole

Change = Callable[[Event], Event]
"""Returns the event to use instead of one."""


@cache
def columns() -> Any:
    """Return the schema of tables of events. docs/analysis.md describes them."""
    pa = schema.pyarrow()
    time = pa.timestamp("us", "UTC")
    text = pa.string()
    made = {
        "time": time,
        "received_at": time,
        "copies": pa.int64(),
        "derived": pa.int8(),
        "from_id": text,
        "to_id": text,
    }
    stored = schema.schema()
    return pa.schema([(name, made[name] if name in made else stored.field(name).type) for name in COLUMNS])


async def table(
    log: EventLog,
    of: Experiment,
    selection: Selection | None = None,
    *,
    events: bool = False,
    **filters: Unpack[Filters],
) -> Any:
    """Return a selection as a `pyarrow.Table`. The arguments are those of `batches`."""
    pa = schema.pyarrow()
    chosen = selection_of(selection, filters)
    if chosen.selects_all:
        here = await brought_up(log, of)
        with reading(here):
            found = await asyncio.to_thread(whole, here, columns(), messages=not events)
        return found.unify_dictionaries()
    some = [batch async for batch in batches(log, of, chosen, events=events)]
    return pa.Table.from_batches(some, schema=columns()).unify_dictionaries()


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
        found = Reading(log, of, here, chosen, Rows.EVENTS if events else Rows.MESSAGES).rows()
        labels = None if change is None else await _labels(log, of, here, change)
        async with aclosing(found):
            async for batch in found:
                if chosen.content is not None and chosen.content.has_path:
                    batch = _with_texts(batch, chosen.content)
                if change is not None and labels is not None:
                    batch = await _changed(log, of, batch, change, labels)
                yield _as(batch, columns())


def _with_texts(batch: Any, content: ContentFilter) -> Any:
    """Return a batch with the texts at the path of a selection."""
    texts = [None if entry.redacted else content.text(entry) for entry in events_in(batch)]
    return _replaced(batch, {"text": [None if text is None else storable(text)[:MAX_TEXT] for text in texts]})


async def _labels(log: EventLog, of: Experiment, here: Projection, change: Change) -> dict[str, str | None]:
    """Return the labels of marks by those before they were changed."""
    here.add_marks()
    rows = here.rows("SELECT ts, recorder, seq, label FROM mark WHERE label IS NOT NULL ORDER BY ts, id")
    places = [(Cursor(ts, recorder, seq), label) for ts, recorder, seq, label in rows]
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
    return _replaced(
        batch,
        {
            **schema.name_columns(events),
            "msg_id": [one.msg_id for one in events],
            "text": [schema.text_of(one) for one in events],
            "payload": [one.payload for one in events],
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
