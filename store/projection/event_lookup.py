"""Events by their positions."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import BindParameter, bindparam

from ..db.codes import SEQ_BITS
from ..db.database import Database
from ..db.schema import event
from ..experiments.records import Experiment
from ..log import event_rows
from ..log.event import Cursor, Event
from ..log.event_query import TOGETHER, EventQuery, events_of, recorders_now
from ..log.names import NameReader


async def events_at(
    database: Database, of: Experiment, cursors: Iterable[Cursor], names: NameReader | None = None
) -> dict[Cursor, Event]:
    """Return the events of an experiment at these cursors; those that do not exist any more are missing.

    `names` has those that are known already.
    """
    recorders = await recorders_now(database, of)
    names = names or NameReader(database)
    ids = recorders.ids
    wanted = sorted(ids[one.recorder] << SEQ_BITS | one.seq for one in set(cursors) if one.recorder in ids)
    found: dict[Cursor, Event] = {}
    for at in range(0, len(wanted), TOGETHER):
        some: BindParameter[int] = bindparam(None, wanted[at : at + TOGETHER], expanding=True, literal_execute=True)
        query = EventQuery(event_rows.columns().where(event.c.id.in_(some)))
        async for entries in events_of(database, await query.rows(database), recorders, names):
            found.update((entry.cursor, entry) for entry in entries)
    return found
