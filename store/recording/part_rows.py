"""The rows that come with a part besides its chains: experiment, tags, recorders and redaction records.

They are written first and in one transaction, so that the causes and names of events always have an owner.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from .. import json_text
from ..db.database import Database
from ..db.schema import KINDS, VISIBLE, experiment, recorder, redaction, tag
from ..experiments import lifecycle
from ..experiments.records import GATHERED, RecorderRow
from ..log import chain
from .chain_copy import Moved
from .parts import PARENT, Columns, Part

_LIVE = (
    *("anchor_wall", "anchor_monotonic", "broker", "broker_offset", "durability"),
    *("heartbeat_at", "ended_at", "complete_until", "unclean"),
)
"""Columns of a recorder that change while it records, besides the counters and the meta."""
_RECORD = ("who", "at", "why", "events", "head_before", "head_after")

Records = dict[str | None, list[tuple[Any, ...]]]
"""Redaction records by origin, oldest first."""


def is_newer(row: RecorderRow, here: Any) -> bool:
    """Return whether `row` is a later state of a recorder than `here`, its row in the target."""
    if row.last_seq != here.last_seq:
        return bool(row.last_seq > here.last_seq)
    return (row.ended_at is not None, row.heartbeat_at) > (here.ended_at is not None, int(here.heartbeat_at))


def ending(columns: Columns, here: Columns) -> dict[str, Any]:
    """Return the columns that the row `here` gets once all events of a recorder are copied.

    Keys of its meta stay: they may have been masked.
    """
    meta = {**json_text.load_object(columns["meta"]), **json_text.load_object(here["meta"])}
    return {key: columns[key] for key in _LIVE} | {"meta": json_text.dump(meta)}


async def records_of(database: Database, experiment_id: int) -> Records:
    """Return the redaction records of an experiment."""
    async with database.reading() as connection:
        return await _records(connection, experiment_id)


def missing_records(there: Records, here: Records) -> list[tuple[str | None, tuple[Any, ...]]] | None:
    """Return the records, with their origins, that `here` lacks; None if the two contradict each other."""
    found: list[tuple[str | None, tuple[Any, ...]]] = []
    for origin, rows in there.items():
        known = here.get(origin, [])
        common = min(len(known), len(rows))
        if known[:common] != rows[:common]:
            return None
        found += [(origin, row) for row in rows[common:]]
    return found


async def write_rows(database: Database, part: Part, redactions: Records, experiment_id: int | None) -> int:
    """Create or complete the rows of an experiment from a part, whose redaction records are given.

    Returns its id in the target.

    New recorders get the next ordinals, and count nothing until their events are copied. Recorders of which the part
    holds more are open again, and so is a closed experiment. Raises `Moved` if the experiment is not the one of
    `experiment_id` any more.
    """
    async with database.writing() as connection:
        row = await _experiment_row(database, connection, part, experiment_id)
        query = select(recorder).where(recorder.c.experiment_id == row.id)
        here = {each.uuid: each for each in (await connection.execute(query)).all()}
        new = [each for each in part.recorders if each.uuid not in here]
        for ordinal, each in enumerate(new, row.recorders + 1):
            await connection.execute(insert(recorder).values(_begun(part, each, row.id, ordinal)))
        more = bool(new)
        for each in part.recorders:
            known = here.get(each.uuid)
            if known is None or not is_newer(each, known):
                continue
            more |= each.last_seq > known.last_seq
            opened = {"ended_at": None, "unclean": 0, "epoch": min(known.epoch, GATHERED), "spool": None}
            taken = update(recorder).where(recorder.c.id == known.id, recorder.c.epoch == known.epoch).values(opened)
            if (await connection.execute(taken)).rowcount != 1:
                raise Moved
        values = _merged(part, row)
        if new:
            values["recorders"] = row.recorders + len(new)
        if more and row.status == "closed":
            values |= {"status": "open", "closed_at": None}
        if values:
            await connection.execute(update(experiment).where(experiment.c.id == row.id).values(values))
        words = [{"experiment_id": row.id, "tag": word} for word in part.tags]
        if words:
            await connection.execute(database.dialect.insert_or_ignore(tag), words)
        records = missing_records(redactions, await _records(connection, row.id))
        if records is None:
            raise Moved
        for origin, values_of in records:
            named = dict(zip(_RECORD, values_of, strict=True))
            await connection.execute(insert(redaction).values(**named, origin=origin, experiment_id=row.id))
        return int(row.id)


async def close_complete(database: Database, experiment_id: int, closed_at: int) -> None:
    """Close an experiment if all its recorders have ended."""
    async with database.writing() as connection:
        await lifecycle.lock(connection, experiment_id)
        open_ones = select(func.count()).where(recorder.c.experiment_id == experiment_id, recorder.c.ended_at.is_(None))
        if not (await connection.execute(open_ones)).scalar_one():
            await connection.execute(
                update(experiment)
                .where(experiment.c.id == experiment_id, experiment.c.status == "open")
                .values(status="closed", closed_at=closed_at)
            )


async def _records(connection: AsyncConnection, experiment_id: int) -> Records:
    query = select(redaction).where(redaction.c.experiment_id == experiment_id).order_by(redaction.c.id)
    found: Records = defaultdict(list)
    for row in await connection.execute(query):
        found[row.origin].append(tuple(getattr(row, key) for key in _RECORD))
    return dict(found)


async def _experiment_row(
    database: Database, connection: AsyncConnection, part: Part, experiment_id: int | None
) -> Any:
    """Return the locked row of the experiment, inserted if it was not there."""
    same = experiment.c.exp_id == part.exp_id
    if experiment_id is None:
        first = {key: value for key, value in part.columns.items() if key != "id"}
        first |= {"status": "open", "closed_at": None, "recorders": 0}
        await connection.execute(database.dialect.insert_or_ignore(experiment).values(first))
    number = (await connection.execute(select(experiment.c.id).where(same))).scalar_one_or_none()
    await lifecycle.lock(connection, number)
    row = (await connection.execute(select(experiment).where(experiment.c.id == number))).one_or_none()
    if row is None or row.status not in VISIBLE or experiment_id not in (None, row.id):
        raise Moved
    return row


def _merged(part: Part, row: Any) -> dict[str, Any]:
    """Return the columns of an experiment that a part changes: what both state stays as it is."""
    meta = {**part.meta, **json_text.load_object(row.meta)}
    wanted = {
        "name": row.name or part.columns["name"],
        "created_at": min(row.created_at, part.columns["created_at"]),
        "meta": row.meta if meta == json_text.load_object(row.meta) else json_text.dump(meta),
    }
    if all(getattr(row, key) is None for key in PARENT):
        wanted |= {key: part.columns[key] for key in PARENT}
    return {key: value for key, value in wanted.items() if getattr(row, key) != value}


def _begun(part: Part, of: RecorderRow, experiment_id: int, ordinal: int) -> dict[str, Any]:
    """Return the row of a recorder none of whose events is copied. No writer has its epoch."""
    row = {key: value for key, value in part.recorder_columns[of.uuid].items() if key != "id"}
    return {
        **row,
        **dict.fromkeys((f"{kind}_count" for kind in KINDS), 0),
        **dict.fromkeys(("last_seq", "payload_bytes", "worst_unacknowledged", "unclean"), 0),
        **dict.fromkeys(("first_ts", "last_ts", "ended_at", "complete_until", "spool")),
        "head_hash": chain.first_link(of.uuid),
        "epoch": GATHERED,
        "experiment_id": experiment_id,
        "ordinal": ordinal,
    }
