"""The fields of an event: new, recorded, and its position in replay order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from messager.msg import Msg, view

from ..db.codes import FROM_DERIVED, REDACTED, TO_DERIVED
from ..errors import BadCursor
from .text import readable, text_of_meta

SEAL = "redaction"
"""Key of the seal of its redaction, in hex, in the meta of a redacted event."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"(0|-?[1-9]\d{0,18}):([1-9]\d{0,8}):([1-9]\d{0,12})", re.A)


class Cursor(NamedTuple):
    """A position in replay order. Written `ts:recorder:seq`."""

    ts: int
    """ns UTC"""
    recorder: int
    """The recorder's number within the experiment, from 1."""
    seq: int
    """The event's number within its recorder, from 1."""

    def __str__(self) -> str:
        return f"{self.ts}:{self.recorder}:{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Return the cursor that was written as `text`. Raises `BadCursor`."""
        found = _CURSOR.fullmatch(text)
        if not found or not -(2**63) <= int(found[1]) < 2**63:
            raise BadCursor(text)
        return cls(int(found[1]), int(found[2]), int(found[3]))


class NewEvent(NamedTuple):
    """An event that is not in the log yet; `EventLog.append` assigns its seq."""

    kind: str
    ts: int
    channel: str | None
    payload: bytes
    from_id: Any = None
    to_id: Any = None
    flags: int = 0
    messager: str | None = None
    msg_id: str | None = None
    cause: tuple[int, int] | None = None
    """(recorder, seq) of the event of the same experiment that this one answers or retracts."""
    duration_ns: int | None = None
    receivers: int | None = None
    arrival: int | None = None
    origin: tuple[str, int] | None = None
    """(recorder uuid, seq) of the event of the parent experiment that this one repeats in a fork."""
    carrier: str | None = None
    """How the message travelled: stream, queue or call; None for a channel."""
    meta: dict[str, Any] | None = None


Fields = tuple[Any, ...]
"""A `NewEvent`, or a plain tuple of its fields. A recorder buffers plain tuples, because the garbage collector does not
track those that hold only values. Read them with `fields`."""


def fields(*names: str) -> Callable[[Fields], Any]:
    """Return a function that returns these fields of an event: a tuple of them, or the only one."""
    return itemgetter(*map(NewEvent._fields.index, names))


kind_of: Callable[[Fields], str] = fields("kind")
ts_of: Callable[[Fields], int] = fields("ts")


@dataclass(slots=True)
class Event:
    """One event of the log, as it was recorded."""

    ts: int
    """ns UTC"""
    recorder: int
    """The recorder's number within the experiment, from 1."""
    seq: int
    """The event's number within its recorder, from 1."""
    kind: str
    """One of `messager_store.db.codes.KINDS`."""
    channel: str | None
    """Text of the channel; `messager.channels.encode` gives its bytes. None for gaps and marks."""
    payload: bytes
    """The exact bytes that were on the wire."""
    from_id: Any = None
    to_id: Any = None
    flags: int = 0
    """Bits: 1 from_id is derived, 2 to_id is derived, 4 the payload is not text, 8 the event is redacted."""
    messager: str | None = None
    """The Messager that sent or received it; None if unknown."""
    msg_id: str | None = None
    cause: tuple[int, int] | None = None
    """(recorder, seq) of the event that this one answers or retracts."""
    duration_ns: int | None = None
    receivers: int | None = None
    arrival: int | None = None
    """Of a reception, its number within its Messager, from 1. Of a sending, the number of the last message that the
    Messager had handed over when `send_message` was called, 0 for none."""
    origin: tuple[str, int] | None = None
    """(recorder uuid, seq) of the event of the parent experiment that this one repeats in a fork."""
    carrier: str | None = None
    """How the message travelled: stream, queue or call; None for a channel."""
    meta: dict[str, Any] | None = None

    @property
    def cursor(self) -> Cursor:
        """Its position in replay order."""
        return Cursor(self.ts, self.recorder, self.seq)

    @property
    def time(self) -> str:
        """`ts` as ISO 8601 UTC with nine digits."""
        return iso(self.ts)

    @property
    def derived_ids(self) -> list[str]:
        """The names of the derived ids."""
        names = ((FROM_DERIVED, "from_id"), (TO_DERIVED, "to_id"))
        return [name for bit, name in names if self.flags & bit]

    @property
    def redacted(self) -> bool:
        """True if a redaction erased its content."""
        return bool(self.flags & REDACTED)

    @property
    def mark(self) -> str | None:
        """The name of a mark; None for any other event."""
        return str((self.meta or {}).get("name", "")) if self.kind == "mark" else None

    @property
    def msg(self) -> Msg:
        """The `Msg` that was sent, or a view of the payload as one."""
        return view(self.payload, ts=self.ts, from_id=self.from_id, event_id=self.msg_id or str(self.cursor))

    @property
    def text(self) -> str:
        """The content for people, as `text.readable` decodes it."""
        if self.kind in ("gap", "mark"):
            text = text_of_meta(self.kind, self.meta or {})
            return f"{text} [redacted]".lstrip() if self.redacted else text
        return "[redacted]" if self.redacted else readable(self.payload)


def clear_attributes(entry: Event) -> None:
    """Set the attributes of an event that is being made to None."""
    entry.msg_id = entry.cause = entry.duration_ns = entry.receivers = entry.arrival = entry.origin = None
    entry.carrier = entry.meta = None


def recorded(new: Fields, recorder: int, seq: int, cause: tuple[int, int] | None) -> Event:
    """Return a new event as one of a log, with its place and its cause there."""
    kind, ts, *others = new
    entry = Event(ts, recorder, seq, kind, *others)
    entry.cause = cause
    return entry


def repeated(entry: Event) -> NewEvent:
    """Return an event of a log as a new one."""
    return NewEvent._make(_fields_of(entry))


_fields_of: Callable[[Event], Fields] = attrgetter(*NewEvent._fields)


def iso(ts: int) -> str:
    """Return ns UTC as ISO 8601 with nine digits, or as a number outside the years 1 to 9999."""
    seconds, nanoseconds = divmod(ts, 1_000_000_000)
    try:
        return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"
    except OverflowError:
        return f"{ts}ns"


def utc(ts: int) -> datetime | None:
    """Return ns UTC as a `datetime`, cut to microseconds; None outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=ts // 1000)
    except OverflowError:
        return None
