"""The rows of recorders, on behalf of `EventLog`: registration, takeover, recovery, heartbeat."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import insert, select, true, update

from .. import json_text
from ..db.codes import KINDS, SEQ_BITS
from ..db.database import Database
from ..db.schema import event, experiment, recorder
from ..errors import ExperimentClosed, RecorderFenced
from ..experiments import lifecycle, registry
from ..experiments.provenance import this_process
from ..experiments.records import Experiment
from ..experiments.seal import seal_ended
from ..experiments.validation import meta_text
from . import chain
from .writer import Writer, new_uuid


async def register(
    database: Database,
    of: Experiment,
    *,
    role: str,
    patterns: Iterable[str],
    meta: Mapping[str, Any],
    name: str | None,
    durability: str,
    spool: str | None,
    row: Mapping[str, Any],
) -> Writer:
    """Insert the row of a recorder; see `EventLog.register`."""
    again = name is not None
    here = this_process()
    now = time.time_ns()
    name = name or new_uuid()
    values: dict[str, Any] = dict.fromkeys((f"{kind}_count" for kind in KINDS), 0)
    values |= {
        "uuid": name,
        "experiment_id": of.id,
        "epoch": 1,
        "role": role,
        "patterns": json_text.dump(list(patterns)),
        "meta": meta_text(meta),
        "host": here.host,
        "pid": here.pid,
        "boot_id": here.boot_id,
        "started_at": now,
        "heartbeat_at": now,
        "last_seq": 0,
        "head_hash": chain.first_link(name),
        "payload_bytes": 0,
        "worst_unacknowledged": 0,
        "unclean": 0,
        "durability": durability,
        "spool": spool,
        **row,
    }
    async with database.writing() as connection:
        if again:
            await lifecycle.lock(connection, of.id)  # an earlier call may be committed only now
            query = select(recorder).where(recorder.c.uuid == name)
            there = (await connection.execute(query)).one_or_none()
            if there is not None:
                facts = (there.experiment_id, there.epoch, there.last_seq, there.ended_at)
                if facts != (of.id, 1, 0, None):
                    raise RecorderFenced(name, "it has recorded already, or has been ended")
                return Writer(database, of, there.id, there.ordinal, name)
        joined = await connection.execute(
            update(experiment)
            .where(experiment.c.id == of.id, experiment.c.status.in_(("open", "importing")))
            .values(recorders=experiment.c.recorders + 1)
        )
        if joined.rowcount != 1:
            raise ExperimentClosed(of.exp_id)
        ordinal = (
            await connection.execute(select(experiment.c.recorders).where(experiment.c.id == of.id))
        ).scalar_one()
        made = await connection.execute(insert(recorder).values(**values, ordinal=ordinal))
        number = made.inserted_primary_key[0]  # type: ignore[index]
    return Writer(database, of, number, ordinal, name)


async def take_over(database: Database, name: str) -> Writer:
    """Raise the epoch of a recorder; see `EventLog.take_over`."""
    owner = select(recorder.c.experiment_id).where(recorder.c.uuid == name)
    query = select(recorder, experiment.c.exp_id, experiment.c.status).join(experiment)
    async with database.writing() as connection:
        await lifecycle.lock(connection, (await connection.execute(owner)).scalar_one_or_none())
        row = (await connection.execute(query.where(recorder.c.uuid == name).with_for_update())).one_or_none()
        if row is None:
            raise RecorderFenced(name, f"it is not in {database.location}: its experiment was removed")
        if row.epoch < 0:
            raise RecorderFenced(name, "it was gathered from another store, and only `messager gather` appends to it")
        if row.status != "open":
            raise ExperimentClosed(row.exp_id)
        await connection.execute(
            update(recorder).where(recorder.c.id == row.id).values(epoch=row.epoch + 1, ended_at=None, seal=None)
        )
    of = await registry.by_exp_id(database, row.exp_id)
    if of is None:
        raise RecorderFenced(name, f"its experiment was removed from {database.location}")
    position = (row.epoch + 1, row.last_seq, row.head_hash)
    return Writer(database, of, row.id, row.ordinal, name, *position)


async def recover(database: Database, writer: Writer) -> int:
    """Read what was committed; see `EventLog.recover`."""
    query = select(recorder.c.last_seq, recorder.c.head_hash, recorder.c.epoch, recorder.c.ended_at).where(
        recorder.c.id == writer.id
    )
    if database.dialect.commits_late:
        await _outdate(database, writer)
    async with database.reading() as connection:
        row = (await connection.execute(query)).one_or_none()
    if row is None or row.epoch != writer.epoch or row.ended_at is not None:
        raise RecorderFenced(writer.uuid, "its experiment was closed or removed, or another writer took it over")
    news: int = row.last_seq - writer.last_seq
    if news < 0:
        raise RecorderFenced(
            writer.uuid, f"committed events are missing in {database.location}: it is an older copy or another store"
        )
    writer.last_seq, writer.head_hash = row.last_seq, row.head_hash
    return news


async def _outdate(database: Database, writer: Writer) -> None:
    """Wait for this writer's transactions, and raise the epoch so that later ones are refused."""
    mine = recorder.c.id == writer.id, recorder.c.epoch == writer.epoch, recorder.c.ended_at.is_(None)
    async with database.writing() as connection:
        raised = await connection.execute(update(recorder).where(*mine).values(epoch=writer.epoch + 1))
    writer.epoch += raised.rowcount


async def times(database: Database, writer: Writer, first: int) -> list[int]:
    """Return the ts of a writer's events from the seq `first` on."""
    base = writer.id << SEQ_BITS
    query = select(event.c.ts).where(event.c.id >= base | first, event.c.id <= base | writer.last_seq)
    async with database.reading() as connection:
        return list((await connection.execute(query.order_by(event.c.id))).scalars())


async def touch(database: Database, writer: Writer, **values: Any) -> None:
    """Write the heartbeat and other columns; see `EventLog.touch`."""
    mine = recorder.c.id == writer.id, recorder.c.uuid == writer.uuid, recorder.c.epoch == writer.epoch
    ends = values.get("ended_at") is not None
    async with database.writing() as connection:
        changed = await connection.execute(
            update(recorder)
            .where(*mine, true() if ends else recorder.c.ended_at.is_(None))
            .values({"heartbeat_at": time.time_ns(), **values})
        )
        if changed.rowcount != 1:
            raise RecorderFenced(writer.uuid, "its experiment was closed, or another writer took it over")
        if ends:
            await seal_ended(connection, recorder.c.id == writer.id)
