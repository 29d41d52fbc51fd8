"""Removing an experiment whole: the only way in which events leave the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import delete, false, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.database import Database
from ..db.schema import SEQ_BITS, VISIBLE, batch, delivery, event, experiment, metadata, name, recorder, redaction, tag
from ..errors import ExperimentChanged, SpoolDamaged, SpoolFull, SpoolHeld, StoreError
from ..experiments.provenance import this_process
from ..experiments.registry import SILENT_NS, Experiment, RecorderRow, check_idle, lock, recorders_of
from ..recording.repair import left_spool
from ..recording.spool import Spool

log = logging.getLogger("messager_store")

CHUNK = 50_000
"""Events deleted in one transaction, so that other writers get their turn."""


async def remove(
    database: Database,
    of: Experiment,
    *,
    spare_busy: bool = False,
    spare_changed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> bool:
    """Remove an experiment with everything that belongs to it, if it is still there as it was seen in `of`:
    open or closed, or else of the status it had.

    It is out of sight at once, and its recorders are fenced: what they append from then on is refused.
    What a crash leaves of it is swept with unfinished imports. With `spare_busy`, raises
    `ExperimentBusy` while a recorder is alive; with `spare_changed`, `ExperimentChanged` where it was
    tagged, closed or recorded into since `of` was read. What waits in spools stays there.
    `progress` is told how many events of how many. Whether it was there to be removed.
    """
    async with database.writing(long=True) as connection:
        await lock(connection, of.id)
        if spare_busy:
            rows = await connection.execute(select(recorder).where(recorder.c.experiment_id == of.id))
            check_idle(of, rows, "remove it")
        if spare_changed:
            await _check_unchanged(connection, of)
        for table in reversed(metadata.sorted_tables):  # who may not remove is told while nothing is
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
    await asyncio.to_thread(_keep_out, database.location, recorders)
    total = sum(row.last_seq for row in recorders)
    done = 0
    for row in recorders:
        base = row.id << SEQ_BITS
        for first in range(0, row.last_seq + 1, CHUNK):
            async with database.writing(long=True) as connection:
                for key in (event.c.id, delivery.c.event_id):
                    await connection.execute(delete(key.table).where(key >= base | first, key < (base | first) + CHUNK))
            if progress:
                progress(done + min(first + CHUNK, row.last_seq), total)
        done += row.last_seq
    async with database.writing(long=True) as connection:
        owned = select(recorder.c.id).where(recorder.c.experiment_id == of.id)
        await connection.execute(delete(batch).where(batch.c.recorder_id.in_(owned)))
        for table in (recorder, name, tag, redaction):
            await connection.execute(delete(table).where(table.c.experiment_id == of.id))
        await connection.execute(delete(experiment).where(experiment.c.id == of.id))
    return True


def _keep_out(store: str, recorders: list[RecorderRow]) -> None:
    """See that what recorders left in spools here, from before the store took them in, does not bring them back."""
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
        except (FileNotFoundError, SpoolHeld):  # who holds it finds that it is shut out
            continue
        except (SpoolDamaged, SpoolFull) as error:
            log.warning("a drain of what recorder %d left may bring it back: %s. Delete the file", row.ordinal, error)


async def _check_unchanged(connection: AsyncConnection, of: Experiment) -> None:
    row = (await connection.execute(select(experiment).where(experiment.c.id == of.id))).one_or_none()
    if row is None or row.status == "removing":
        return  # there is nothing left to spare
    tags = sorted((await connection.execute(select(tag.c.tag).where(tag.c.experiment_id == of.id))).scalars())
    if (row.status, row.closed_at, row.recorders, tags) != (of.status, of.closed_at, of.recorders, of.tags):
        raise ExperimentChanged(of.exp_id)


def _may_go_on(entry: RecorderRow) -> bool:
    """Whether an importing process may still be there: it runs on this host, or we cannot know."""
    here = this_process()
    if entry.host == here.host and entry.boot_id == here.boot_id and entry.pid is not None:
        return entry.ended_at is None and here.is_running(entry.pid)
    return entry.state == "alive"


async def sweep_imports(database: Database) -> int:
    """Remove imports and removals that did not finish and that nobody works on any more; how many."""
    async with database.reading() as connection:
        query = select(experiment.c.id, experiment.c.exp_id, experiment.c.created_at, experiment.c.status).where(
            experiment.c.status.not_in(VISIBLE)
        )
        rows = (await connection.execute(query)).all()
    swept = 0
    for row in rows:
        recorders = await recorders_of(database, row.id)
        if row.status == "importing":
            if not recorders and time.time_ns() - row.created_at < SILENT_NS:
                continue
            # while unpacking, recorder 0 stands for who does it; the others tell of where they recorded
            workers = [entry for entry in recorders if entry.ordinal == 0] or recorders
            if any(_may_go_on(entry) for entry in workers):
                continue
        left = Experiment(row.id, row.exp_id, None, row.status, row.created_at, None, {}, [], len(recorders), 1)
        swept += await clear_away(database, left)
    return swept


async def clear_away(database: Database, left: Experiment) -> bool:
    """Remove what nobody will finish; where that cannot be, as for who has no right to it, it is logged, and stays."""
    try:
        return await remove(database, left)
    except StoreError as error:
        log.warning("%s stays, half done and out of sight: %s", left.exp_id, error)
        return False
