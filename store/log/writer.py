"""The append position of one recorder."""

from __future__ import annotations

import uuid

from ..db.database import Database
from ..experiments.registry import Experiment
from . import chain
from .names import NameWriter


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
        self.experiment = of
        self.id = number
        self.ordinal = ordinal
        self.uuid = uuid_
        self.epoch = epoch
        self.last_seq = last_seq
        self.head_hash = chain.first_link(uuid_) if head_hash is None else head_hash
        self.names = NameWriter(database, of.id)
        self.ids = {0: number, ordinal: number}
        """Recorder ids by ordinal, as far as causes have needed them. 0 means this recorder."""


def new_uuid() -> str:
    """Return a new uuid for a recorder."""
    return uuid.uuid4().hex
