"""What the chain covers, as rows have it: a batch's facts, and events with the bytes of their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Select, select

from ..db.schema import SEQ_BITS, event, name

CHANNEL_NAME, SENDER_NAME, RECIPIENT_NAME = name.alias("c"), name.alias("f"), name.alias("t")
NAMED_EVENTS = (
    event.outerjoin(CHANNEL_NAME, CHANNEL_NAME.c.id == event.c.channel_id)
    .outerjoin(SENDER_NAME, SENDER_NAME.c.id == event.c.from_id)
    .outerjoin(RECIPIENT_NAME, RECIPIENT_NAME.c.id == event.c.to_id)
)


def events_page(recorder_id: int, first: int, end: int, most: int) -> Select[Any]:
    """The events of a recorder from a seq on to before another, so many at the most, as rows with their names' bytes.

    These are their `channel`, `sender` and `recipient`.
    """
    base = recorder_id << SEQ_BITS
    return (
        select(
            event,
            CHANNEL_NAME.c.value.label("channel"),
            SENDER_NAME.c.value.label("sender"),
            RECIPIENT_NAME.c.value.label("recipient"),
        )
        .select_from(NAMED_EVENTS)
        .where(event.c.id >= base | first, event.c.id < base | end)
        .order_by(event.c.id)
        .limit(most)
    )


def origin(cause: int | None, ordinals: Mapping[int, int]) -> int | None:
    """An event's cause as `chain.BatchDigest.add` has it; `ordinals` are those of the recorders' ids."""
    if cause is None:
        return None
    return ordinals.get(cause >> SEQ_BITS, 0) << SEQ_BITS | cause & ((1 << SEQ_BITS) - 1)


def facts(part: Mapping[Any, Any]) -> tuple[int, int, int, int, int, int]:
    """What `chain.next_link` takes of a batch's row beside its digest."""
    return (
        part["first_seq"],
        part["count"],
        part["min_ts"],
        part["max_ts"],
        part["committed_at"],
        part["unacknowledged"],
    )
