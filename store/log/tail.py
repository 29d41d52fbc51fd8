"""The tail of an experiment: events as recorders commit them.

A tail follows `{ordinal: seq}`. Each recorder commits serially, so no event appears behind the reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from sqlalchemy import select

from ..db.codes import SEQ_BITS
from ..db.database import Database
from ..db.schema import event, experiment
from ..experiments.records import Experiment
from . import event_rows
from .event import Event
from .event_query import EventQuery, events_of, parameter, recorders_now
from .names import NameReader


async def tail(
    database: Database, of: Experiment, position: dict[int, int], poll: float, *, page: int = 1000
) -> AsyncGenerator[list[Event], None]:
    """Yield what recorders commit, from a tail position `{ordinal: seq}` on, until the experiment is closed.

    `poll` is in seconds; `page` is the maximum of events in a query.
    """
    names = NameReader(database)
    some = event.c.id > parameter("seen"), event.c.id <= parameter("last")
    query = EventQuery(event_rows.columns().where(*some).order_by(event.c.id))
    while True:
        async with database.reading() as connection:
            status = (
                await connection.execute(select(experiment.c.status).where(experiment.c.id == of.id))
            ).scalar_one_or_none()
        recorders = await recorders_now(database, of)  # after the status: nothing follows "closed"
        idle = True
        for number, ordinal in recorders.ordinals.items():
            seen = position.get(ordinal, 0)
            while seen < recorders.last_seqs[number]:
                last = min(recorders.last_seqs[number], seen + page)
                base = number << SEQ_BITS
                rows = await query.rows(database, seen=base | seen, last=base | last)
                idle = False
                seen = position[ordinal] = last
                async for entries in events_of(database, rows, recorders, names):
                    yield entries
        if status != "open":
            return
        if idle:
            await asyncio.sleep(poll)
