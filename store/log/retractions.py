"""Retractions: `failed` events that say that a recorded sending was not sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import select

from ..db.codes import KINDS, SEQ_BITS, SEQ_MASK
from ..db.json_item import text_item
from ..db.schema import event, recorder
from .attributes import KEYS, decode

_FAILED = KINDS.index("failed") + 1
_ELSEWHERE = select(recorder.c.id).where(recorder.c.uuid == text_item(event.c.attributes, KEYS["cause"], 0))
RETRACTING = select(event.c.id, event.c.ts, event.c.attributes, _ELSEWHERE.scalar_subquery()).where(
    event.c.kind == _FAILED
)
"""SELECT of the events that may retract a sending, for `retracted`."""


def retracted(rows: Iterable[Any]) -> dict[int, int]:
    """Return the sendings that rows of `RETRACTING` say were not sent, with the time of the latest such row."""
    found: dict[int, int] = {}
    for number, ts, text, elsewhere in rows:
        known = decode(text)
        cause, meta = known.get("cause"), known.get("meta") or {}
        if cause is None or meta.get("outcome") != "not_sent":  # unknown: it may have been received
            continue
        sending = number & ~SEQ_MASK | cause if isinstance(cause, int) else (elsewhere or 0) << SEQ_BITS | cause[1]
        found[sending] = max(ts, found.get(sending, ts))
    return found
