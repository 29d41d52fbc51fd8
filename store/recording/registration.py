"""Registration: how a recorder gets its experiment and its place in the log.

A recorder registers itself. If its store never came, it leaves its registration in its spool, and the
process that drains the spool registers it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any

from ..errors import ExperimentClosed, StoreError
from ..experiments import lifecycle, validation
from ..log.event_log import EventLog
from ..log.writer import Writer

log = logging.getLogger("messager_store")

_NOTED = ("git", "command", "host")


@dataclass(slots=True)
class Registration:
    """The description of a recorder and its experiment. JSON holds all of it."""

    uuid: str
    exp_id: str
    if_exists: str | None
    """As in `Recorder`."""
    name: str | None
    tags: list[str]
    meta: dict[str, Any]
    """The experiment's."""
    role: str
    patterns: list[str]
    durability: str
    spool: str
    facts: dict[str, Any]
    """The recorder's circumstances."""
    row: dict[str, Any]
    """The rest of its row: its process, its clock's anchor, its start."""

    def as_dict(self) -> dict[str, Any]:
        """Return a dict from which an equal one is made."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def check(self) -> None:
        """Raise `StoreError` for a name or tags that no experiment can have."""
        validation.checked_name(self.name)
        validation.checked_tags(self.tags)

    def leave_out_unfit(self) -> None:
        """Drop a name or tags that no experiment can have: the recording is worth more."""
        try:
            self.name = validation.checked_name(self.name)
        except StoreError as error:
            log.warning("%s; %s goes without", error, self.exp_id)
            self.name = None
        try:
            self.tags = validation.checked_tags(self.tags)
        except StoreError as error:
            log.warning("%s; %s goes without", error, self.exp_id)
            self.tags = []


async def register(store: EventLog, who: Registration, first: Callable[[str], Awaitable[None]] | None = None) -> Writer:
    """Find or create the experiment and register the recorder; `first` is awaited with the exp_id in between.

    If an answer is lost, calling it again gives the same row. A name or tags that do not fit are left out, and
    logged. Raises `ExperimentClosed`, `ExperimentExists`, `RecorderFenced`, or `StoreUnavailable`.
    """
    who.leave_out_unfit()
    noted = {key: value for key, value in who.facts.items() if key in _NOTED}
    while True:
        of = await lifecycle.join(
            store.database,
            who.exp_id,
            who.if_exists,
            uuid=who.uuid,
            name=who.name,
            tags=who.tags,
            meta=who.meta,
            noted=noted,
        )
        if first is not None:
            await first(of.exp_id)
        try:
            return await store.register(
                of,
                role=who.role,
                patterns=who.patterns,
                meta=who.facts,
                name=who.uuid,
                durability=who.durability,
                spool=who.spool,
                row=who.row,
            )
        except ExperimentClosed:
            if who.if_exists != "next":
                raise  # else it was closed just now: the next one is open
