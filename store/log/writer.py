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
        myself = number, uuid_.encode()
        self.identities = {0: myself, ordinal: myself}
        """Id and uuid of recorders by ordinal, as far as causes have needed them. 0 means this recorder."""
        self.origins: dict[str, int] = {}
        """Name ids of recorders of the parent experiment, by uuid, as far as origins have needed them."""

    async def resolve(self, events: Sequence[Fields]) -> list[EventNames]:
        """Return the names of each event, and learn the recorders that their causes and origins name.

        Raises `BadEvent` for an event whose names, cause or origin cannot be kept.
        """
        names = await self._names.resolve(events)
        unknown: dict[str, bytes] = {}
        for index, (kind, _, _, _, _, _, _, _, _, _, cause, _, _, _, origin) in enumerate(events):
            if cause is None and origin is None:
                continue
            try:
                if cause is not None and cause[0] not in self.identities:
                    await self._learn_identities()
                if cause is not None:
                    self.identities[cause[0]]
            except (KeyError, TypeError, IndexError):
                raise BadEvent(index, f"a {kind} event has a cause that no recorder has: {cause!r}") from None
            try:
                if origin is not None and origin[0] not in self.origins:
                    unknown[origin[0]] = origin[0].encode()
            except (AttributeError, TypeError, IndexError, UnicodeError):
                raise BadEvent(index, f"a {kind} event has an origin that is no event: {origin!r}") from None
        if unknown:  # together: each could be another one, and a transaction for each would take very long
            self.origins |= await self._names.recorders(unknown)
        return names

    async def _learn_identities(self) -> None:
        columns = (recorder.c.id, recorder.c.ordinal, recorder.c.uuid)
        query = select(*columns).where(recorder.c.experiment_id == self.experiment.id)
        async with self._database.reading() as connection:
            for number, ordinal, uuid_ in await connection.execute(query):
                self.identities[ordinal] = number, uuid_.encode()


def new_uuid() -> str:
    """Return a new uuid for a recorder."""
    return uuid.uuid4().hex
