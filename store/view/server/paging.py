"""Pages of messages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from ...experiments.records import Experiment
from ...log.event import Cursor, Event
from ...log.event_log import EventLog
from ...log.selection import Selection
from ...projection.query import Projection
from ...projection.reading import Reading
from ...projection.selecting import Rows
from ..columns import CHUNK_BYTES, Reception, receptions_of

PAGE = 2_000
"""Messages in a page, unless another number is asked for."""


async def page(
    log: EventLog,
    of: Experiment,
    here: Projection,
    selection: Selection,
    *,
    after: Cursor | None = None,
    before: Cursor | None = None,
    backward: bool = False,
    limit: int = PAGE,
    last_seqs: dict[int, int] | None = None,
) -> tuple[list[Event], Sequence[Sequence[Reception]]]:
    """Return the first messages of a selection, or with `backward` the last ones, and the receptions of each.

    They are in replay order, behind `after` and before `before`; with `last_seqs`, those that a tail position includes.
    There are at most `limit`, fewer if they are large; none only if there are no more.
    """
    span = await selection.span(log.database, of)
    if after is not None and (span.after is None or after > span.after):
        span = replace(span, after=after)
    if before is not None and (span.end is None or before < span.end):
        span = replace(span, end=before)
    reading = Reading(log, of, here, selection, Rows.SHOWN)
    events: list[Event] = []
    size = 0
    async with aclosing(reading.events(replace(span, limit=limit), last_seqs, backward=backward)) as pages:
        async for some in pages:
            events += some
            size += sum(len(entry.payload) for entry in some)
            if size >= CHUNK_BYTES:
                break
    if backward:
        events.reverse()
    return events, await receptions_of(here, events)
