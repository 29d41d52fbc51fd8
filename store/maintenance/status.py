"""How a store stands right now: who records, what waits, what needs a person."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from sqlalchemy import func, select

from ..db.schema import VISIBLE, batch, experiment
from ..experiments import registry
from ..experiments.provenance import this_process
from ..experiments.registry import RecorderRow
from ..log.event_log import EventLog
from ..recording.repair import left_spool
from ..recording.spools import SpoolInfo, spools
from ..recording.spools import spool_folder as chosen_folder
from ..recording.unheard import unheard_by

IDLE_S = 60.0
MIN_FREE = 1 << 30


@dataclass(frozen=True, slots=True)
class Writing:
    """A recorder that has not ended. Ages are in seconds."""

    exp_id: str
    recorder: int
    uuid: str
    state: str
    """alive, idle (it is alive, and committed nothing for a while) or dead."""
    host: str | None
    pid: int | None
    events: int
    heartbeat_age_s: float
    commit_age_s: float | None
    """How long ago it committed events last; None where it never did."""
    spool: str | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that does not get well by itself, and the command or the deed that helps."""

    what: str
    remedy: str


@dataclass(slots=True)
class Standing:
    """What `messager status` tells. Sizes are in bytes."""

    store: str
    store_bytes: int
    free_bytes: int | None
    open: int = 0
    closed: int = 0
    unfinished: int = 0
    """Imports, unpackings and removals that run, or were killed."""
    gaps: int = 0
    """In open experiments."""
    recorders: list[Writing] = field(default_factory=list)
    spools: list[SpoolInfo] = field(default_factory=list)
    unheard: list[str] = field(default_factory=list)
    """Messages that taps of open experiments could not hear."""
    problems: list[Problem] = field(default_factory=list)


async def standing(
    log: EventLog, spool_folder: Path | None = None, *, idle_s: float = IDLE_S, min_free: int = MIN_FREE
) -> Standing:
    """Look at everything once, change nothing.

    Spools are looked for in `spool_folder` (by default beside the store, and in the folder of `MESSAGER_SPOOL`) and
    where recorders on this host that have not ended keep theirs. Raises `StoreUnavailable`.
    """
    dialect = log.database.dialect
    async with log.database.reading() as connection:
        found = Standing(log.location, await dialect.bytes_on_disk(connection), dialect.room())
    every = {of.id: of for of in await registry.every(log.database)}
    found.open = sum(of.status == "open" for of in every.values())
    found.closed = len(every) - found.open
    async with log.database.reading() as connection:
        hidden = select(func.count()).select_from(experiment).where(experiment.c.status.not_in(VISIBLE))
        found.unfinished = (await connection.execute(hidden)).scalar_one()
    rows = [row for row in await registry.recorders_of(log.database) if row.experiment_id in every]
    found.gaps = sum(row.kinds["gap"] for row in rows if every[row.experiment_id].status == "open")
    found.unheard = [
        f"{of.exp_id}, recorder {row.ordinal}: {line}"
        for row in rows
        if (of := every[row.experiment_id]).status == "open"
        for line in unheard_by(row.meta)
    ]
    running = [row for row in rows if row.ended_at is None]
    for row in running:
        found.recorders.append(await _writing(log, row, every[row.experiment_id].exp_id, idle_s))
    beside = dialect.spool_folder
    folders = {chosen_folder(beside, spool_folder)} | ({Path(beside)} if spool_folder is None else set())
    folders |= {Path(row.spool).parent for row in running if row.spool and row.host == this_process().host}
    for folder in sorted(folders):
        found.spools += [info for info in spools(folder) if info.store in ("", log.location)]
    takers = {row.uuid for row in rows if every[row.experiment_id].status == "open"}
    found.problems = [*_of_spools(found, takers), *_of_recorders(found), *_of_disk(found, min_free)]
    if await log.database.rewrite_wanted():
        what = "a redaction was cut off before the file was rewritten, which may still hold what was taken out"
        found.problems.append(Problem(what, "messager redact --scrub"))
    return found


async def _writing(log: EventLog, row: RecorderRow, exp_id: str, idle_s: float) -> Writing:
    last = select(batch.c.committed_at).where(batch.c.recorder_id == row.id).order_by(batch.c.first_seq.desc()).limit(1)
    async with log.database.reading() as connection:
        committed = (await connection.execute(last)).scalar()
    now = time.time_ns()
    age = None if committed is None else (now - committed) / 1e9
    quiet = age if age is not None else (now - row.started_at) / 1e9
    state = "dead" if row.state != "alive" else "idle" if quiet > idle_s else "alive"
    beat = (now - row.heartbeat_at) / 1e9
    return Writing(exp_id, row.ordinal, row.uuid, state, row.host, row.pid, row.last_seq, beat, age, left_spool(row))


def _of_spools(found: Standing, takers: set[str]) -> list[Problem]:
    """`takers` are the recorders whose experiments take events."""
    problems = []
    for info in found.spools:
        if info.store and info.registered and info.recorder not in takers and not info.held:
            what = (
                f"{info.events:,} events of {info.exp_id} wait in {info.path}, and {found.store} takes them no more: "
                "the experiment is closed, or not in it"
            )
            problems.append(Problem(what, "to give them up, delete the file"))
        elif info.damage:
            problems.append(Problem(f"the spool {info.path} of {info.exp_id or '?'}: {info.damage}", "messager drain"))
        elif not info.held:
            what = f"{info.events:,} events of {info.exp_id} wait in {info.path}, and nobody drains it"
            problems.append(Problem(what, "messager drain"))
    return problems


def _of_recorders(found: Standing) -> list[Problem]:
    return [
        Problem(
            f"recorder {each.recorder} of {each.exp_id} (host {each.host}, pid {each.pid}) ended without saying so",
            f"messager repair {quote(each.exp_id)}",
        )
        for each in found.recorders
        if each.state == "dead" and each.spool is None  # else draining comes first
    ]


def _of_disk(found: Standing, min_free: int) -> list[Problem]:
    if found.free_bytes is None or found.free_bytes >= min_free:
        return []
    what = f"the disk of {found.store} has {found.free_bytes / 1e6:,.0f} MB left"
    return [Problem(what, "make room there, or messager prune and messager compact")]
