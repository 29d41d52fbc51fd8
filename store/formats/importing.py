"""A new experiment that is filled from a file: visible when it is complete, otherwise nothing of it remains."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import select, update

from ..db.database import Database
from ..db.schema import experiment, recorder
from ..errors import ExperimentExists, StoreError
from ..experiments import lifecycle, validation
from ..experiments.records import Experiment
from ..experiments.seal import seal_ended
from ..log.event_log import EventLog
from ..maintenance.removal import discard, sweep_unfinished


@dataclass(frozen=True, slots=True)
class Imported:
    """An import: the experiment, and what was assumed or left out, in lines for people."""

    experiment: Experiment
    notes: tuple[str, ...] = ()


BATCH_EVENTS = 5000
BATCH_BYTES = 8 * 1024 * 1024


async def check_unused(log: EventLog, exp_id: str) -> None:
    """Raise `StoreError` for an invalid exp_id, and `ExperimentExists` for one in use."""
    validation.checked_exp_id(exp_id)
    if await log.has_experiment(exp_id):
        raise ExperimentExists(exp_id, "Import under another --exp.")


@contextlib.asynccontextmanager
async def importing(
    log: EventLog,
    exp_id: str,
    *,
    name: str | None,
    tags: Iterable[str],
    meta: dict[str, Any],
    parent: Mapping[str, str] | None = None,
) -> AsyncIterator[Experiment]:
    """Create an invisible experiment; publish it, closed, when the block ends, or discard it if the block raises."""
    await sweep_unfinished(log)
    of = await lifecycle.create(
        log.database,
        f"importing {exp_id} {uuid4().hex}",
        name=name,
        tags=tags,
        meta=meta,
        status="importing",
        parent=parent,
    )
    assert of is not None
    try:
        yield of
        await publish_import(log.database, of, exp_id)
    except BaseException:
        await discard(log, of)
        raise


async def publish_import(database: Database, of: Experiment, exp_id: str) -> None:
    """End the recorders of a finished import and make it visible under its exp_id, in one transaction.

    Raises `ExperimentExists`, and `StoreError` if another process removed the import meanwhile.
    """
    now = time.time_ns()
    async with database.writing() as connection:
        await lifecycle.lock(connection, of.id)
        taken = select(experiment.c.id).where(experiment.c.exp_id == exp_id)
        if (await connection.execute(taken)).first() is not None:
            raise ExperimentExists(exp_id, "Import under another --exp.")
        await connection.execute(
            update(recorder).where(recorder.c.experiment_id == of.id).values(ended_at=now, heartbeat_at=now)
        )
        await seal_ended(connection, recorder.c.experiment_id == of.id)
        published = await connection.execute(
            update(experiment)
            .where(experiment.c.id == of.id, experiment.c.status == "importing")
            .values(exp_id=exp_id, status="closed", closed_at=now)
        )
        if published.rowcount != 1:
            raise StoreError(f"the import of {exp_id!r} was removed as unfinished by another process; import it again")
