"""Retractions: `failed` events that say that a recorded sending was not sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import select

from .. import json_text
from ..db.codes import KINDS
from ..db.schema import event

_FAILED = KINDS.index("failed") + 1
RETRACTING = select(event.c.cause, event.c.ts, event.c.meta).where(event.c.kind == _FAILED, event.c.cause.is_not(None))
"""SELECT of the events that retract a sending, for `retracted`."""


def retracted(rows: Iterable[Any]) -> dict[int, int]:
    """Return the sendings that rows of `RETRACTING` say were not sent, with the time of the latest such row."""
    found: dict[int, int] = {}
    for cause, ts, meta in rows:
        if json_text.load_object(meta).get("outcome") == "not_sent":  # unknown: it may have been received
            found[cause] = max(ts, found.get(cause, ts))
    return found
