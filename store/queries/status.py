"""Status of a store: running recorders, waiting spools, and problems that need a person."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from sqlalchemy import and_, func, or_, select

from ..db.database import Database
from ..db.databases import for_store
from ..db.schema import VISIBLE, batch, experiment, recorder
from ..experiments.provenance import this_process
from ..experiments.records import RecorderRow, recorder_of
from ..log.event_log import EventLog
from ..recording.repair import left_spool
from ..recording.spools import SpoolInfo, default_folders, spools
from ..recording.unheard import unheard_by

IDLE_S = 60.0
MIN_FREE = 1 << 30


@dataclass(frozen=True, slots=True)
class RecorderStatus:
    """A recorder that has not ended. Ages are in seconds."""

    exp_id: str
    recorder: int
    uuid: str
    state: str
    """alive, idle (alive without a recent commit), dead, or incomplete (gathered without its end)."""
    host: str | None
    pid: int | None
    events: int
    heartbeat_age_s: float
    commit_age_s: float | None
    """Age of the last commit of events; None before the first."""
    spool: str | None


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that does not resolve by itself, and the command or action that resolves it."""

    what: str
    remedy: str


@dataclass(slots=True)
class StoreStatus:
    """Result of `messager status`. Sizes are in bytes."""

    store: str
    store_bytes: int
    free_bytes: int | None
    open: int = 0
    closed: int = 0
    unfinished: int = 0
    """Imports and removals that are running or were killed."""
    gaps: int = 0
    """Gap events in open experiments."""
    recorders: list[RecorderStatus] = field(default_factory=list)
    spools: list[SpoolInfo] = field(default_factory=list)
    unheard: list[str] = field(default_factory=list)
    """Messages that taps of open experiments cannot receive."""
    problems: list[Problem] = field(default_factory=list)


async def status(
    log: EventLog, spool_folder: Path | None = None, *, idle_s: float = IDLE_S, min_free: int = MIN_FREE
) -> StoreStatus:
    """Return the status of a store. Nothing is changed.

    Spools are searched in `spool_folder` (default: beside the store, and the folders of `MESSAGER_SPOOL` and of this
    user) and in the spool folders of the running recorders on this host. A recorder without a commit for `idle_s`
    seconds is idle; less than `min_free` free bytes are a problem. Raises `StoreUnavailable`.
    """
    database = log.database
    dialect = database.dialect
    async with database.reading() as connection:
        found = StoreStatus(log.location, await dialect.bytes_on_disk(connection), dialect.free_bytes())
    counts = await _count_by_status(database)
    found.open, found.closed = counts.get("open", 0), counts.get("closed", 0)
    found.unfinished = sum(count for status, count in counts.items() if status not in VISIBLE)
    rows = await _unfinished_recorders(database)
    in_open = [(exp_id, row) for exp_id, status, row in rows if status == "open"]
    found.gaps = sum(row.kinds["gap"] for _, row in in_open)
    found.unheard = [
        f"{exp_id}, recorder {row.ordinal}: {line}" for exp_id, row in in_open for line in unheard_by(row.meta)
    ]
    running = [(exp_id, row) for exp_id, _, row in rows if row.ended_at is None]
    for exp_id, row in running:
        found.recorders.append(await _recorder_status(log, row, exp_id, idle_s))
    folders = default_folders(dialect) if spool_folder is None else {spool_folder}
    folders |= {Path(row.spool).parent for _, row in running if row.spool and row.host == this_process().host}
    for folder in sorted(folders):
        found.spools += [info for info in spools(folder) if info.store in ("", log.location)]
    accepting = {row.uuid for _, row in in_open}
    found.problems = [*_spool_problems(found, accepting), *_recorder_problems(found), *_disk_problems(found, min_free)]
    if found.spools and not dialect.may_write:
        what = f"this user has no right to write to {log.location}, so its recorders keep their events in spools"
        found.problems.append(Problem(what, "allow it to write to the file and to its folder"))
    if await database.rewrite_wanted():
        what = "a redaction was interrupted before the file was rewritten; the file may still hold redacted data"
        found.problems.append(Problem(what, "messager redact --scrub"))
    return found


async def _count_by_status(database: Database) -> dict[str, int]:
    """Return the number of experiments of each status, also of hidden ones."""
    query = select(experiment.c.status, func.count()).group_by(experiment.c.status)
    async with database.reading() as connection:
        rows = (await connection.execute(query)).all()
    return {row[0]: row[1] for row in rows}


async def _unfinished_recorders(database: Database) -> list[tuple[str, str, RecorderRow]]:
    """Return exp_id, status and row of each recorder of an open experiment, or without an end in a closed one."""
    query = (
        select(recorder, experiment.c.exp_id, experiment.c.status)
        .join(experiment, experiment.c.id == recorder.c.experiment_id)
        .where(or_(experiment.c.status == "open", and_(experiment.c.status == "closed", recorder.c.ended_at.is_(None))))
        .order_by(recorder.c.experiment_id, recorder.c.ordinal)
    )
    async with database.reading() as connection:
        return [(row.exp_id, row.status, recorder_of(row)) for row in await connection.execute(query)]


def kept_for(store: str, spool_folder: Path | None = None) -> str:
    """Return a text about the events that wait in spools for a store which cannot be opened; empty without any."""
    dialect = for_store(store)
    folders = default_folders(dialect) if spool_folder is None else {spool_folder}
    waiting = [info for folder in sorted(folders) for info in spools(folder) if info.store == dialect.location]
    if not waiting:
        return ""
    places = dict.fromkeys(str(Path(info.path).parent) for info in waiting)
    return f"; {sum(info.events for info in waiting):,} events for it wait in {' and '.join(places)}"


async def _recorder_status(log: EventLog, row: RecorderRow, exp_id: str, idle_s: float) -> RecorderStatus:
    last = select(batch.c.committed_at).where(batch.c.recorder_id == row.id).order_by(batch.c.first_seq.desc()).limit(1)
    async with log.database.reading() as connection:
        committed = (await connection.execute(last)).scalar()
    now = time.time_ns()
    age = None if committed is None else (now - committed) / 1e9
    quiet = age if age is not None else (now - row.started_at) / 1e9
    return RecorderStatus(
        exp_id=exp_id,
        recorder=row.ordinal,
        uuid=row.uuid,
        state={"incomplete": "incomplete", "alive": "idle" if quiet > idle_s else "alive"}.get(row.state, "dead"),
        host=row.host,
        pid=row.pid,
        events=row.last_seq,
        heartbeat_age_s=(now - row.heartbeat_at) / 1e9,
        commit_age_s=age,
        spool=left_spool(row),
    )


def _spool_problems(found: StoreStatus, accepting: set[str]) -> list[Problem]:
    """Return the problems of spools; `accepting` are the uuids of the recorders of open experiments."""
    problems = []
    for info in found.spools:
        waiting = f"{info.events:,} events of {info.exp_id} wait in {info.path}"
        if info.store and info.registered and info.recorder not in accepting and not info.held:
            what = f"{waiting}, but the experiment is closed or not in {found.store}: it accepts no more events"
            problems.append(Problem(what, "to discard the events, delete the file"))
        elif info.damage:
            problems.append(Problem(f"the spool {info.path} of {info.exp_id or '?'}: {info.damage}", "messager drain"))
        elif not info.held:
            problems.append(Problem(f"{waiting}, and no recorder drains it", "messager drain"))
    return problems


def _recorder_problems(found: StoreStatus) -> list[Problem]:
    incomplete = [
        Problem(
            f"recorder {each.recorder} of {each.exp_id} (from host {each.host}) was gathered without its end",
            "gather its store again, or an intact copy if that is damaged",
        )
        for each in found.recorders
        if each.state == "incomplete"
    ]
    waiting = {info.path for info in found.spools}
    return incomplete + [
        Problem(
            f"recorder {each.recorder} of {each.exp_id} (host {each.host}, pid {each.pid}) ended uncleanly",
            f"messager repair {quote(each.exp_id)}",
        )
        for each in found.recorders
        if each.state == "dead" and each.spool not in waiting  # a spool must be drained before the repair
    ]


def _disk_problems(found: StoreStatus, min_free: int) -> list[Problem]:
    if found.free_bytes is None or found.free_bytes >= min_free:
        return []
    what = f"the disk of {found.store} has only {found.free_bytes / 1e6:,.0f} MB free"
    return [Problem(what, "free disk space, or run messager prune and messager compact")]
