"""Create, join, describe, tag and close experiments."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from sqlalchemy import and_, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from .. import json_text
from ..db.database import Database
from ..db.schema import VISIBLE, experiment, recorder, tag
from ..errors import ExperimentBusy, ExperimentClosed, ExperimentExists, StoreError, StoreUnavailable
from . import registry
from .records import Experiment, RecorderRow, experiment_of, recorder_of
from .seal import seal_ended
from .validation import checked_name, checked_tags, meta_text

log = logging.getLogger("messager_store")


async def create(
    database: Database,
    exp_id: str,
    *,
    name: str | None,
    tags: Iterable[str],
    meta: dict[str, Any],
    status: str = "open",
    parent: Mapping[str, str] | None = None,
) -> Experiment | None:
    """Create an experiment and return it; return None if the exp_id is in use.

    `parent` has exp_id, head (hex) and cursor of the experiment that it was forked from.
    """
    row: dict[str, Any] = {
        "exp_id": exp_id,
        "name": checked_name(name),
        "status": status,
        "created_at": time.time_ns(),
        "meta": meta_text(meta),
        "recorders": 0,
    }
    if parent is not None:
        row["parent_exp_id"], row["parent_cursor"] = parent["exp_id"], parent["cursor"]
        row["parent_head"] = bytes.fromhex(parent["head"])
    words = checked_tags(tags)
    async with database.writing() as connection:
        result = await connection.execute(database.dialect.insert_or_ignore(experiment).values(row))
        if result.rowcount != 1:
            return None
        made = (await connection.execute(select(experiment).where(experiment.c.exp_id == exp_id))).one()
        if words:
            await connection.execute(insert(tag), [{"experiment_id": made.id, "tag": word} for word in words])
    return experiment_of(made, words)


async def lock(connection: AsyncConnection, experiment_id: int | None) -> None:
    """Lock an experiment until the transaction ends, against registering, closing, redacting and removing.

    A transaction that uses its row, or its recorders' rows, in more than one statement takes this lock first. Appends
    do not.
    """
    await connection.execute(select(experiment.c.id).where(experiment.c.id == experiment_id).with_for_update())


async def describe(
    database: Database, of: Experiment, *, name: str | None, tags: Iterable[str], meta: dict[str, Any]
) -> None:
    """Add tags, a name if it has none, and meta under unused keys. Raises `StoreError` for a bad tag or name.

    Meta that would be too large together is not added, with a warning: it must not prevent a recording.
    """
    async with database.writing() as connection:
        await lock(connection, of.id)
        row = (await connection.execute(select(experiment).where(experiment.c.id == of.id))).one()
        values = {"name": row.name or checked_name(name)}
        try:
            values["meta"] = meta_text({**meta, **json_text.load_object(row.meta)})
        except StoreError as error:
            log.warning("%s; %s keeps the meta that it has", error, of.exp_id)
        await connection.execute(update(experiment).where(experiment.c.id == of.id).values(values))
        await _add_tags(database, connection, of.id, tags)


async def set_meta(database: Database, of: Experiment, key: str, value: Any) -> None:
    """Set one key of the meta of an experiment, also if it is used."""
    async with database.writing() as connection:
        await lock(connection, of.id)
        row = (await connection.execute(select(experiment).where(experiment.c.id == of.id))).one()
        merged = {**json_text.load_object(row.meta), key: value}
        await connection.execute(update(experiment).where(experiment.c.id == of.id).values(meta=meta_text(merged)))


async def join(
    database: Database,
    exp_id: str,
    if_exists: str | None,
    *,
    uuid: str,
    name: str | None,
    tags: Iterable[str],
    meta: dict[str, Any],
    noted: dict[str, Any],
) -> Experiment:
    """Return the experiment to record into; create it if needed. `if_exists` is that of `Recorder`.

    If the recorder of this `uuid` is registered already, because an answer was lost, return its experiment. `noted` is
    meta for a new experiment only. Raises `ExperimentClosed`, `ExperimentExists`, and `StoreUnavailable` if an
    experiment of that exp_id is being imported or removed.
    """
    async with database.reading() as connection:
        of = select(experiment.c.exp_id).join(recorder).where(recorder.c.uuid == uuid)
        joined = (await connection.execute(of)).scalar_one_or_none()
    if joined is not None and (mine := await registry.by_exp_id(database, joined)) is not None:
        return mine
    wanted, numbers = exp_id, count(2)
    while True:
        there = await registry.by_exp_id(database, wanted)
        if there is None:
            made = await create(database, wanted, name=name, tags=tags, meta={**noted, **meta})
            if made is not None:
                return made
            hidden = await _hidden(database, wanted)
            if hidden is None:
                continue  # another process created it meanwhile
            if if_exists not in ("new", "next"):
                remedy = "Record under another exp_id, or clear it away with `messager compact`"
                raise StoreUnavailable(database.location, f"the experiment {wanted!r} is {hidden}. {remedy}")
            wanted = f"{exp_id}-{next(numbers)}"
            continue
        if if_exists == "new" or (if_exists == "next" and there.status != "open"):
            wanted = f"{exp_id}-{next(numbers)}"
            continue
        if there.status != "open":
            raise ExperimentClosed(wanted)
        if if_exists == "fail":
            raise ExperimentExists(
                wanted, 'Choose another exp_id, or append to it with if_exists="append" (--if-exists append).'
            )
        await describe(database, there, name=name, tags=tags, meta=meta)
        return there


async def _hidden(database: Database, exp_id: str) -> str | None:
    """Return the state of a hidden experiment of this exp_id, None if there is none."""
    words = {"removing": "being removed", "importing": "being imported"}
    async with database.reading() as connection:
        query = select(experiment.c.status).where(experiment.c.exp_id == exp_id, experiment.c.status.not_in(VISIBLE))
        status = (await connection.execute(query)).scalar_one_or_none()
    return None if status is None else words.get(status, f"of the status {status!r}")


async def retag(database: Database, of: Experiment, add: Iterable[str], remove: Iterable[str]) -> list[str]:
    """Add and remove tags; return the tags it has then."""
    async with database.writing() as connection:
        await _add_tags(database, connection, of.id, add)
        if words := list(remove):  # a user who only records has no right to delete
            await connection.execute(delete(tag).where(tag.c.experiment_id == of.id, tag.c.tag.in_(words)))
        return sorted((await registry.tags_of(connection, [of.id])).get(of.id, ()))


async def _add_tags(database: Database, connection: AsyncConnection, experiment_id: int, words: Iterable[str]) -> None:
    rows = [{"experiment_id": experiment_id, "tag": word} for word in checked_tags(words)]
    if rows:
        await connection.execute(database.dialect.insert_or_ignore(tag), rows)


def check_idle(of: Experiment, recorders: Iterable[RecorderRow], intent: str | None) -> list[RecorderRow]:
    """Return the recorders that are alive, or incomplete.

    With an intent, such as "close it", raises `ExperimentBusy` if there are any that are alive.
    """
    going_on = [row for row in recorders if row.state in ("alive", "incomplete")]
    alive = [row for row in going_on if row.state == "alive"]
    if alive and intent:
        who = (f"recorder {row.ordinal} ({row.host}, pid {row.pid})" for row in alive)
        raise ExperimentBusy(of.exp_id, who, intent)
    return going_on


async def mark_closed(database: Database, of: Experiment, *, force: bool = False) -> None:
    """Set the status to closed, and fence and end every recorder. See `messager_store.recording.closing`.

    Nothing appends to an ended recorder and its row is sealed, so the head of a closed experiment does not change.
    Recorders that were alive count as ended, others as ended uncleanly. Unless forced, raises `ExperimentBusy` while a
    recorder is alive, and `StoreError` if one is incomplete.
    """
    now = time.time_ns()
    async with database.writing() as connection:
        await lock(connection, of.id)
        rows = await connection.execute(select(recorder).where(recorder.c.experiment_id == of.id))
        recorders = [recorder_of(row) for row in rows]
        going_on = check_idle(of, recorders, None if force else "close it")
        incomplete = [row for row in going_on if row.state == "incomplete"]
        if incomplete and not force:
            raise StoreError(
                f"recorder {incomplete[0].ordinal} of {of.exp_id} was gathered without its end. Gather its store again "
                "(an intact copy if it is damaged), or close without the rest with --force."
            )
        await connection.execute(
            update(recorder)
            .where(recorder.c.experiment_id == of.id, recorder.c.ended_at.is_(None))
            .values(epoch=recorder.c.epoch + 1, ended_at=now)
        )
        ended = and_(recorder.c.experiment_id == of.id, recorder.c.ended_at == now)
        dead = [row.id for row in recorders if row.state in ("incomplete", "unclean")]
        await connection.execute(update(recorder).where(ended, recorder.c.id.in_(dead)).values(unclean=1))
        await seal_ended(connection, ended)
        await connection.execute(
            update(experiment)
            .where(experiment.c.id == of.id, experiment.c.status == "open")
            .values(status="closed", closed_at=now)
        )
