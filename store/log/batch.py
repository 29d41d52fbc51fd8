"""The parts of one append: events as rows, a few at a time, and the commit that covers them.

This module does no I/O, so each database decides when and in which thread the parts are made: SQLite in its own thread,
PostgreSQL while it sends earlier parts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ..db.codes import KINDS
from ..db.statements import Commit, Part
from . import chain, event_rows
from .event import Fields, kind_of, ts_of
from .names import EventNames
from .writer import Writer

ROWS, BYTES = 128, 256 * 1024
"""Maximum rows and payload bytes of one part: a large one would block the event loop, in which PostgreSQL makes it."""


def expected(writer: Writer) -> dict[str, Any]:
    """Return what the writer expects of its recorder's row: parameters of `LOCK`, and of `ADVANCE`."""
    return {
        "recorder_id": writer.id,
        "recorder_uuid": writer.uuid,
        "old_epoch": writer.epoch,
        "old_last_seq": writer.last_seq,
    }


def parts(
    writer: Writer,
    events: Sequence[Fields],
    names: Sequence[EventNames],
    *,
    unacknowledged_ns: int = 0,
    complete_until: int | None = None,
) -> Iterator[Part]:
    """Yield the rows of a batch in lists of at most `ROWS` rows, then its commit; parameters as `EventLog.append`.

    `names` are those that `Writer.resolve` returned for the events. Raises `BadEvent`.
    """
    digest = chain.BatchDigest()
    at = payload_bytes = 0
    while at < len(events):
        part = slice(at, at + ROWS)
        rows, encoded, size = event_rows.pack(writer, events[part], names[part], at, BYTES)
        digest.extend(encoded)
        at += len(rows)
        payload_bytes += size
        yield rows
    first, last = writer.last_seq + 1, writer.last_seq + len(events)
    times = list(map(ts_of, events))
    low, high = min(times), max(times)
    now = time.time_ns()
    covered = digest.digest()
    link = chain.next_link(writer.head_hash, covered, first, len(events), low, high, now, unacknowledged_ns)
    counts = Counter(map(kind_of, events))
    yield Commit(
        advance={
            **expected(writer),
            **{f"new_{kind}_count": counts[kind] for kind in KINDS},
            "new_last_seq": last,
            "new_head_hash": link,
            "now": now,
            "new_payload_bytes": payload_bytes,
            "low": low,
            "high": high,
            "unacknowledged": unacknowledged_ns,
            "complete": high if complete_until is None else complete_until,
        },
        batch={
            "recorder_id": writer.id,
            "first_seq": first,
            "count": len(events),
            "min_ts": low,
            "max_ts": high,
            "digest": covered,
            "checks": digest.packed_checks(),
            "chain_hash": link,
            "committed_at": now,
            "unacknowledged": unacknowledged_ns,
        },
    )
