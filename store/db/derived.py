"""Tables that are computed from events, and how everything in them is deleted. They are not part of the log.

Indexers lock the row in `indexed_experiment` for each page. A redaction or removal deletes that row, together with
everything computed from the experiment; an indexer that read events before then writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, delete
from sqlalchemy.ext.asyncio import AsyncConnection

from .codes import SEQ_BITS, SEQ_MASK
from .schema import activity, delivery, indexed_experiment, indexed_recorder, said


async def clear(connection: AsyncConnection, experiment_id: int, recorders: Iterable[int]) -> None:
    """Delete everything that was computed from an experiment, and the state, so that it is computed again.

    For transactions that hold the lock of the experiment. Indexers that are at work write nothing afterwards.
    """
    await clear_state(connection, experiment_id)
    numbers = list(recorders)
    if not numbers:
        return
    bounds = [{"low": number << SEQ_BITS, "high": number << SEQ_BITS | SEQ_MASK} for number in numbers]
    for key in (said.c.event_id, delivery.c.event_id):
        await connection.execute(
            delete(key.table).where(key >= bindparam("low", type_=key.type), key <= bindparam("high", type_=key.type)),
            bounds,
        )
    for key in (activity.c.recorder_id, indexed_recorder.c.recorder_id):
        await connection.execute(delete(key.table).where(key == bindparam("number")), [{"number": n} for n in numbers])


async def clear_state(connection: AsyncConnection, experiment_id: int) -> None:
    """Stop the indexers of an experiment: they find no state to continue from."""
    await connection.execute(delete(indexed_experiment).where(indexed_experiment.c.experiment_id == experiment_id))
