"""Removal of whole experiments: the only operation that deletes events from the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import delete, false, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db import derived_files
from ..db.codes import SEQ_BITS
from ..db.schema import (
    VISIBLE,
    batch,
    event,
    experiment,
    metadata,
    name,
    recorder,
    redaction,
    tag,
)
from ..errors import ExperimentChanged, SpoolDamaged, SpoolFull, SpoolHeld, StoreError
from ..experiments.lifecycle import check_idle, lock
from ..experiments.provenance import this_process
from ..experiments.records import SILENT_NS, Experiment, RecorderRow, recorder_of
from ..experiments.registry import recorders_of
from ..log.event_log import EventLog
from ..recording.repair import left_spool
from ..recording.spool import Spool

logger = logging.getLogger("messager_store")

CHUNK = 50_000
"""Events deleted per transaction; other writers may commit between two transactions."""


async def remove(
    log: EventLog,
    of: Experiment,
    *,
    if_idle: bool = False,
    if_unchanged: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> bool:
    """Remove an experiment with all its rows. Return False if it was removed already.

    The first transaction hides the experiment and fences its recorders: their appends are refused from then on.
    `sweep_unfinished` completes a removal that was killed. Events in spools stay there.

    With `if_idle`, raises `ExperimentBusy` while a recorder is alive; with `if_unchanged`, raises
    `ExperimentChanged` if the experiment was tagged, closed or recorded into since `of` was read.
    `progress` is called with the number of deleted events and the total.
    """
    database = log.database
    async with database.writing(long=True) as connection:
        await lock(connection, of.id)
        if if_idle:
            rows = await connection.execute(select(recorder).where(recorder.c.experiment_id == of.id))
            check_idle(of, map(recorder_of, rows), "remove it")
        if if_unchanged:
            await _check_unchanged(connection, of)
        for table in reversed(metadata.sorted_tables):  # fail before the first change if the user may not delete
            await connection.execute(delete(table).where(false()))
        seen = VISIBLE if of.status in VISIBLE else (of.status,)
        hidden = await connection.execute(
            update(experiment)
            .where(experiment.c.id == of.id, experiment.c.status.in_((*seen, "removing")))
            .values(status="removing")
        )
        if hidden.rowcount != 1:
            return False
        await connection.execute(
            update(recorder).where(recorder.c.experiment_id == of.id).values(epoch=recorder.c.epoch + 1)
        )
    recorders = await recorders_of(database, of.id)
    await asyncio.to_thread(_forget_registrations, database.location, recorders)
    await asyncio.to_thread(derived_files.delete, database, of.id)
    total = sum(row.last_seq for row in recorders)
    done = 0
    for row in recorders:
        base = row.id << SEQ_BITS
        for first in range(0, row.last_seq + 1, CHUNK):
            async with database.writing(long=True) as connection:
                key = event.c.id
                await connection.execute(delete(event).where(key >= base | first, key < (base | first) + CHUNK))
            if progress:
                progress(done + min(first + CHUNK, row.last_seq), total)
        done += row.last_seq
    async with database.writing(long=True) as connection:
        owned = select(recorder.c.id).where(recorder.c.experiment_id == of.id)
        await connection.execute(delete(batch).where(batch.c.recorder_id.in_(owned)))
        for table in (recorder, name, tag, redaction):
            await connection.execute(delete(table).where(table.c.experiment_id == of.id))
        await connection.execute(delete(experiment).where(experiment.c.id == of.id))
    await asyncio.to_thread(derived_files.delete, database, of.id)
    return True


def _forget_registrations(store: str, recorders: list[RecorderRow]) -> None:
    """Delete the registrations in spools on this host: draining would register the removed recorders again."""
    for row in recorders:
        left = left_spool(row)
        if left is None:
            continue
        try:
            with contextlib.closing(Spool.open(Path(left))) as spool:
                if spool.registration is not None and (spool.facts["recorder"], spool.facts.get("store")) == (
                    row.uuid,
                    store,
                ):
                    spool.forget_registration()
        except (FileNotFoundError, SpoolHeld):  # its recorder learns that it was fenced
            continue
        except (SpoolDamaged, SpoolFull) as error:
            logger.warning("draining %s may add recorder %d again: %s. Delete the file", left, row.ordinal, error)


async def _check_unchanged(connection: AsyncConnection, of: Experiment) -> None:
    row = (await connection.execute(select(experiment).where(experiment.c.id == of.id))).one_or_none()
    if row is None or row.status == "removing":
        return  # removed already
    tags = sorted((await connection.execute(select(tag.c.tag).where(tag.c.experiment_id == of.id))).scalars())
    if (row.status, row.closed_at, row.recorders, tags) != (of.status, of.closed_at, of.recorders, of.tags):
        raise ExperimentChanged(of.exp_id)


def _may_be_running(entry: RecorderRow) -> bool:
    """Return False only if the importing process has certainly ended; on other hosts, the heartbeat decides."""
    here = this_process()
    if entry.host == here.host and entry.boot_id == here.boot_id and entry.pid is not None:
        return entry.ended_at is None and here.is_running(entry.pid)
    return entry.state == "alive"


async def sweep_unfinished(log: EventLog) -> int:
    """Remove imports and complete removals whose process has ended; return their number."""
    async with log.database.reading() as connection:
        query = select(experiment.c.id, experiment.c.exp_id, experiment.c.created_at, experiment.c.status).where(
            experiment.c.status.not_in(VISIBLE)
        )
        rows = (await connection.execute(query)).all()
    swept = 0
    for row in rows:
        recorders = await recorders_of(log.database, row.id)
        if row.status == "importing":
            if not recorders and time.time_ns() - row.created_at < SILENT_NS:
                continue
            # recorder 0 is the unpacking process; the other rows describe the original recorders
            workers = [entry for entry in recorders if entry.ordinal == 0] or recorders
            if any(_may_be_running(entry) for entry in workers):
                continue
        left = Experiment(row.id, row.exp_id, None, row.status, row.created_at, None, {}, [], len(recorders))
        swept += await discard(log, left)
    return swept


async def discard(log: EventLog, left: Experiment) -> bool:
    """Remove an unfinished import or removal; log an error, such as a missing right, instead of raising it."""
    try:
        return await remove(log, left)
    except StoreError as error:
        logger.warning("could not remove the unfinished experiment %s: %s", left.exp_id, error)
        return False
