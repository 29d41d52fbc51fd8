"""Selected messages, or events, in lists, found in the projection."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from copy import copy

from ..experiments.records import Experiment
from ..log.event import Event
from ..log.event_log import EventLog
from ..log.selection import Selection
from ..log.span import Span
from .narrowing import narrowed
from .query import Progress, projected
from .reading import Reading
from .selecting import Rows


async def found_pages(
    log: EventLog, of: Experiment, selection: Selection, rows: Rows, progress: Progress | None = None
) -> AsyncGenerator[list[Event], None]:
    """Yield the events of a selection in lists, as `narrowed` orders them.

    The projection is brought up to date first, with `progress`. Raises `BadCursor` for a point that is none, and
    `StoreError` if DuckDB or pyarrow is not installed.
    """
    async with projected(log, of, progress) as here:

        def read(chosen: Selection, span: Span, *, backward: bool = False) -> AsyncGenerator[list[Event], None]:
            plain = copy(chosen)
            plain.last_per, plain.context = None, 0
            return Reading(log, of, here, plain, rows).events(span, backward=backward)

        span = await selection.span(log.database, of)
        async with aclosing(narrowed(read, log.database, of, selection, span)) as pages:
            async for page in pages:
                yield page
