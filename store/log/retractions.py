"""Retractions: `failed` and `blocked` events with a cause, a sending that was recorded before.

If the outcome of such a sending is unknown, it may have been received: a reception of it is the message then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select

from ..db.codes import KINDS, SEQ_BITS, SEQ_MASK
from ..db.schema import event
from .attributes import decode

_KINDS = tuple(KINDS.index(kind) + 1 for kind in ("failed", "blocked"))
RETRACTING = select(event.c.id, event.c.ts, event.c.attributes).where(event.c.kind.in_(_KINDS))
"""SELECT of the events that may retract a sending, for `retracted`."""


def retracted(rows: Iterable[Any], ids: Mapping[str, int]) -> dict[int, int]:
    """Return the sendings that rows of `RETRACTING` retract, with the time of the latest such row.

    `ids` are those of the experiment's recorders by uuid.
    """
    found: dict[int, int] = {}
    for number, ts, text in rows:
        cause = decode(text).get("cause")
        if cause is None:
            continue
        sending = number & ~SEQ_MASK | cause if isinstance(cause, int) else ids.get(cause[0], 0) << SEQ_BITS | cause[1]
        found[sending] = max(ts, found.get(sending, ts))
    return found
