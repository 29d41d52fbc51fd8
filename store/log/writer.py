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
from .event import Fields, fields, kind_of
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
        self.uuids: dict[int, str | None] = {0: None, ordinal: None}
        """UUIDs of other recorders by ordinal, as far as causes have needed them; None for this one, also 0."""

    async def resolve(self, events: Sequence[Fields]) -> list[EventNames]:
        """Return the names of each event, and learn the recorders that their causes name.

        Raises `BadEvent` for an event whose names or cause cannot be kept.
        """
        names = await self._names.resolve(events)
        for index, cause in enumerate(map(_CAUSE, events)):
            if cause is None:
                continue
            try:
                if cause[0] not in self.uuids:
                    await self._learn_uuids()
                self.uuids[cause[0]]
            except (KeyError, TypeError, IndexError):
                kind = kind_of(events[index])
                raise BadEvent(index, f"a {kind} event has a cause that no recorder has: {cause!r}") from None
        return names

    async def _learn_uuids(self) -> None:
        query = select(recorder.c.ordinal, recorder.c.uuid).where(recorder.c.experiment_id == self.experiment.id)
        async with self._database.reading() as connection:
            for ordinal, uuid_ in await connection.execute(query):
                self.uuids[ordinal] = None if uuid_ == self.uuid else uuid_


_CAUSE = fields("cause")


def new_uuid() -> str:
    """Return a new uuid for a recorder."""
    return uuid.uuid4().hex
