"""Count of the payloads that `where` skipped because they are not JSON."""

from __future__ import annotations

from ..db.database import Database
from ..experiments.records import Experiment
from .event import Event

_SPAN = 4096
"""Events of a recorder whose bits are in one integer."""


class NotJson:
    """Payloads that a read skipped, each once, however often the read passes over its event.

    Memory use is a bit for each event, at most.
    """

    def __init__(self) -> None:
        self.count = 0
        self._seen: dict[tuple[Database, int, int, int], int] = {}
        """Bits of the events by database, experiment, recorder and `seq // _SPAN`."""

    def add(self, database: Database, of: Experiment, entry: Event) -> None:
        """Count an event of an experiment, unless it was counted before."""
        high, low = divmod(entry.seq, _SPAN)
        key, bit = (database, of.id, entry.recorder, high), 1 << low
        seen = self._seen.get(key, 0)
        if not seen & bit:
            self._seen[key] = seen | bit
            self.count += 1
