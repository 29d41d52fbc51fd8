"""What a log hook is handed: one fact about one message."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from .msg import Msg, view

Kind = Literal["sent", "received", "blocked", "failed", "gap", "mark"]


def mark_record(ts: int, name: str, fields: dict[str, Any]) -> MessageRecord:
    """A mark, with its fields as they are now. Raises `TypeError` or `ValueError` for what JSON cannot hold."""
    kept = json.loads(json.dumps(fields, default=str))
    return MessageRecord("mark", ts, meta={"name": str(name), "fields": kept})


@dataclass(slots=True)
class MessageRecord:
    """One event, as a `Messager` or a tap saw it. Hooks read it and do not change it."""

    kind: Kind
    ts: int
    """ns UTC: immediately before the write for `sent`, on arrival for `received`."""
    channel: str | None = None
    """Text of the channel (see `messager.channels`); None for a gap or a mark."""
    payload: bytes = b""
    """The exact bytes on the wire."""
    from_id: Any = None
    """The sender the caller named, with its JSON type; None where nobody did."""
    to_id: Any = None
    """The recipient the caller named, with its JSON type; None where nobody did."""
    message: Any = None
    """The very object handed to `send_message` (a dict or a `Msg`); None for receptions."""
    duration_ns: int | None = None
    """How long sending took, from the call to the broker's answer."""
    receivers: int | None = None
    """How many subscribers the broker said it delivered to."""
    meta: dict[str, Any] | None = None
    """Gap: `reason, since, until, count`. Mark: `name, fields`. Failed: `outcome, error`.
    Over MQTT, where it was so: `qos` (other than 1), and of what was received `retained` (True)."""

    @property
    def msg(self) -> Msg:
        """The very `Msg` that was sent, or a view of the payload as one."""
        if isinstance(self.message, Msg):
            return self.message
        return view(self.payload, ts=self.ts, from_id=self.from_id)
