"""Pages of messages, as chunks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from ...db.codes import BUCKET_NS
from ...log.event import Cursor, Event
from ...log.messages import message_pages
from ...log.selection import Selection
from ...queries.counting.activity_sums import LAST_NS, minutes
from ..columns import CHUNK_BYTES, encode, receptions_of
from .served_store import Served

PAGE = 2_000
"""Messages in a chunk, unless another number is asked for."""
ENOUGH_S = 0.15
"""Seconds of a search after which a page has what was found. The next messages could take several times as long."""


async def page(
    run: Served,
    selection: Selection,
    *,
    after: Cursor | None = None,
    before: Cursor | None = None,
    backward: bool = False,
    limit: int = PAGE,
    last_seqs: dict[int, int] | None = None,
    filters: Sequence[tuple[str, str]] = (),
) -> bytes:
    """Return the first messages of a selection, or with `backward` the last ones, as a chunk in replay order.

    They are behind `after` and before `before`; with `last_seqs`, those that a tail position includes. There are at
    most `limit`, fewer if they are large or take long to find; none only if there are no more.

    `filters` are those of the selection, but for the time: what is known about them is kept.
    """
    span = await selection.span(run.log.database, run.of)
    if after is not None and (span.after is None or after > span.after):
        span = replace(span, after=after)
    if before is not None and (span.end is None or before < span.end):
        span = replace(span, end=before)
    rule = await run.sources(selection)
    filtered = not selection.everything
    if filtered and filters and (known := await _minutes(run, selection, filters)) is not None:
        first, end = Cursor(known[0], 0, 0), known[1] + BUCKET_NS
        span = replace(span, start=max(first, span.start or first))
        if end <= LAST_NS:
            span = replace(span, end=min(Cursor(end, 0, 0), span.end or Cursor(end, 0, 0)))
    begin = time.monotonic()
    reading = message_pages(
        run.log,
        run.of,
        selection,
        replace(span, limit=limit, last_seqs=last_seqs),
        rule=rule,
        redacted=True,
        backward=backward,
        growing=filtered,
    )
    events: list[Event] = []
    size = 0
    async with aclosing(reading):
        async for some in reading:
            events += some
            size += sum(len(entry.payload) for entry in some)
            if size >= CHUNK_BYTES or (filtered and time.monotonic() - begin > ENOUGH_S):
                break
    if backward:
        events.reverse()
    found = await receptions_of(run.log, run.of, events)
    return encode(events, found, run.names, selection.text_of)


async def _minutes(run: Served, selection: Selection, filters: Sequence[tuple[str, str]]) -> tuple[int, int] | None:
    """Return the first and the last minute with messages of a selection, if `activity` tells."""

    question = f"minutes {filters}"
    known: tuple[int, int] | None = await run.kept(question, lambda: minutes(run.log, run.of, selection))
    return known
