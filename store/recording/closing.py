"""Closing an experiment: repair, mark as closed, fill the side tables."""

from __future__ import annotations

import asyncio

from ..errors import ExperimentBusy, StoreError
from ..experiments import lifecycle
from ..experiments.records import Experiment
from ..log.event_log import EventLog
from ..queries import deliveries
from .draining import folders_of
from .repair import Repaired, repair
from .spools import spools


async def close(log: EventLog, of: Experiment, *, force: bool = False) -> list[Repaired]:
    """Repair recorders that ended uncleanly, close the experiment and fill its deliveries; return the repairs.

    A closed experiment may be closed again: that fills the deliveries if the first call was killed before it did.

    Raises `ExperimentBusy` while a recorder is alive, and `StoreError` if a recorder left a spool that is not
    drained, registered in the store or not. With `force` it raises neither; what those recorders still hold is
    refused from then on.
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
    await deliveries.fill(log.database, of.id)
    return found


async def _refuse_left_over(log: EventLog, of: Experiment) -> None:
    """Raise as `close` does if recorders that were never registered in the store hold events for the experiment."""
    for folder in await folders_of(log):
        for info in await asyncio.to_thread(list, spools(folder)):
            if info.registered or (info.store, info.exp_id) != (log.location, of.exp_id):
                continue
            if info.held:
                raise ExperimentBusy(of.exp_id, [f"one that has no place in it yet, with its spool {info.path}"])
            raise StoreError(
                f"events for {of.exp_id} wait in {info.path}. Put them into the store with `messager drain`, "
                "or close without them with --force."
            )
