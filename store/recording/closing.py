"""Closing an experiment: repair, and mark as closed."""

from __future__ import annotations

import asyncio

from ..errors import ExperimentBusy, StoreError
from ..experiments import lifecycle
from ..experiments.records import Experiment
from ..log.event_log import EventLog
from .draining import folders_of
from .repair import Repaired, repair
from .spools import spools


async def close(log: EventLog, of: Experiment, *, force: bool = False) -> list[Repaired]:
    """Repair recorders that ended uncleanly, and close the experiment; return the repairs.

    Raises `ExperimentBusy` while a recorder is alive, and `StoreError` if a spool of a recorder, registered or not,
    is not drained. With `force` neither is raised; later events of those recorders are refused.
    """
    if not force:
        await _refuse_left_over(log, of)
    found = await repair(log, of, force=force)
    for known in found:
        if known.spool is not None:
            raise StoreError(
                f"recorder {known.recorder} of {of.exp_id} left events in {known.spool}. Put them into the store "
                "with `messager drain`, or close without them with --force."
            )
    await lifecycle.mark_closed(log.database, of, force=force)
    return found


async def _refuse_left_over(log: EventLog, of: Experiment) -> None:
    """Raise the errors of `close` if unregistered recorders have spools for the experiment."""
    for folder in await folders_of(log):
        for info in await asyncio.to_thread(list, spools(folder)):
            if info.registered or (info.store, info.exp_id) != (log.location, of.exp_id):
                continue
            if info.held:
                raise ExperimentBusy(of.exp_id, [f"an unregistered one, with its spool {info.path}"])
            raise StoreError(
                f"events for {of.exp_id} are in the spool {info.path}. Put them into the store with `messager drain`, "
                "or close without them with --force."
            )
