"""Repair: mark recorders that ended uncleanly as ended, and log the gaps.

A separate recorder of role "repair" appends the gap events. The chain of a repaired recorder is not changed, so that
a spool that is found later can still be drained.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from sqlalchemy import update

from ..db.schema import recorder
from ..experiments.provenance import this_process
from ..experiments.records import SILENT_NS, Experiment, RecorderRow
from ..experiments.seal import seal_ended
from ..log.event import NewEvent, iso
from ..log.event_log import EventLog


@dataclass(slots=True)
class Repaired:
    """Result for one recorder that ended uncleanly. Times are ns UTC."""

    exp_id: str
    recorder: int
    """Ordinal of the recorder."""
    events: int
    """Number of its events in the log, all of them intact."""
    since: int
    """All events accepted before this time are in the log."""
    until: int
    """Time by which it had ended, or its heartbeat was overdue."""
    missing: str
    """Description of what may be missing."""
    spool: str | None = None
    """Spool that must be drained first, in which case nothing was repaired; None without one."""


async def repair(log: EventLog, of: Experiment, *, force: bool = False) -> list[Repaired]:
    """Mark the recorders of an experiment that ended uncleanly as ended; return the result for each.

    A `gap` event covers the time in which events may be missing. A recorder with a spool on this host is skipped
    unless `force` is set, because a drain recovers its events. Nothing is appended to a closed experiment, as its
    head must not change. Raises `StoreUnavailable`.
    """
    found: list[Repaired] = []
    gaps: list[NewEvent] = []
    dead = [row for row in await log.recorders(of) if row.state == "unclean"]
    for row in dead:
        known = _known(of, row)
        found.append(known)
        if known.spool is not None and not force:
            continue
        known.spool = None
        gaps.append(
            NewEvent(
                "gap",
                known.since,  # a late repair must not extend the duration of the experiment
                None,
                b"",
                meta={
                    "reason": f"recorder {row.ordinal} ended uncleanly: {known.missing}",
                    "since": known.since,
                    "until": known.until,
                    "count": None,
                    "recorder": row.ordinal,
                },
            )
        )
    if gaps and of.status == "open":
        writer = await log.register(of, role="repair")
        await log.append(writer, gaps)
        await log.touch(writer, ended_at=time.time_ns())
    repaired = {known.recorder for known in found if known.spool is None}
    for row in dead:
        if row.ordinal in repaired:
            async with log.database.writing() as connection:
                await connection.execute(
                    update(recorder)
                    .where(recorder.c.id == row.id, recorder.c.epoch == row.epoch, recorder.c.ended_at.is_(None))
                    .values(epoch=row.epoch + 1, ended_at=time.time_ns(), unclean=1)
                )
                await seal_ended(connection, recorder.c.id == row.id)
    return found


async def unclean(log: EventLog) -> list[Experiment]:
    """Return the experiments with recorders that ended uncleanly."""
    rows = await log.recorders(unended=True)
    wanted = {row.experiment_id for row in rows if row.state == "unclean"}
    return [of for of in await log.experiments() if of.id in wanted]


def _known(of: Experiment, row: RecorderRow) -> Repaired:
    # It may have run for long without a heartbeat while the store was unreachable, and clocks of hosts differ.
    now = time.time_ns()
    until = now if row.complete_until < now else row.complete_until + SILENT_NS
    after = iso(row.complete_until)
    missing = f"messages sent and received after {after}"
    if row.durability == "strict":
        missing = f"messages received after {after} (all sent ones are logged; the last may not have been published)"
    return Repaired(of.exp_id, row.ordinal, row.last_seq, row.complete_until, until, missing, left_spool(row))


def left_spool(row: RecorderRow) -> str | None:
    """Return the spool of a recorder if it exists on this host; also if it may, for one that has not ended."""
    if row.spool is None:
        return None
    try:
        os.stat(row.spool)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError:  # as in a folder of another user
        return row.spool if row.ended_at is None and row.host == this_process().host else None
    return row.spool
