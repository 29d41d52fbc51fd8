"""The columns of a recorder that are computed from its events, counted again from these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..db.codes import KINDS
from . import chain
from .chain_walk import WalkedPage, kind_of, payload_of

COUNTED = (
    "last_seq",
    "head_hash",
    *(f"{kind}_count" for kind in KINDS),
    "payload_bytes",
    "first_ts",
    "last_ts",
    "worst_unacknowledged",
)
"""The columns of a recorder that are computed from its events."""


@dataclass(slots=True)
class Counters:
    """The counters of a recorder, as far as its chain was read."""

    head_hash: bytes
    """The chain hash of the last batch."""
    events: int = 0
    kinds: Counter[int] = field(default_factory=Counter)
    """The number of events of each kind, by its code."""
    payload_bytes: int = 0
    first_ts: int | None = None
    last_ts: int | None = None
    worst_unacknowledged: int = 0

    @classmethod
    def before(cls, uuid: str) -> Counters:
        """Return those of a recorder without events."""
        return cls(chain.first_link(uuid))

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Counters:
        """Return those in a row."""
        return cls(
            row["head_hash"],
            row["last_seq"],
            Counter({code: row[f"{kind}_count"] for code, kind in enumerate(KINDS, 1)}),
            *(row[key] for key in ("payload_bytes", "first_ts", "last_ts", "worst_unacknowledged")),
        )

    def add_page(self, page: WalkedPage) -> None:
        """Count the events of a page whose values have the right types."""
        self.add_all([*map(kind_of, page.rows)], sum(map(len, map(payload_of, page.rows))))

    def add_all(self, kinds: Sequence[int], payload_bytes: int) -> None:
        """Count events of these kinds with so many bytes of payload."""
        self.events += len(kinds)
        self.kinds.update(kinds)
        self.payload_bytes += payload_bytes

    def add(self, kind: int, payload: bytes) -> None:
        """Count an event. Raises one of `WRONG_TYPE`."""
        self.payload_bytes += len(payload)
        self.kinds[kind] += 1
        self.events += 1

    def end_batch(self, head_hash: bytes, times: tuple[int, int] | None, unacknowledged: int) -> None:
        """Add the row of a batch whose events were counted; `times` are the first and the last of these."""
        self.head_hash = head_hash
        self.worst_unacknowledged = max(self.worst_unacknowledged, unacknowledged)
        if times is not None:
            self.first_ts = times[0] if self.first_ts is None else min(self.first_ts, times[0])
            self.last_ts = times[1] if self.last_ts is None else max(self.last_ts, times[1])

    def columns(self) -> dict[str, Any]:
        """Return the columns `COUNTED` of a row."""
        return {f"{kind}_count": self.kinds[code] for code, kind in enumerate(KINDS, 1)} | {
            "last_seq": self.events,
            "head_hash": self.head_hash,
            "payload_bytes": self.payload_bytes,
            "first_ts": self.first_ts,
            "last_ts": self.last_ts,
            "worst_unacknowledged": self.worst_unacknowledged,
        }
