"""Event in the form in which log hooks get it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from .msg import Msg, view

Kind = Literal["sent", "received", "blocked", "failed", "gap", "mark", "asked", "answered"]
Carrier = Literal["stream", "queue", "call"]
"""How a message travelled that was not published on a channel."""
Outcome = Literal["not_sent", "unknown"]
"""Of a failed message: whether it may have been published."""

SUBSCRIBED = "messager.subscribed"
"""Name of the mark with which a Messager logs its subscriptions; its field `patterns` lists all of them, or with the
field `added`, which is true, those that came to the earlier ones."""

CLOSED = "messager.closed"
"""Name of the mark with which a Messager that has subscribed logs that it was closed. Its `arrival` is what had been
fetched by then."""


def is_own(mark: str) -> bool:
    """Return whether a mark of this name is logged by a Messager itself, not by its user."""
    return mark.startswith("messager.")


def mark_record(ts: int, name: str, fields: dict[str, Any]) -> MessageRecord:
    """Return a mark with a copy of its fields. Raises `TypeError` or `ValueError` for fields without a JSON form."""
    kept = json.loads(json.dumps(fields, default=str))
    return MessageRecord("mark", ts, meta={"name": str(name), "fields": kept})


@dataclass(slots=True)
class MessageRecord:
    """One event of a `Messager` or a tap. Hooks read it and do not change it."""

    kind: Kind
    ts: int
    """ns UTC: immediately before the write for `sent`, on arrival for `received`."""
    channel: str | None = None
    """Channel as text (see `messager.channels`); None for a gap or a mark."""
    payload: bytes = b""
    """Exact bytes on the wire."""
    from_id: Any = None
    """Sender given by the caller, with its JSON type; None without one."""
    to_id: Any = None
    """Recipient given by the caller, with its JSON type; None without one."""
    message: Any = None
    """Object given to `send_message` (a dict or a `Msg`), not a copy; None for receptions."""
    duration_ns: int | None = None
    """Time from the call to the answer of the broker, ns."""
    receivers: int | None = None
    """Number of subscribers that the broker reported; None if it reported none."""
    meta: dict[str, Any] | None = None
    """Gap: `reason, since, until, count`. Mark: `name, fields`. Failed: `outcome, error`.
    Blocked: `interceptor`, and its `reason` if it gave one.

    On MQTT also `qos` if it is not 1, and for receptions `retained` if True.
    """
    messager: str | None = None
    """`Messager.id` of the Messager; None for the records of a tap."""
    arrival: int | None = None
    """Received: its number within its Messager, from 1. Sent, blocked, failed and mark: the number of the last message
    that had been fetched when the Messager was called, 0 for none. None if unknown."""
    origin: tuple[str, int] | None = None
    """In a fork, (recorder uuid, seq) of the event of the parent experiment that this one repeats."""
    carrier: Carrier | None = None
    """How the message travelled; None for a channel."""
    places: dict[Any, int] | None = None
    """Position of a message or question in the log of each hook, if a later record with the same dict may retract or
    answer it; else None."""

    @property
    def mark(self) -> str | None:
        """Name of a mark; None for any other event."""
        return self.meta["name"] if self.kind == "mark" and self.meta is not None else None

    @property
    def msg(self) -> Msg:
        """The `Msg` that was sent, else a view of the payload as one."""
        if isinstance(self.message, Msg):
            return self.message
        return view(self.payload, ts=self.ts, from_id=self.from_id)
