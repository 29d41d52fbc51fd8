"""The parts of one append, and the statements that write them in every database."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Insert, Select, Update, bindparam, case, insert, select, update

from .codes import KINDS
from .schema import batch, event, recorder

EVENT_COLUMNS: tuple[str, ...] = tuple(event.c.keys())
"""The columns of a `Row`, in order."""

Row = tuple[Any, ...]
"""One row of the table `event`."""


class Commit(NamedTuple):
    """The rest of an append: written in the transaction that inserts the events."""

    advance: dict[str, Any]
    """Parameters of `ADVANCE`."""
    batch: dict[str, Any]
    """The row of the table `batch`."""


Part = list[Row] | Commit
"""A part of an append: some events, or, last, the commit that covers all of them."""


_AS_EXPECTED = (
    recorder.c.id == bindparam("recorder_id"),
    recorder.c.uuid == bindparam("recorder_uuid"),
    recorder.c.epoch == bindparam("old_epoch"),
    recorder.c.last_seq == bindparam("old_last_seq"),
    recorder.c.ended_at.is_(None),
)
LOCK: Select[tuple[int]] = select(recorder.c.id).where(*_AS_EXPECTED).with_for_update(key_share=True)
"""Locks a recorder's row until the transaction ends; selects nothing if the row is not as its writer expects."""


def _advance() -> Update:
    row = recorder.c
    low, high, waited = (bindparam(name, type_=BigInteger) for name in ("low", "high", "unacknowledged"))
    complete = bindparam("complete", type_=BigInteger)
    values: dict[str, Any] = {f"{kind}_count": row[f"{kind}_count"] + bindparam(f"new_{kind}_count") for kind in KINDS}
    return (
        update(recorder)
        .where(*_AS_EXPECTED)
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
"""Compare-and-set on a recorder's own row. If it matches no row, nothing may be written."""
ADD_BATCH: Insert = insert(batch)
