"""Recipients of an experiment: a group chat has none."""

from __future__ import annotations

from sqlalchemy import exists, select

from ..db.database import Database
from ..db.schema import event
from ..experiments.records import Experiment


async def has_recipients(database: Database, of: Experiment) -> bool:
    """Return whether any event of an experiment names a recipient. If none does, all events are read."""
    named = exists().where(event.c.experiment_id == of.id, event.c.to_id.is_not(None))
    async with database.reading() as connection:
        return bool((await connection.execute(select(named))).scalar_one())
