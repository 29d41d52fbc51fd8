"""Credentials in the meta of an experiment and its recorders: found by `verify`, masked on request.

A recorder masks its own meta. What another version recorded, and what somebody gave as `meta`, may hold some all the
same. Meta is not part of the hash chain, so masking it changes no head and needs no redaction row.
"""

from __future__ import annotations

from sqlalchemy import select, update

from messager.credentials import find_credentials, mask_json

from .. import json_text
from ..db.schema import experiment, recorder
from ..experiments.registry import Experiment, RecorderRow, lock, recorders_of
from ..log.event_log import EventLog
from .redaction import finish, refuse_busy, scrub


def places(of: Experiment, recorders: list[RecorderRow]) -> list[str]:
    """The places of credentials, as "recorder 1: command[3]"."""
    found = [f"meta: {path}" for path in find_credentials(of.meta)]
    return found + [f"recorder {row.ordinal}: {path}" for row in recorders for path in find_credentials(row.meta)]


async def mask_meta(log: EventLog, of: Experiment, *, dry_run: bool = False) -> list[str]:
    """Mask these credentials and rewrite the store; with `dry_run`, do nothing. Return the places.

    Raises `ExperimentBusy` while a recorder is alive or has left a spool, as `redact` does, and `ScrubUnfinished` if
    the credentials are masked but the file could not be rewritten yet.
    """
    of = await log.experiment(of.exp_id)
    recorders = await recorders_of(log.database, of.id)
    found = places(of, recorders)
    if dry_run:
        return found
    if not found:
        await finish(log)
        return found
    refuse_busy(of, recorders)
    dialect = log.database.dialect
    async with log.database.writing(long=True) as connection:
        await lock(connection, of.id)
        await dialect.overwrite_deleted(connection)
        await dialect.want_rewrite(connection)
        for table, belongs in ((experiment, experiment.c.id == of.id), (recorder, recorder.c.experiment_id == of.id)):
            for number, meta in (await connection.execute(select(table.c.id, table.c.meta).where(belongs))).all():
                data = json_text.load_object(meta)
                if (masked := mask_json(data)) != data:
                    change = update(table).where(table.c.id == number).values(meta=json_text.dump(masked))
                    await connection.execute(change)
    await scrub(log)
    return found
