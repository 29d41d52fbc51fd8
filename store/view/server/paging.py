"""Pages of messages, as chunks."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import replace

from ...log.event import Cursor, Event
from ...log.messages import message_pages
from ...log.selection import Selection
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
) -> bytes:
    """Return the first messages of a selection, or with `backward` the last ones, as a chunk in replay order.

    They are behind `after` and before `before`; with `last_seqs`, those that a tail position includes. There are at
    most `limit`, fewer if they are large or take long to find; none only if there are no more.
    """
    span = await selection.span(run.log.database, run.of)
    if after is not None and (span.after is None or after > span.after):
        span = replace(span, after=after)
    if before is not None and (span.end is None or before < span.end):
        span = replace(span, end=before)
    rule = await run.sources(selection)
    filtered = not selection.everything
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
