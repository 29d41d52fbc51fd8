"""Indexing: filling of the side tables that SQL, searches and counts read: `said`, `activity`, `delivery`.

Each call adds only what is new. It works in short transactions, so that recorders do not wait; a process that is
killed leaves complete pages, and the next call continues behind them. Several may run at once: each page is written
by one of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from shlex import quote

from ..errors import DamagedStore, StoreError
from ..experiments.records import Experiment
from ..log.chain_walk import WRONG_TYPE
from ..log.event_log import EventLog
from . import deliveries, side_tables, texts
from .texts import Progress

logger = logging.getLogger("messager_store")


@dataclass(frozen=True, slots=True)
class Indexed:
    """Result of a call of `index`."""

    events: int = 0
    """Events added to `said` and `activity`."""
    deliveries: int = 0
    """Deliveries that are new, or differ from before because events arrived late."""


async def index(log: EventLog, of: Experiment, *, progress: Progress | None = None) -> Indexed:
    """Bring the side tables of an experiment up to date. Events that are committed during the call may be left out.

    `progress` is called with the number of events that are done and the total, first for text, then for deliveries.
    Raises `StoreError` if the store cannot be written, and `ExperimentNotFound` if it is removed meanwhile; what was
    complete before remains valid.
    """
    events = matched = 0
    try:
        while await side_tables.is_behind(log.database, of.id):
            await side_tables.enlist(log.database, of)
            added = await texts.fill(log.database, of.id, progress)
            changed = None if added is None else await deliveries.fill(log.database, of.id, progress)
            if added is not None and changed is not None:
                return Indexed(events + added, matched + changed)
            events = matched = 0  # a redaction has cleared the tables
    except WRONG_TYPE as error:
        reason = "an event holds a value of the wrong type; `messager verify` says where"
        raise DamagedStore(log.location, reason) from error
    return Indexed(events, matched)


async def index_or_warn(log: EventLog, of: Experiment, *, progress: Progress | None = None) -> bool:
    """Index an experiment before its side tables are read. Log a warning and return False if that fails."""
    try:
        await index(log, of, progress=progress)
    except StoreError as error:
        logger.warning(
            "%s could not be indexed, so text, deliveries and activity are incomplete: %s. "
            "`messager index %s` completes them",
            *(of.exp_id, str(error).rstrip("."), quote(of.exp_id)),
        )
        return False
    return True
