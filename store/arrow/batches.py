"""A selection of events as record batches, in replay order and in constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Unpack

from ..experiments.records import Experiment
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.event_query import recorders_now
from ..log.messages import selected_pages, sources
from ..log.selection import Filters, Selection, selection_of
from ..queries.index import index_or_warn
from ..queries.texts import Progress
from . import driver, rows, schema
from .columns import Columns, names_of
from .marks import Change, Marks, has_marks, labels_before

MANY = 20_000
"""Events from which a driver is faster, in spite of the start of its process."""


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
    """Yield a selection as `pyarrow.RecordBatch` of the schema of docs/analysis.md, at most some thousand rows each.

    Each message once, by the rule of `log.messages`; with `events`, all events. The experiment is indexed first, with
    `progress`; if that fails, `received_at` and `copies` are null. `change` returns the event to use instead of each.
    Raises `StoreError` if pyarrow is not installed.
    """
    schema.pyarrow()
    chosen = selection_of(selection, filters)
    delivered = await index_or_warn(log, of, progress=progress)
    fast = change is None and chosen.content is None and chosen.last_per is None and not chosen.context
    source = driver.driver_of(log) if fast else None
    if source is not None and sum(row.last_seq for row in await log.recorders(of)) >= MANY:
        made = _by_driver(log, of, source, chosen, events=events, delivered=delivered)
    else:
        made = _by_event(log, of, chosen, events=events, change=change, delivered=delivered)
    async with aclosing(made):
        async for batch in made:
            if batch.num_rows:
                yield batch


async def table(log: EventLog, of: Experiment, selection: Selection | None = None, **more: Any) -> Any:
    """Return a selection as a `pyarrow.Table`. The arguments are those of `batches`."""
    pa = schema.pyarrow()
    found = [batch async for batch in batches(log, of, selection, **more)]
    return pa.Table.from_batches(found, schema=schema.schema()).unify_dictionaries()


async def _by_event(
    log: EventLog,
    of: Experiment,
    selection: Selection,
    *,
    events: bool,
    change: Change | None,
    delivered: bool,
) -> AsyncGenerator[Any, None]:
    recorders = await recorders_now(log.database, of)
    last_seqs = {ordinal: recorders.last_seqs[number] for ordinal, number in recorders.ids.items()}
    text = _text if selection.content is None else selection.content.text
    marks = Marks(log, of, last_seqs, keep=selection.context > 0, change=change) if await has_marks(log, of) else None
    pages = selected_pages(log, of, selection, messages=not events)
    try:
        async with aclosing(pages):
            async for page in pages:
                page = [entry for entry in page if entry.seq <= last_seqs.get(entry.recorder, 0)]
                before = await marks.of_events(page) if marks is not None else [None] * len(page)
                if change is not None:
                    page = [change(entry) for entry in page]
                yield await rows.batch(log.database, page, before, recorders.ids, text, delivered=delivered)
    finally:
        if marks is not None:
            await marks.close()


async def _by_driver(
    log: EventLog, of: Experiment, source: Any, selection: Selection, *, events: bool, delivered: bool
) -> AsyncGenerator[Any, None]:
    recorders = await recorders_now(log.database, of)
    span = await selection.span(log.database, of)
    rule = None if events else await sources(log, of, selection.kinds)
    names = await names_of(log, of)
    if rule is not None:
        selection = selection.of_kinds(rule.kinds).without_redacted()
    marks = await has_marks(log, of)
    behind = None if span.after is None else span.after._replace(seq=span.after.seq + 1)
    start = max((at for at in (span.start, behind) if at is not None), default=None)
    columns = Columns(
        log.location,
        names,
        recorders,
        kinds=selection.kinds,
        redacted=selection.redacted,
        rule=rule,
        labels=await labels_before(log, of, start),
        delivered=delivered,
        decode_text=source.decode,
    )
    job = await driver.job_of(log, of, source, selection, span, recorders, delivered=delivered, marks=marks)
    left = span.limit
    found = driver.read(job, log.location)
    async with aclosing(found):
        async for raw in found:
            batch = await asyncio.to_thread(columns, raw)
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            yield batch
            if left == 0:
                return


def _text(entry: Event) -> str:
    return entry.text
