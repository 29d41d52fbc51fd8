"""The rows of experiments and recorders."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Row

from messager.brokers import BrokerKind, kind_of

from .. import json_text
from ..db.codes import KINDS
from .provenance import this_process

GATHERED = -(1 << 30)
"""Epoch of a recorder that was gathered from another store: below zero, also after it is raised a few times, so that no
writer has it."""
SILENT_NS = 30_000_000_000
"""A recorder that has been silent for longer has ended uncleanly."""


@dataclass(slots=True)
class Experiment:
    """One run of an agent society. Times are ns UTC."""

    id: int
    exp_id: str
    name: str | None
    status: str
    created_at: int
    closed_at: int | None
    meta: dict[str, Any]
    tags: list[str]
    recorders: int
    """The number of recorders that were registered."""
    parent_exp_id: str | None = None
    """The experiment that this one was forked from."""
    parent_head: bytes | None = None
    """The head of the parent at that time."""
    parent_cursor: str | None = None
    """End of the part that was copied from the parent: `ts:uuid of a recorder:seq`."""


@dataclass(slots=True)
class RecorderRow:
    """The row of one recorder of an experiment. Times are ns UTC."""

    id: int
    uuid: str
    experiment_id: int
    ordinal: int
    epoch: int
    role: str
    patterns: list[str]
    meta: dict[str, Any]
    host: str | None
    pid: int | None
    boot_id: str | None
    anchor_wall: int | None
    anchor_monotonic: int | None
    broker: str | None
    broker_offset: int | None
    started_at: int
    heartbeat_at: int
    ended_at: int | None
    last_seq: int
    head_hash: bytes
    kinds: dict[str, int]
    """The number of events of each kind."""
    payload_bytes: int
    first_ts: int | None
    last_ts: int | None
    worst_unacknowledged: int
    complete_until: int
    """Every event accepted before this time is known to be in the log."""
    unclean: bool
    """True if it ended uncleanly and was repaired."""
    durability: str
    """buffered or strict"""
    spool: str | None
    """The file on its host to which it writes while the store is unreachable."""
    seal: bytes | None
    """SHA-256 over its row if it has ended; see `seal`."""

    @property
    def head(self) -> bytes:
        """The head of the recorder: its seal, or the chain hash of its last batch while it has not ended."""
        return self.head_hash if self.seal is None else self.seal

    @property
    def broker_kind(self) -> BrokerKind | None:
        """The kind of broker that it listens to; None if unknown, as before it connects and in some imports."""
        return kind_of(self.broker) if self.broker else None

    def observes(self, kind: str) -> bool:
        """Return whether its transport logs messages of this kind, as far as is known."""
        kinds = self.meta.get("observes")
        return not isinstance(kinds, list) or kind in kinds

    @property
    def gathered(self) -> bool:
        """True if it was gathered from another store. Only `messager_store.formats.gather` appends to it."""
        return self.epoch < 0

    @property
    def state(self) -> str:
        """ended, alive, unclean (no end was recorded, and it is silent or its process is gone), repaired, or incomplete
        (gathered without its end: only the store it records into knows more)."""
        if self.ended_at is not None:
            return "repaired" if self.unclean else "ended"
        if self.gathered:
            return "incomplete"
        if time.time_ns() - self.heartbeat_at > SILENT_NS:
            return "unclean"
        here = this_process()
        if self.host != here.host or self.boot_id is None or here.boot_id is None:
            return "alive"
        gone = self.boot_id != here.boot_id or (self.pid is not None and not here.is_running(self.pid))
        return "unclean" if gone else "alive"


def _patterns(value: Any) -> list[str]:
    """Return the patterns of a row, none if they were changed into something else: `verify` reports that."""
    try:
        found = json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return []
    return [pattern for pattern in found if isinstance(pattern, str)] if isinstance(found, list) else []


def experiment_of(row: Row[Any], tags: Iterable[str]) -> Experiment:
    """Return the experiment of a row of its table."""
    columns = row._mapping
    return Experiment(
        **{name: columns[name] for name in _EXPERIMENT}, meta=json_text.load_object(row.meta), tags=sorted(tags)
    )


def recorder_of(row: Row[Any]) -> RecorderRow:
    """Return the recorder of a row of its table."""
    columns = row._mapping
    return RecorderRow(
        **{name: columns[name] for name in _RECORDER},
        patterns=_patterns(row.patterns),
        meta=json_text.load_object(row.meta),
        kinds={kind: columns[f"{kind}_count"] for kind in KINDS},
        complete_until=row.started_at if row.complete_until is None else row.complete_until,
        unclean=bool(row.unclean),
    )


_EXPERIMENT = [each.name for each in fields(Experiment) if each.name not in ("meta", "tags")]
_RECORDER = [
    each.name
    for each in fields(RecorderRow)
    if each.name not in ("patterns", "meta", "kinds", "complete_until", "unclean")
]
"""Fields that are columns as they are."""
