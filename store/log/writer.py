"""The append position of one recorder."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from sqlalchemy import select

from ..db.database import Database
from ..db.schema import recorder
from ..errors import BadEvent
from ..experiments.records import Experiment
from . import chain
from .event import Fields
from .names import EventNames, NameWriter


class Writer:
    """A recorder that this process may append to: its identity, its last seq and the head of its chain.

    `EventLog.register` and `EventLog.take_over` make writers. A writer is used by one task at a time.
    """

    def __init__(
        self,
        database: Database,
        of: Experiment,
        number: int,
        ordinal: int,
        uuid_: str,
        epoch: int = 1,
        last_seq: int = 0,
        head_hash: bytes | None = None,
    ) -> None:
        self._database = database
        self.experiment = of
        self.id = number
        self.ordinal = ordinal
        self.uuid = uuid_
        self.epoch = epoch
        self.last_seq = last_seq
        self.head_hash = chain.first_link(uuid_) if head_hash is None else head_hash
        self._names = NameWriter(database, of.id)
        self.ids = {0: number, ordinal: number}
        """Recorder ids by ordinal, as far as causes have needed them. 0 means this recorder."""

    async def resolve(self, events: Sequence[Fields]) -> list[EventNames]:
        """Return the names of each event, and learn the ids of the recorders that their causes name.

        Raises `BadEvent` for an event whose names or cause cannot be kept.
        """
        names = await self._names.resolve(events)
        for index, (kind, _, _, _, _, _, _, _, _, _, cause, _) in enumerate(events):
            if cause is None:
                continue
            try:
                if cause[0] not in self.ids:
                    await self._learn_ids()
                self.ids[cause[0]]
            except (KeyError, TypeError, IndexError):
                raise BadEvent(index, f"a {kind} event has a cause that no recorder has: {cause!r}") from None
        return names

    async def _learn_ids(self) -> None:
        query = select(recorder.c.ordinal, recorder.c.id).where(recorder.c.experiment_id == self.experiment.id)
        async with self._database.reading() as connection:
            self.ids.update((ordinal, number) for ordinal, number in await connection.execute(query))


def new_uuid() -> str:
    """Return a new uuid for a recorder."""
    return uuid.uuid4().hex
