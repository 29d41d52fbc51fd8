"""Events as the rule of messages takes them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from messager.record import SUBSCRIBED

from ..db.codes import KINDS, SEQ_BITS
from .attributes import meta_of
from .gap import gap_of
from .message_rule import MessageRule
from .subscriptions import Subscriptions, begins_listening

if TYPE_CHECKING:  # it needs a database
    from ..experiments.records import RecorderRow

SENT, RECEIVED, GAP, MARK = (KINDS.index(kind) + 1 for kind in ("sent", "received", "gap", "mark"))


def began(rows: Iterable[RecorderRow]) -> dict[int, int]:
    """Return when recorders began to listen, ns UTC, by id; a start behind the first event is that of another clock."""
    return {row.id: row.started_at for row in rows if row.first_ts is not None and row.started_at <= row.first_ts}


def feed_meta(kind: int, attributes: str) -> Mapping[str, Any]:
    """Return the meta of an event, as far as the rule looks at it."""
    if kind == SENT or (kind == RECEIVED and "retained" not in attributes):
        return {}
    return meta_of(attributes)


@contextmanager
def no_collection() -> Iterator[None]:
    """Put off the garbage collector, which would visit the messages of the last minute again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class RuleFeed:
    """Adds events to a rule, and to the subscriptions that it asks."""

    def __init__(self, rule: MessageRule, subscriptions: Subscriptions, ids: Mapping[int, int]) -> None:
        """`ids` are those of recorders by ordinal."""
        self._rule = rule
        self._subscriptions = subscriptions
        self._ids = ids

    def add(
        self,
        number: int,
        ts: int,
        kind: int,
        channel: int | None,
        messager: int | None,
        payload: bytes,
        redacted: bool,
        meta: Mapping[str, Any],
    ) -> None:
        """Add an event, in replay order. Of a sending, `meta` is not looked at."""
        rule, listener = self._rule, (number >> SEQ_BITS, messager)
        if kind == SENT:
            rule.sent(number, ts, channel, payload, redacted=redacted)
        elif kind == RECEIVED:
            retained = bool(meta.get("retained"))
            rule.received(number, ts, channel, payload, listener, retained=retained, redacted=redacted)
        elif kind == GAP:
            recorder = gap_of(meta).recorder
            rule.gap(listener[0] if recorder is None else self._ids.get(recorder, 0), ts)
        elif kind == MARK:
            if meta.get("name") == SUBSCRIBED:
                self._subscriptions.add(listener, meta.get("fields"))
            if begins_listening(meta):
                rule.subscribed(listener, ts)
