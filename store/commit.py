"""What one append writes, and the statements that every database writes it with."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Insert, Update, bindparam, case, insert, update

from .schema import KINDS, batch, event, recorder

EVENT_COLUMNS: tuple[str, ...] = tuple(event.c.keys())
"""The columns of a row of `Commit.values`, in order."""


class Commit(NamedTuple):
    """One batch, ready to be written in one transaction."""

    advance: dict[str, Any]
    """Parameters of `ADVANCE`."""
    values: list[Any]
    """The rows of the table `event`, one behind the other in one list: no tuple a row for the garbage collector."""
    batch: dict[str, Any]
    """The row of the table `batch`."""


def _advance() -> Update:
    row = recorder.c
    low, high, waited = (bindparam(name, type_=BigInteger) for name in ("low", "high", "unacknowledged"))
    complete = bindparam("complete", type_=BigInteger)
    values: dict[str, Any] = {f"{kind}_count": row[f"{kind}_count"] + bindparam(f"new_{kind}_count") for kind in KINDS}
    return (
        update(recorder)
        .where(
            row.id == bindparam("recorder_id"),
            row.uuid == bindparam("recorder_uuid"),
            row.epoch == bindparam("old_epoch"),
            row.last_seq == bindparam("old_last_seq"),
            row.ended_at.is_(None),
        )
        .values(
            **values,
            last_seq=bindparam("new_last_seq"),
            head_hash=bindparam("new_head_hash"),
            heartbeat_at=bindparam("now"),
            payload_bytes=row.payload_bytes + bindparam("new_payload_bytes"),
            first_ts=case((row.first_ts.is_(None) | (row.first_ts > low), low), else_=row.first_ts),
            last_ts=case((row.last_ts.is_(None) | (row.last_ts < high), high), else_=row.last_ts),
            complete_until=case(
                (row.complete_until.is_(None) | (row.complete_until < complete), complete), else_=row.complete_until
            ),
            worst_unacknowledged=case((row.worst_unacknowledged < waited, waited), else_=row.worst_unacknowledged),
        )
    )


ADVANCE: Update = _advance()
"""The compare-and-set on a recorder's own row; it must match one row, or nothing may be written."""
ADD_BATCH: Insert = insert(batch)
