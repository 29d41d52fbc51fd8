"""Experiments and their recorders: create, find, tag, close. Events are in `messager_store.log`."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from .. import json_text
from ..db.database import Database
from ..db.schema import KINDS, SCHEMA_VERSION, VISIBLE, experiment, recorder, tag
from ..errors import (
    AmbiguousExperiment,
    ExperimentBusy,
    ExperimentClosed,
    ExperimentExists,
    ExperimentNotFound,
    StoreError,
    StoreUnavailable,
)
from .provenance import this_process

SILENT_NS = 30_000_000_000
"""A recorder that has been silent for longer has ended uncleanly."""


@dataclass(slots=True)
class Experiment:
    """One run of an agent society. Times are ns UTC."""

    id: int
    exp_id: str
    name: str | None
    status: str
    created_at: int
    closed_at: int | None
    meta: dict[str, Any]
    tags: list[str]
    recorders: int
    """How many recorders it should have."""
    schema_version: int


@dataclass(slots=True)
class RecorderRow:
    """The row of one recorder of an experiment. Times are ns UTC."""

    id: int
    uuid: str
    experiment_id: int
    ordinal: int
    epoch: int
    role: str
    patterns: list[str]
    meta: dict[str, Any]
    host: str | None
    pid: int | None
    boot_id: str | None
    anchor_wall: int | None
    broker: str | None
    broker_offset: int | None
    started_at: int
    heartbeat_at: int
    ended_at: int | None
    last_seq: int
    head_hash: bytes
    kinds: dict[str, int]
    """The number of events of each kind."""
    payload_bytes: int
    first_ts: int | None
    last_ts: int | None
    worst_unacknowledged: int
    complete_until: int
    """Every event accepted before this moment is in the log, as far as is known."""
    unclean: bool
    """Whether it ended uncleanly and was repaired."""
    durability: str
    """buffered or strict"""
    spool: str | None
    """The file on its host to which it writes while the store is unreachable."""

    @property
    def original_role(self) -> str:
        """The role in the original recording, also for an import."""
        return str(self.meta.get("role", self.role)) if self.role == "import" else self.role

    @property
    def session(self) -> tuple[int, int]:
        """Start and end of the original recording; an unknown one is the minimum or maximum of int64."""
        if self.role != "import":
            return self.started_at, self.heartbeat_at if self.ended_at is None else self.ended_at
        start, end = self.meta.get("started_at"), self.meta.get("ended_at")
        return start if isinstance(start, int) else -(2**63), end if isinstance(end, int) else 2**63 - 1

    @property
    def state(self) -> str:
        """ended, alive, unclean (no end was recorded, and it is silent or its process is gone), or repaired."""
        if self.ended_at is not None:
            return "repaired" if self.unclean else "ended"
        if time.time_ns() - self.heartbeat_at > SILENT_NS:
            return "unclean"
        here = this_process()
        if self.host != here.host or self.boot_id is None or here.boot_id is None:
            return "alive"
        gone = self.boot_id != here.boot_id or (self.pid is not None and not here.is_running(self.pid))
        return "unclean" if gone else "alive"


def _experiment(row: Row[Any], tags: Iterable[str]) -> Experiment:
    return Experiment(
        row.id,
        row.exp_id,
        row.name,
        row.status,
        row.created_at,
        row.closed_at,
        json_text.load_object(row.meta),
        sorted(tags),
        row.recorders,
        row.schema_version,
    )


def _recorder(row: Row[Any]) -> RecorderRow:
    return RecorderRow(
        row.id,
        row.uuid,
        row.experiment_id,
        row.ordinal,
        row.epoch,
        row.role,
        json.loads(row.patterns),
        json_text.load_object(row.meta),
        row.host,
        row.pid,
        row.boot_id,
        row.anchor_wall,
        row.broker,
        row.broker_offset,
        row.started_at,
        row.heartbeat_at,
        row.ended_at,
        row.last_seq,
        row.head_hash,
        {kind: getattr(row, f"{kind}_count") for kind in KINDS},
        row.payload_bytes,
        row.first_ts,
        row.last_ts,
        row.worst_unacknowledged,
        row.started_at if row.complete_until is None else row.complete_until,
        bool(row.unclean),
        row.durability,
        row.spool,
    )


async def _tags(connection: AsyncConnection, ids: Sequence[int] | None = None) -> dict[int, list[str]]:
    query = select(tag.c.experiment_id, tag.c.tag)
    if ids is not None:
        query = query.where(tag.c.experiment_id.in_(ids))
    found: dict[int, list[str]] = {}
    for number, word in await connection.execute(query):
        found.setdefault(number, []).append(word)
    return found


async def by_exp_id(database: Database, exp_id: str) -> Experiment | None:
    """Return the experiment of exactly this exp_id, or None."""
    async with database.reading() as connection:
        query = select(experiment).where(experiment.c.exp_id == exp_id, experiment.c.status.in_(VISIBLE))
        row = (await connection.execute(query)).one_or_none()
        return None if row is None else _experiment(row, (await _tags(connection, [row.id])).get(row.id, ()))


async def find(database: Database, wanted: str) -> Experiment:
    """Return the experiment of this exp_id, name, unique prefix of an exp_id, or `@last`.

    Raises `ExperimentNotFound`, which names similar ones, or `AmbiguousExperiment`.
    """
    visible = select(experiment).where(experiment.c.status.in_(VISIBLE))
    async with database.reading() as connection:
        if wanted == "@last":
            rows = (await connection.execute(visible.order_by(experiment.c.id.desc()).limit(1))).all()
        else:
            rows = (await connection.execute(visible.where(experiment.c.exp_id == wanted))).all()
            if not rows:
                rows = (await connection.execute(visible.where(experiment.c.name == wanted))).all()
            if not rows and wanted:
                prefix = func.substr(experiment.c.exp_id, 1, len(wanted)) == wanted
                rows = (await connection.execute(visible.where(prefix))).all()
        if len(rows) > 1:
            raise AmbiguousExperiment(wanted, (row.exp_id for row in rows))
        if not rows:
            known = (await connection.execute(visible.with_only_columns(experiment.c.exp_id, experiment.c.name))).all()
            words = [word for row in known for word in row if word]
            raise ExperimentNotFound(wanted, difflib.get_close_matches(wanted, words, n=3, cutoff=0.5))
        return _experiment(rows[0], (await _tags(connection, [rows[0].id])).get(rows[0].id, ()))


async def every(
    database: Database, *, name: str | None = None, tags: Iterable[str] = (), since: int | None = None
) -> list[Experiment]:
    """Return experiments, oldest first, that match all conditions.

    `name` is a part of their name or exp_id in any case, `tags` are all required, `since` (ns UTC) is the earliest
    time of creation.
    """
    query = select(experiment).where(experiment.c.status.in_(VISIBLE)).order_by(experiment.c.id)
    if since is not None:
        query = query.where(experiment.c.created_at >= since)
    for word in tags:
        query = query.where(experiment.c.id.in_(select(tag.c.experiment_id).where(tag.c.tag == word)))
    async with database.reading() as connection:
        rows = (await connection.execute(query)).all()
        words = await _tags(connection)
    if name is not None:  # not in SQL: databases compare upper and lower case differently
        part = name.casefold()
        rows = [row for row in rows if part in (row.name or "").casefold() or part in row.exp_id.casefold()]
    return [_experiment(row, words.get(row.id, ())) for row in rows]


async def recorders_of(database: Database, experiment_id: int | None = None) -> list[RecorderRow]:
    """Return the recorders of an experiment in order of ordinal, or of all experiments."""
    query = select(recorder).order_by(recorder.c.experiment_id, recorder.c.ordinal)
    if experiment_id is not None:
        query = query.where(recorder.c.experiment_id == experiment_id)
    async with database.reading() as connection:
        return [_recorder(row) for row in await connection.execute(query)]


async def recorder_by_uuid(database: Database, name: str) -> RecorderRow | None:
    """Return the recorder of this uuid, or None."""
    async with database.reading() as connection:
        row = (await connection.execute(select(recorder).where(recorder.c.uuid == name))).one_or_none()
    return None if row is None else _recorder(row)


def checked_exp_id(exp_id: str) -> str:
    """Return an exp_id if a person can type it. Raises `StoreError` if not."""
    if not exp_id or exp_id != exp_id.strip() or not exp_id.isprintable() or len(exp_id) > 200 or exp_id[0] == "@":
        raise StoreError(
            f"{exp_id!r} cannot be an exp_id: it is 1 to 200 printable characters, "
            "without space at its ends, and does not start with @"
        )
    return exp_id


MOST_TAG, MOST_NAME = 200, 1000
"""Maximum length of a tag, and of the name of an experiment, in characters."""


def checked_name(name: str | None) -> str | None:
    """Return a name if it is valid UTF-8 of at most `MOST_NAME` characters. Raises `StoreError` if not."""
    if name is not None and len(name) > MOST_NAME:
        raise StoreError(f"{name[:20]!r}... cannot be a name: it has {len(name):,} characters, not up to {MOST_NAME:,}")
    if name is not None and any("\ud800" <= char <= "\udfff" for char in name):
        raise StoreError(f"{name[:20]!r} cannot be a name: it is not valid UTF-8")
    return name


def checked_tags(tags: Iterable[str]) -> list[str]:
    """Return tags, sorted, each once. Raises `StoreError` for an empty, unprintable or long one."""
    words = sorted(set(tags))
    for word in words:
        if not word.strip() or not word.isprintable() or len(word) > MOST_TAG:
            shown = repr(word) if len(word) <= MOST_TAG else f"{word[:20]!r}..."
            raise StoreError(
                f"{shown} cannot be a tag: it is printable, not empty, and has up to {MOST_TAG} characters"
            )
    return words


async def create(
    database: Database,
    exp_id: str,
    *,
    name: str | None,
    tags: Iterable[str],
    meta: dict[str, Any],
    status: str = "open",
) -> Experiment | None:
    """Create an experiment and return it; return None if the exp_id is in use."""
    row = {
        "exp_id": exp_id,
        "name": checked_name(name),
        "status": status,
        "created_at": time.time_ns(),
        "meta": json_text.dump(meta),
        "schema_version": SCHEMA_VERSION,
        "recorders": 0,
    }
    words = checked_tags(tags)
    async with database.writing() as connection:
        result = await connection.execute(database.dialect.insert_or_ignore(experiment).values(row))
        if result.rowcount != 1:
            return None
        made = (await connection.execute(select(experiment).where(experiment.c.exp_id == exp_id))).one()
        if words:
            await connection.execute(insert(tag), [{"experiment_id": made.id, "tag": word} for word in words])
    return _experiment(made, words)


async def lock(connection: AsyncConnection, experiment_id: int | None) -> None:
    """Lock an experiment until the transaction ends, against registering, closing, redacting and removing.

    A transaction that uses its row, or its recorders' rows, in more than one statement takes this lock first. Appends
    do not.
    """
    await connection.execute(select(experiment.c.id).where(experiment.c.id == experiment_id).with_for_update())


async def describe(
    database: Database, of: Experiment, *, name: str | None, tags: Iterable[str], meta: dict[str, Any]
) -> None:
    """Add tags, a name if it has none, and meta under unused keys. Raises `StoreError` for a bad tag or name."""
    async with database.writing() as connection:
        await lock(connection, of.id)
        row = (await connection.execute(select(experiment).where(experiment.c.id == of.id))).one()
        merged = {**meta, **json_text.load_object(row.meta)}
        values = {"name": row.name or checked_name(name), "meta": json_text.dump(merged)}
        await connection.execute(update(experiment).where(experiment.c.id == of.id).values(values))
        await _add_tags(database, connection, of.id, tags)


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
    if joined is not None and (mine := await by_exp_id(database, joined)) is not None:
        return mine
    wanted, numbers = exp_id, count(2)
    while True:
        there = await by_exp_id(database, wanted)
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
        return sorted((await _tags(connection, [of.id])).get(of.id, ()))


async def _add_tags(database: Database, connection: AsyncConnection, experiment_id: int, words: Iterable[str]) -> None:
    rows = [{"experiment_id": experiment_id, "tag": word} for word in checked_tags(words)]
    if rows:
        await connection.execute(database.dialect.insert_or_ignore(tag), rows)


def check_idle(of: Experiment, rows: Iterable[Row[Any]], intent: str | None) -> list[RecorderRow]:
    """Return the live recorders. With an intent, such as "close it", raise `ExperimentBusy` if there are any."""
    alive = [row for row in map(_recorder, rows) if row.state == "alive"]
    if alive and intent:
        who = (f"recorder {row.ordinal} ({row.host}, pid {row.pid})" for row in alive)
        raise ExperimentBusy(of.exp_id, who, intent)
    return alive


async def refuse_while_recorded(database: Database, of: Experiment, intent: str) -> None:
    """Raise `ExperimentBusy` while a recorder is alive; `intent` is as for `check_idle`."""
    async with database.reading() as connection:
        check_idle(of, await connection.execute(select(recorder).where(recorder.c.experiment_id == of.id)), intent)


async def mark_closed(database: Database, of: Experiment, *, force: bool = False) -> None:
    """Set the status to closed and fence every recorder that has not ended. See `messager_store.recording.closing`.

    A fenced recorder can append nothing more, so the head of a closed experiment does not change. Recorders that
    were alive count as ended. Raises `ExperimentBusy` while a recorder is alive, unless forced.
    """
    now = time.time_ns()
    async with database.writing() as connection:
        await lock(connection, of.id)
        rows = await connection.execute(select(recorder).where(recorder.c.experiment_id == of.id))
        alive = check_idle(of, rows, None if force else "close it")
        await connection.execute(
            update(recorder)
            .where(recorder.c.experiment_id == of.id, recorder.c.ended_at.is_(None))
            .values(epoch=recorder.c.epoch + 1)
        )
        await connection.execute(
            update(recorder).where(recorder.c.id.in_([row.id for row in alive])).values(ended_at=now)
        )
        await connection.execute(
            update(experiment)
            .where(experiment.c.id == of.id, experiment.c.status == "open")
            .values(status="closed", closed_at=now)
        )


async def publish_import(database: Database, of: Experiment, exp_id: str) -> None:
    """End the recorders of a finished import and make it visible under its exp_id, in one transaction.

    Raises `ExperimentExists`, and `StoreError` if another process removed the import meanwhile.
    """
    now = time.time_ns()
    async with database.writing() as connection:
        await lock(connection, of.id)
        taken = select(experiment.c.id).where(experiment.c.exp_id == exp_id)
        if (await connection.execute(taken)).first() is not None:
            raise ExperimentExists(exp_id, "Import under another --exp.")
        await connection.execute(
            update(recorder).where(recorder.c.experiment_id == of.id).values(ended_at=now, heartbeat_at=now)
        )
        published = await connection.execute(
            update(experiment)
            .where(experiment.c.id == of.id, experiment.c.status == "importing")
            .values(exp_id=exp_id, status="closed", closed_at=now)
        )
        if published.rowcount != 1:
            raise StoreError(f"the import of {exp_id!r} was removed as unfinished by another process; import it again")
