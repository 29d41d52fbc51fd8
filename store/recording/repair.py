"""Repair: end recorders that ended uncleanly, and log what may be missing.

The gap events are appended by a recorder of its own, of role "repair": the chain of a repaired recorder stays as
its process left it, so that a spool that turns up later still fits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import update

from ..db.schema import recorder
from ..experiments.records import SILENT_NS, Experiment, RecorderRow
from ..log.event import NewEvent, iso
from ..log.event_log import EventLog


@dataclass(slots=True)
class Repaired:
    """Result for one recorder that ended uncleanly. Times are ns UTC."""

    exp_id: str
    recorder: int
    """Its ordinal."""
    events: int
    """Number of its events in the log; all of them are whole."""
    since: int
    """Everything that it accepted before this moment is in the log."""
    until: int
    """Moment by which it had ended, or had been silent for too long."""
    missing: str
    """Description of what may be missing."""
    spool: str | None = None
    """Spool that it left here, which is to be drained first; if there is one, nothing was repaired."""


async def repair(log: EventLog, of: Experiment, *, force: bool = False) -> list[Repaired]:
    """End every recorder of an experiment that ended uncleanly; return the result for each.

    A `gap` event for each says from when to when events may be missing. A recorder that left a spool here is
    skipped, unless forced: a drain tells what it had. Nothing is added to a closed experiment, because its head must
    not change. Raises `StoreUnavailable`.
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
                known.since,  # so that a late repair does not make the experiment longer
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
    return found


async def unclean(log: EventLog) -> list[Experiment]:
    """Return the experiments with recorders that ended uncleanly."""
    rows = await log.recorders()
    wanted = {row.experiment_id for row in rows if row.state == "unclean"}
    return [of for of in await log.experiments() if of.id in wanted]


def _known(of: Experiment, row: RecorderRow) -> Repaired:
    # without its store it may have lived long after its last heartbeat, and its clock may be ahead of ours
    now = time.time_ns()
    until = now if row.complete_until < now else row.complete_until + SILENT_NS
    after = iso(row.complete_until)
    missing = f"what it sent and received after {after}"
    if row.durability == "strict":
        missing = f"what it received after {after} (its sendings are all there; the last ones may not have left)"
    return Repaired(of.exp_id, row.ordinal, row.last_seq, row.complete_until, until, missing, left_spool(row))


def left_spool(row: RecorderRow) -> str | None:
    """Return the spool that a recorder left, if it can be seen from here."""
    if row.spool is None or not Path(row.spool).exists():
        return None
    return row.spool
