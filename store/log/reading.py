"""Events in replay order, page by page.

No read transaction outlives a page. Each recorder's last seq is fixed when the read starts.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select, tuple_

from ..db.codes import SEQ_BITS, SEQ_MASK
from ..db.database import Database
from ..db.schema import event, place_at, recorder, replay_place
from ..experiments.records import Experiment
from . import event_rows
from .event import Cursor, Event
from .event_query import EventQuery, events_of, parameter, recorders_now
from .names import NameReader
from .selection import Selection
from .span import Span

PAGE = 1000
"""Maximum of events in a page."""
PAGE_BYTES = 16 * 1024 * 1024
"""Payload bytes of a page, estimated from the experiment's average."""
BEFORE_ALL = (-(2**63), -1)
_BEHIND_ALL = (2**63 - 1, 2**63 - 1)


async def pages(
    database: Database,
    of: Experiment,
    chosen: Selection,
    span: Span,
    *,
    page: int | None = None,
    above: int | None = None,
    brief: bool = False,
    backward: bool = False,
) -> AsyncGenerator[list[Event], None]:
    """Yield the selected events in replay order, or with `backward` from last to first, in lists of at most `page`.

    With `above`, only those with more payload bytes than that. With `brief`, events have only their position, kind,
    channel, flags and payload, unless there are conditions on the content. Events committed after the call are not
    read. `context` and `last_per` of the selection do not count here (`last_of_each`).
    """
    content = chosen.content if chosen.by_content else None
    skipped = chosen.skipped(database, of)
    recorders = await recorders_now(database, of)
    numbers = recorders.ids
    if span.last_seqs is not None:
        wanted = {number: span.last_seqs.get(ordinal, 0) for number, ordinal in recorders.ordinals.items()}
        last_seqs = {number: min(last, wanted[number]) for number, last in recorders.last_seqs.items()}
        recorders = replace(recorders, last_seqs=last_seqs)
    page = page or await page_size(database, of)
    conditions = [event.c.experiment_id == of.id, *await chosen.condition(database, of)]
    place, end = bounds(span, numbers)
    if end is not None:
        conditions.append(replay_place < place_at(*end))
    if above is not None:
        conditions.append(func.length(event.c.payload) > above)
    order: Sequence[Any] = (event.c.ts, event.c.id)
    if backward:
        if place != BEFORE_ALL:
            conditions.append(replay_place > place_at(*place))
        place, order = _BEHIND_ALL, [column.desc() for column in order]
    read_on = tuple_(parameter("ts"), parameter("number"))
    conditions.append(replay_place < read_on if backward else replay_place > read_on)
    query = EventQuery(
        event_rows.columns(brief=brief and content is None)
        .where(and_(*conditions))
        .order_by(*order)
        .limit(parameter("size"))
    )
    names = NameReader(database)
    left = span.limit
    while left is None or left > 0:
        size = page if left is None or content is not None else min(page, left)
        rows = await query.rows(database, ts=place[0], number=place[1], size=size)
        if not rows:
            return
        place = event_rows.position(rows[-1])
        short = len(rows) < size
        async for entries in events_of(database, rows, recorders, names):
            if content is not None:
                entries = list(islice((entry for entry in entries if content.takes(entry, skipped)), left))
            if left is not None:
                left -= len(entries)
            if entries:
                yield entries
            if left == 0:
                return
        if short:
            return


async def count(database: Database, of: Experiment, chosen: Selection, span: Span) -> int:
    """Return the number of events that `pages` yields; `last_seqs` counts only with conditions on the content."""
    if chosen.by_content:
        total = 0
        async for page in pages(database, of, chosen, span):
            total += len(page)
        return total
    conditions = await within(database, of, chosen, span, (await recorders_now(database, of)).ids)
    async with database.reading() as connection:
        query = select(func.count()).select_from(event).where(and_(*conditions))
        total = int((await connection.execute(query)).scalar_one())
    return total if span.limit is None else min(total, span.limit)


async def within(
    database: Database, of: Experiment, chosen: Selection, span: Span, numbers: dict[int, int]
) -> list[ColumnElement[bool]]:
    """Return the conditions of a selection, and those of the points of a span."""
    conditions = [event.c.experiment_id == of.id, *await chosen.condition(database, of)]
    place, end = bounds(span, numbers)
    if place != BEFORE_ALL:
        conditions.append(replay_place > place_at(*place))
    if end is not None:
        conditions.append(replay_place < place_at(*end))
    return conditions


def bounds(span: Span, numbers: dict[int, int]) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """Return the places, (ts, id), behind which and before which the events of a span are; None for no end."""
    place = BEFORE_ALL
    if span.start is not None:
        ts, number = place_of(span.start, numbers)
        place = ts, number - 1
    if span.after is not None:
        place = max(place, place_of(span.after, numbers))
    return place, None if span.end is None else place_of(span.end, numbers)


def place_of(cursor: Cursor, numbers: dict[int, int]) -> tuple[int, int]:
    """Return a cursor as (ts, id). Recorder ids are in the same order as ordinals."""
    at = [ordinal for ordinal in numbers if ordinal <= cursor.recorder]
    nearest = max(at, default=0)
    if not nearest:
        number, seq = 0, 0
    elif nearest < cursor.recorder:
        number, seq = numbers[nearest], SEQ_MASK
    else:
        number, seq = numbers[nearest], min(cursor.seq, SEQ_MASK)
    return cursor.ts, number << SEQ_BITS | seq


async def page_size(database: Database, of: Experiment) -> int:
    """Return the number of events whose payloads fit into `PAGE_BYTES`, on average."""
    query = select(func.sum(recorder.c.payload_bytes), func.sum(recorder.c.last_seq)).where(
        recorder.c.experiment_id == of.id
    )
    async with database.reading() as connection:
        payload_bytes, events = (await connection.execute(query)).one()
    if not payload_bytes or not events:
        return PAGE
    return max(50, min(PAGE, PAGE_BYTES * int(events) // int(payload_bytes)))
