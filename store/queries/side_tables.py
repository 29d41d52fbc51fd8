"""State of the side tables of an experiment: which events are in them. Who may write them, and how they are cleared.

Indexers lock the row in `indexed_experiment` for each page. A redaction or removal deletes that row, together with
everything computed from the experiment; an indexer that read events before then writes nothing.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.database import Database
from ..db.schema import experiment, indexed_experiment, indexed_recorder, recorder, redaction
from ..errors import ExperimentNotFound
from ..experiments.lifecycle import lock
from ..experiments.records import Experiment
from ..log.text import DECODER_VERSION

FIRST_NS, COMPLETE = -(2**63), 2**63 - 1
"""Values of `matched_until`: no delivery is known, and all are."""


async def is_behind(database: Database, experiment_id: int) -> bool:
    """Return whether an experiment has events that are not in the side tables, or not decoded by this version."""
    known = indexed_recorder.c
    waiting = (
        select(recorder.c.id)
        .outerjoin(indexed_recorder, known.recorder_id == recorder.c.id)
        .outerjoin(indexed_experiment, indexed_experiment.c.experiment_id == recorder.c.experiment_id)
        .where(recorder.c.experiment_id == experiment_id, recorder.c.last_seq > 0)
        .where(
            or_(
                indexed_experiment.c.experiment_id.is_(None),
                known.recorder_id.is_(None),
                known.text_seq < recorder.c.last_seq,
                known.delivery_seq < recorder.c.last_seq,
            )
        )
    )
    unfinished = select(indexed_experiment.c.experiment_id).where(
        indexed_experiment.c.experiment_id == experiment_id,
        or_(indexed_experiment.c.decoder != DECODER_VERSION, indexed_experiment.c.matched_until != COMPLETE),
    )
    async with database.reading() as connection:
        for query in (waiting, unfinished):
            if (await connection.execute(query.limit(1))).first() is not None:
                return True
    return False


async def enlist(database: Database, of: Experiment) -> None:
    """Create the missing rows of state. If the text was decoded by another version, have it decoded again.

    Raises `ExperimentNotFound` if the experiment is removed.
    """
    async with database.writing() as connection:
        await lock(connection, of.id)
        query = select(experiment.c.status).where(experiment.c.id == of.id)
        if (await connection.execute(query)).scalar_one_or_none() in (None, "removing"):
            raise ExperimentNotFound(of.exp_id)
        first = {"experiment_id": of.id, "decoder": DECODER_VERSION, "matched_until": COMPLETE, "turn": 0}
        await connection.execute(database.dialect.insert_or_ignore(indexed_experiment).values(first))
        state = await locked(connection, of.id)
        mine = select(recorder.c.id).where(recorder.c.experiment_id == of.id)
        there = set((await connection.execute(select(indexed_recorder.c.recorder_id).where(_of(mine)))).scalars())
        missing = [number for number in (await connection.execute(mine)).scalars() if number not in there]
        if missing:
            rows = [(number, 0, 0) for number in missing]
            await database.dialect.insert(connection, indexed_recorder, rows)
        if state is not None and state.decoder != DECODER_VERSION:
            await connection.execute(update(indexed_recorder).where(_of(mine)).values(text_seq=0))
            await connection.execute(
                update(indexed_experiment)
                .where(indexed_experiment.c.experiment_id == of.id)
                .values(decoder=DECODER_VERSION)
            )


def _of(recorders: Any) -> Any:
    return indexed_recorder.c.recorder_id.in_(recorders)


async def locked(connection: AsyncConnection, experiment_id: int) -> Row[Any] | None:
    """Lock the state of an experiment until the transaction ends; return it, None if it was cleared."""
    query = select(indexed_experiment).where(indexed_experiment.c.experiment_id == experiment_id)
    return (await connection.execute(query.with_for_update())).one_or_none()


async def redactions(connection: AsyncConnection, experiment_id: int) -> int:
    """Return the id of the last redaction: events that were read before it must not be used any more."""
    query = select(func.max(redaction.c.id)).where(redaction.c.experiment_id == experiment_id)
    return (await connection.execute(query)).scalar_one() or 0
