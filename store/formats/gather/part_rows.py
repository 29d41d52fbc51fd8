"""The rows that come with a part besides its chains: experiment, tags, recorders and redaction records.

Experiment, tags and recorders are written first and in one transaction, so that the causes and names of events always
have an owner. Redaction records are written last, once the events that they name are there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ... import json_text
from ...db.database import Database
from ...db.schema import VISIBLE, experiment, recorder, redaction, tag
from ...experiments import lifecycle
from ...experiments.records import GATHERED, RecorderRow
from ...experiments.seal import SEALED
from ...log.chain_counters import Counters
from ...log.redaction_records import RedactionRow
from .chain_copy import Moved
from .parts import PARENT, Columns, Part

_RECORD = ("who", "at", "why", "events", "head_before", "head_after")

Records = list[tuple[Any, ...]]
"""Redaction records, oldest first: the origin, and the columns `_RECORD`."""


def is_newer(row: RecorderRow, here: Any) -> bool:
    """Return whether `row` is a later state of a recorder than `here`, its row in the target."""
    if row.last_seq != here.last_seq:
        return bool(row.last_seq > here.last_seq)
    return (row.ended_at is not None, row.heartbeat_at) > (here.ended_at is not None, int(here.heartbeat_at))


def ending(columns: Columns, here: Columns) -> dict[str, Any]:
    """Return the columns that the row `here` gets once all events of a recorder are copied: those of its seal.

    Keys of its meta stay: they may have been masked.
    """
    meta = {**json_text.load_object(columns["meta"]), **json_text.load_object(here["meta"])}
    return {key: columns[key] for key in SEALED} | {"meta": json_text.dump(meta)}


async def records_of(database: Database, experiment_id: int) -> Records:
    """Return the redaction records of an experiment."""
    async with database.reading() as connection:
        return await _records(connection, experiment_id)


def missing_records(there: Records, here: Records) -> Records | None:
    """Return the records that `here` lacks, in the order of `there`; None if the two contradict each other.

    The records of one origin form a chain, so that one side holds a beginning of what the other does.
    """
    known: dict[str | None, Records] = defaultdict(list)
    for record in here:
        known[record[0]].append(record)
    found: Records = []
    seen: Counter[str | None] = Counter()
    for record in there:
        mine, at = known[record[0]], seen[record[0]]
        seen[record[0]] += 1
        if at >= len(mine):
            found.append(record)
        elif mine[at] != record:
            return None
    return found


async def write_rows(database: Database, part: Part, experiment_id: int | None) -> int:
    """Create or complete the rows of an experiment from a part. Returns its id in the target.

    New recorders get the next ordinals, and count nothing until their events are copied; with them, a closed experiment
    is open again, and gets the tags of the part. Raises `Moved` if the experiment is not the one of `experiment_id` any
    more.
    """
    async with database.writing() as connection:
        row = await _experiment_row(database, connection, part, experiment_id)
        query = select(recorder.c.uuid).where(recorder.c.experiment_id == row.id)
        here = set((await connection.execute(query)).scalars())
        new = [each for each in part.recorders if each.uuid not in here]
        for ordinal, each in enumerate(new, row.recorders + 1):
            await connection.execute(insert(recorder).values(_begun(part, each, row.id, ordinal)))
        values = _merged(part, row)
        if new:
            values["recorders"] = row.recorders + len(new)
        if new and row.status == "closed":
            values |= {"status": "open", "closed_at": None}
        if values:
            await connection.execute(update(experiment).where(experiment.c.id == row.id).values(values))
        words = [{"experiment_id": row.id, "tag": word} for word in part.tags]
        if words and (new or experiment_id is None):  # one that was removed since is not added again
            await connection.execute(database.dialect.insert_or_ignore(tag), words)
        return int(row.id)


async def write_records(database: Database, experiment_id: int, records: Records) -> None:
    """Add the redaction records of a part that the target lacks, if the events they name are all there.

    A record, and those of its origin behind it, waits until each recorder has reached its position in that record: what
    lies behind damage comes with an intact copy. Raises `Moved` if the experiment was redacted meanwhile.
    """
    async with database.writing() as connection:
        await lifecycle.lock(connection, experiment_id)
        missing = missing_records(records, await _records(connection, experiment_id))
        if missing is None:
            raise Moved
        if not missing:
            return
        query = select(recorder.c.uuid, recorder.c.last_seq).where(recorder.c.experiment_id == experiment_id)
        reached = {row.uuid: row.last_seq for row in await connection.execute(query)}
        waiting: set[str] = set()
        for origin, *values in missing:
            named = dict(zip(_RECORD, values, strict=True))
            if origin in waiting or not _is_reached(origin, named, reached):
                waiting.add(origin)
                continue
            await connection.execute(insert(redaction).values(**named, origin=origin, experiment_id=experiment_id))


def _is_reached(origin: str, record: dict[str, Any], reached: dict[str, int]) -> bool:
    """Return whether all recorders that a record names have reached their positions in it."""
    try:
        positions = RedactionRow(id=0, origin=origin, **record).positions()
    except ValueError:
        return False
    return all(reached.get(str(uuid), -1) >= last for uuid, last in positions.items())


async def close_complete(
    database: Database, experiment_id: int, closed_at: int, known: Collection[str] | None = None
) -> None:
    """Close an experiment if all its recorders have ended, and are among `known` if it is given (uuids)."""
    async with database.writing() as connection:
        await lifecycle.lock(connection, experiment_id)
        query = select(recorder.c.uuid, recorder.c.ended_at).where(recorder.c.experiment_id == experiment_id)
        rows = (await connection.execute(query)).all()
        if all(row.ended_at is not None and (known is None or row.uuid in known) for row in rows):
            await connection.execute(
                update(experiment)
                .where(experiment.c.id == experiment_id, experiment.c.status == "open")
                .values(status="closed", closed_at=closed_at)
            )


async def _records(connection: AsyncConnection, experiment_id: int) -> Records:
    query = select(redaction).where(redaction.c.experiment_id == experiment_id).order_by(redaction.c.id)
    return [(row.origin, *(getattr(row, key) for key in _RECORD)) for row in await connection.execute(query)]


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
        **Counters.before(of.uuid).columns(),
        **dict.fromkeys(("ended_at", "spool", "seal")),
        "complete_until": None,
        "unclean": 0,
        "epoch": GATHERED,
        "experiment_id": experiment_id,
        "ordinal": ordinal,
    }
