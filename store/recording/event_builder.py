"""Build events from the records of a Messager: derive missing ids, and redact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from messager.record import MessageRecord

from ..db.codes import FROM_DERIVED, TO_DERIVED
from ..log.event import Fields, NewEvent
from .derived_ids import DerivedIds

_attributes = attrgetter(*NewEvent._fields[NewEvent._fields.index("cause") + 1 :])
"""The other attributes of an event, which are fields of its record."""

Redact = Callable[[NewEvent], NewEvent | None]


class EventBuilder:
    """Builder of events. `sender` and `redact` are as in `Recorder`."""

    def __init__(self, sender: Sequence[str], redact: Redact | None) -> None:
        self._derived_ids = DerivedIds(sender)
        self._redact = redact

    def build(self, record: MessageRecord, ts: int, cause: tuple[int, int] | None = None) -> Fields | None:
        """Return the redacted event; None if `redact` drops it. Raises the errors of `redact`, and `TypeError`."""
        channel, payload, from_id, to_id = record.channel, record.payload, record.from_id, record.to_id
        flags, msg_id = 0, None
        if channel is not None:
            if to_id is None:
                to_id = self._derived_ids.recipient(channel)
                flags = TO_DERIVED if to_id is not None else 0
            sender, msg_id = self._derived_ids.from_message(payload, record.message, sender=from_id is None)
            if sender is not None:
                from_id = sender
                flags |= FROM_DERIVED
        entry = (
            record.kind,
            ts,
            channel,
            payload,
            from_id,
            to_id,
            flags,
            record.messager,
            msg_id,
            cause,
            *_attributes(record),
        )
        if self._redact is None:
            return entry
        kept = self._redact(NewEvent._make(entry))
        if kept is not None and not (isinstance(kept, NewEvent) and isinstance(kept.payload, bytes)):
            raise TypeError(f"`redact` returned {kept!r:.100}. Return a NewEvent with a payload of bytes, or None.")
        return kept


def outcome_only(record: MessageRecord, ts: int, cause: tuple[int, int] | None, error: Exception) -> NewEvent:
    """Return a failed event without its message, for a record on which `redact` raised. It retracts its intent."""
    outcome = (record.meta or {}).get("outcome", "not_sent")
    meta = {"outcome": outcome, "error": f"`redact` raised {type(error).__name__}, so only this is stored"}
    return NewEvent("failed", ts, None, b"", cause=cause, meta=meta)
