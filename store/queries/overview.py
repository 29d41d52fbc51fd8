"""Descriptions of experiments, from counters that are kept while recording."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import func, select

from ..db.codes import AGENT, CHANNEL, KINDS
from ..db.database import Database
from ..db.schema import VISIBLE, experiment, name, recorder
from ..experiments.records import Experiment, RecorderRow, experiment_of
from ..experiments.registry import TOGETHER, by_exp_id
from ..log.chain import head_of
from ..log.event import iso
from ..log.event_log import EventLog
from ..log.lineage import Parent, parent_of
from ..log.redaction_records import redactions_of


def _sum(recorders: list[RecorderRow]) -> dict[str, Any]:
    first = min((row.first_ts for row in recorders if row.first_ts is not None), default=None)
    last = max((row.last_ts for row in recorders if row.last_ts is not None), default=None)
    kinds = {kind: sum(row.kinds[kind] for row in recorders) for kind in KINDS}
    return _described(kinds, first, last, sum(row.payload_bytes for row in recorders))


def _described(kinds: dict[str, int], first: int | None, last: int | None, payload_bytes: int) -> dict[str, Any]:
    return {
        "events": sum(kinds.values()),
        "kinds": kinds,
        "first_ts": first,
        "last_ts": last,
        "duration_s": None if first is None or last is None else (last - first) / 1e9,
        "payload_bytes": payload_bytes,
        "gaps": kinds["gap"],
    }


async def listing(log: EventLog, experiments: list[Experiment]) -> list[dict[str, Any]]:
    """Return a short description of each experiment, in the order given."""
    totals = await _totals(log, [of.id for of in experiments])
    return [
        {
            "exp_id": of.exp_id,
            "name": of.name,
            "tags": of.tags,
            "status": of.status,
            "created_at": iso(of.created_at),
            "parent": None if (parent := parent_of(of)) is None else parent.as_json(),
            **totals.get(of.id, _sum([]) | {"recorders": 0}),
        }
        for of in experiments
    ]


async def _totals(log: EventLog, ids: list[int]) -> dict[int, dict[str, Any]]:
    """Return what `_sum` gives for the recorders of each of these experiments, and their number, by id.

    It is computed in the database, because the rows of recorders are large.
    """
    columns = [func.sum(recorder.c[f"{kind}_count"]) for kind in KINDS]
    more = func.min(recorder.c.first_ts), func.max(recorder.c.last_ts), func.sum(recorder.c.payload_bytes), func.count()
    query = select(recorder.c.experiment_id, *more, *columns).group_by(recorder.c.experiment_id)
    found: dict[int, dict[str, Any]] = {}
    async with log.database.reading() as connection:
        for at in range(0, len(ids), TOGETHER):
            wanted = query.where(recorder.c.experiment_id.in_(ids[at : at + TOGETHER]))
            for number, first, last, size, count, *kinds in await connection.execute(wanted):
                by_kind = {kind: int(events) for kind, events in zip(KINDS, kinds, strict=True)}
                found[number] = _described(by_kind, first, last, int(size)) | {"recorders": count}
    return found


async def overview(log: EventLog, of: Experiment) -> dict[str, Any]:
    """Return the full description of an experiment, without reading its events.

    Times are ns UTC under `..._ts`, ISO 8601 under `..._at`; `duration_s` is in seconds, sizes in
    bytes. `head` is the hash to cite; `verify` checks it. Of a fork, `parent` has the cursor where the copied part
    ends, its time, and, if the parent is in the store, the cursor as a point there and whether its head is the same.
    """
    recorders = await log.recorders(of)
    async with log.database.reading() as connection:
        query = select(name.c.what, func.count()).where(name.c.experiment_id == of.id).group_by(name.c.what)
        names: dict[int, int] = {row[0]: row[1] for row in await connection.execute(query)}
        size = await log.database.dialect.size(connection)
    return {
        "exp_id": of.exp_id,
        "name": of.name,
        "tags": of.tags,
        "meta": of.meta,
        "status": of.status,
        "created_at": iso(of.created_at),
        "closed_at": None if of.closed_at is None else iso(of.closed_at),
        "parent": None if (parent := parent_of(of)) is None else await _parent(log, parent),
        "forks": [_fork(each, recorders) for each in await forks_of(log.database, [of.exp_id])],
        **_sum(recorders),
        "channels": names.get(CHANNEL, 0),
        "agents": names.get(AGENT, 0),
        "recorders": [_recorder(row) for row in recorders],
        "head": head_of(recorders),
        "redactions": [
            {
                "at": iso(row.at),
                "who": row.who,
                "why": row.why,
                "events": row.count,
                "head_before": row.head_before.hex(),
            }
            for row in await redactions_of(log.database, of.id)
        ],
        "store": log.location,
        "store_bytes": size,
    }


def _recorder(row: RecorderRow) -> dict[str, Any]:
    return {
        "recorder": row.ordinal,
        "uuid": row.uuid,
        "role": row.role,
        "state": row.state,
        "host": row.host,
        "pid": row.pid,
        "patterns": row.patterns,
        "broker": row.broker,
        "broker_clock_offset_ns": row.broker_offset,
        "started_at": iso(row.started_at),
        "heartbeat_at": iso(row.heartbeat_at),
        "ended_at": None if row.ended_at is None else iso(row.ended_at),
        "events": row.last_seq,
        "kinds": row.kinds,
        "payload_bytes": row.payload_bytes,
        "worst_unacknowledged_ms": row.worst_unacknowledged / 1e6,
        "head": row.head.hex(),
        "meta": row.meta,
    }


async def _parent(log: EventLog, parent: Parent) -> dict[str, Any]:
    """Return the description of the parent of a fork."""
    of = await by_exp_id(log.database, parent.exp_id)
    recorders = [] if of is None else await log.recorders(of)
    point = parent.position({row.uuid: row.ordinal for row in recorders})
    here = of is not None and point is not None
    return {
        **parent.as_json(),
        "at": None if parent.ts is None else iso(parent.ts),
        "point": str(point) if here else None,
        "in_store": here,
        "head_unchanged": head_of(recorders) == parent.head if here and of is not None else None,
    }


def _fork(of: Experiment, recorders: list[RecorderRow]) -> dict[str, Any]:
    """Return the description of a fork of the experiment that has these recorders."""
    parent = parent_of(of)
    point = None if parent is None else parent.position({row.uuid: row.ordinal for row in recorders})
    at = None if parent is None or parent.ts is None else iso(parent.ts)
    return {"exp_id": of.exp_id, "at": at, "point": None if point is None else str(point)}


async def forks_of(database: Database, exp_ids: Collection[str]) -> list[Experiment]:
    """Return the experiments of the store whose parent has one of these exp_ids, oldest first."""
    found: list[Experiment] = []
    wanted = sorted(exp_ids)
    async with database.reading() as connection:
        for at in range(0, len(wanted), TOGETHER):
            query = select(experiment).where(
                experiment.c.parent_exp_id.in_(wanted[at : at + TOGETHER]), experiment.c.status.in_(VISIBLE)
            )
            found += [experiment_of(row, ()) for row in await connection.execute(query)]
    return sorted(found, key=lambda of: of.id)
