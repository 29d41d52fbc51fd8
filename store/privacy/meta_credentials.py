"""Credentials in the meta of an experiment and its recorders: reported by `verify`, masked by `redact --meta`.

A recorder masks its own meta, but meta from other versions or from users may contain credentials. Masking the meta of
an ended recorder gives it another seal, and the experiment another head; there is no redaction record of it.
"""

from __future__ import annotations

from sqlalchemy import select, update

from messager.credentials import find_credentials, mask_json

from .. import json_text
from ..db.schema import experiment, recorder
from ..experiments.lifecycle import lock
from ..experiments.records import Experiment, RecorderRow
from ..experiments.seal import seal_ended
from ..log.event_log import EventLog
from .refusal import check_recorders, check_seals
from .scrubbing import finish_scrub, scrub


def find_in_meta(of: Experiment, recorders: list[RecorderRow]) -> list[str]:
    """Return the locations of credentials, such as "recorder 1: command[3]"."""
    found = [f"meta: {path}" for path in find_credentials(of.meta)]
    return found + [f"recorder {row.ordinal}: {path}" for row in recorders for path in find_credentials(row.meta)]


async def mask_meta(log: EventLog, of: Experiment, *, dry_run: bool = False) -> list[str]:
    """Mask the credentials and rewrite the store; return their locations. With `dry_run`, nothing is changed.

    Raises the errors of `refusal.check_recorders` and `check_seals`, and `ScrubUnfinished` if the credentials are
    masked but the file could not be rewritten yet.
    """
    of = await log.experiment(of.exp_id)
    recorders = await log.recorders(of)
    found = find_in_meta(of, recorders)
    if dry_run:
        return found
    if not found:
        await finish_scrub(log)
        return found
    check_recorders(of, recorders)
    dialect = log.database.dialect
    async with log.database.writing(long=True) as connection:
        await lock(connection, of.id)
        await dialect.overwrite_deleted(connection)
        await dialect.want_rewrite(connection)
        await check_seals(connection, log.database.location, of)
        for table, belongs in ((experiment, experiment.c.id == of.id), (recorder, recorder.c.experiment_id == of.id)):
            for number, meta in (await connection.execute(select(table.c.id, table.c.meta).where(belongs))).all():
                data = json_text.load_object(meta)
                if (masked := mask_json(data)) != data:
                    change = update(table).where(table.c.id == number).values(meta=json_text.dump(masked))
                    await connection.execute(change)
        await seal_ended(connection, recorder.c.experiment_id == of.id)
    await scrub(log)
    return found
