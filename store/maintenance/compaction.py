"""Compacting: the room of what was removed given back to the file system."""

from __future__ import annotations

from dataclasses import dataclass

from ..db.dialect import Need
from ..errors import StoreBusy, StoreError, StoreUnavailable
from ..experiments.registry import every, recorders_of
from ..log.event_log import EventLog
from .removal import sweep_imports


@dataclass(frozen=True, slots=True)
class Plan:
    """What compacting would do. Sizes are in bytes."""

    bytes: int
    """What the store takes on disk now."""
    slack: int | None
    """What of it is free for new events; None where nobody can tell."""
    needs: list[Need]


async def plan(log: EventLog, *, while_recorded: bool = False) -> Plan:
    """Say what compacting would do, and change nothing.

    Raises `StoreBusy` while something is recorded, unless `while_recorded`, and `StoreError` where there is
    too little room for it.
    """
    database = log.database
    if not while_recorded:
        await _check_idle(log)
    async with database.reading() as connection:
        slack = await database.dialect.slack(connection)
        needs = await database.dialect.rewriting_needs(connection)
        size = await database.dialect.bytes_on_disk(connection)
    for need in needs:
        if need.free is not None and need.bytes > need.free:
            raise StoreError(
                f"compacting takes {need.bytes / 1e6:,.1f} MB of {need.folder} for a while, "
                f"and {need.free / 1e6:,.1f} MB are free there. Make room first."
            )
    return Plan(size, slack, needs)


async def compact(log: EventLog) -> int:
    """Give free room back to the file system; bytes on disk afterwards.

    What killed imports and removals left is cleared away before. Raises `StoreUnavailable` where others
    are in the way all the while.
    """
    database = log.database
    await sweep_imports(log)
    reason = await database.rewrite()
    if reason is not None:
        raise StoreUnavailable(database.location, reason)
    async with database.reading() as connection:
        return await database.dialect.bytes_on_disk(connection)


async def _check_idle(log: EventLog) -> None:
    exp_ids = {of.id: of.exp_id for of in await every(log.database)}
    who = [
        f"recorder {row.ordinal} of {exp_ids[row.experiment_id]}"
        for row in await recorders_of(log.database)
        if row.state == "alive" and row.experiment_id in exp_ids
    ]
    if who:
        raise StoreBusy(log.location, who)
