"""Retractions: `failed` events that say that a recorded sending was not sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select

from ..db.codes import KINDS, SEQ_BITS, SEQ_MASK
from ..db.schema import event
from .attributes import decode

_FAILED = KINDS.index("failed") + 1
RETRACTING = select(event.c.id, event.c.ts, event.c.attributes).where(event.c.kind == _FAILED)
"""SELECT of the events that may retract a sending, for `retracted`."""


def retracted(rows: Iterable[Any], ids: Mapping[str, int]) -> dict[int, int]:
    """Return the sendings that rows of `RETRACTING` say were not sent, with the time of the latest such row.

    `ids` are those of the experiment's recorders by uuid.
    """
    found: dict[int, int] = {}
    for number, ts, text in rows:
        known = decode(text)
        cause, meta = known.get("cause"), known.get("meta") or {}
        if cause is None or meta.get("outcome") != "not_sent":  # unknown: it may have been received
            continue
        sending = number & ~SEQ_MASK | cause if isinstance(cause, int) else ids.get(cause[0], 0) << SEQ_BITS | cause[1]
        found[sending] = max(ts, found.get(sending, ts))
    return found
