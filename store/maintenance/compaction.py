"""Compaction: return the free space inside a store to the file system."""

from __future__ import annotations

from dataclasses import dataclass

from ..db.dialect import Need
from ..errors import StoreBusy, StoreError, StoreUnavailable
from ..log.event_log import EventLog
from .removal import sweep_unfinished


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes before a compaction, in bytes."""

    bytes: int
    """Size of the store on disk."""
    slack: int | None
    """Space inside the store that is free for new events; None if unknown."""
    needs: list[Need]
    """Temporary disk space that the compaction needs."""


async def plan(log: EventLog, *, while_recorded: bool = False) -> Plan:
    """Return the sizes and needs of a compaction. Nothing is changed.

    Raises `StoreBusy` while a recorder is alive, unless `while_recorded`, and `StoreError` if there is
    too little disk space.
    """
    database = log.database
    if not while_recorded:
        await _refuse_busy(log)
    async with database.reading() as connection:
        slack = await database.dialect.slack(connection)
        needs = await database.dialect.rewriting_needs(connection)
        size = await database.dialect.bytes_on_disk(connection)
    for need in needs:
        if need.free is not None and need.bytes > need.free:
            raise StoreError(
                f"compaction temporarily needs {need.bytes / 1e6:,.1f} MB in {need.folder}, "
                f"but only {need.free / 1e6:,.1f} MB are free. Free disk space first."
            )
    return Plan(size, slack, needs)


async def compact(log: EventLog) -> int:
    """Compact a store; return its size on disk afterwards, in bytes.

    Killed imports and removals are removed first. Raises `StoreUnavailable` if other connections block the
    rewrite.
    """
    database = log.database
    await sweep_unfinished(log)
    reason = await database.rewrite()
    if reason is not None:
        raise StoreUnavailable(database.location, reason)
    async with database.reading() as connection:
        return await database.dialect.bytes_on_disk(connection)


async def _refuse_busy(log: EventLog) -> None:
    exp_ids = {of.id: of.exp_id for of in await log.experiments()}
    alive = [
        f"recorder {row.ordinal} of {exp_ids[row.experiment_id]}"
        for row in await log.recorders(unended=True)
        if row.state == "alive" and row.experiment_id in exp_ids
    ]
    if alive:
        raise StoreBusy(log.location, alive)
