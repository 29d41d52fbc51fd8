"""An event: as it is handed to the log, as it comes back, and where it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple

from messager.msg import Msg, view

from ..db.schema import FROM_DERIVED, REDACTED, TO_DERIVED
from ..errors import BadCursor

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"(0|-?[1-9]\d{0,18}):([1-9]\d{0,8}):([1-9]\d{0,12})", re.A)


class Cursor(NamedTuple):
    """A point in replay order, the order of an experiment's events. Written `ts:recorder:seq`."""

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
        """Raises `BadCursor`."""
        found = _CURSOR.fullmatch(text)
        if not found:
            raise BadCursor(text)
        return cls(int(found[1]), int(found[2]), int(found[3]))


class NewEvent(NamedTuple):
    """An event on its way into the log; `EventLog.append` gives it its seq."""

    kind: str
    ts: int
    channel: str | None
    payload: bytes
    from_id: Any = None
    to_id: Any = None
    flags: int = 0
    msg_id: str | None = None
    duration_ns: int | None = None
    receivers: int | None = None
    cause: tuple[int, int] | None = None
    """(recorder, seq) of the event, in the same experiment, that this one answers or retracts."""
    meta: dict[str, Any] | None = None


Fields = tuple[
    str,
    int,
    str | None,
    bytes,
    Any,
    Any,
    int,
    str | None,
    int | None,
    int | None,
    tuple[int, int] | None,
    dict[str, Any] | None,
]
"""A `NewEvent`, or a plain tuple of its fields. A recorder keeps plain ones: many wait at a time, and the garbage
collector visits each of them again and again, except plain tuples of nothing but values. Read them by unpacking, or
with the functions below."""

kind_of: Callable[[Fields], str] = itemgetter(NewEvent._fields.index("kind"))
ts_of: Callable[[Fields], int] = itemgetter(NewEvent._fields.index("ts"))
payload_of: Callable[[Fields], bytes] = itemgetter(NewEvent._fields.index("payload"))


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
    """sent, received, blocked, failed, gap or mark"""
    channel: str | None
    """Text of the channel; `messager.channels.encode` gives its bytes. None for gaps and marks."""
    payload: bytes
    """The exact bytes that were on the wire."""
    from_id: Any = None
    to_id: Any = None
    flags: int = 0
    """Bits: 1 from_id and 2 to_id were worked out instead of given; 4 the payload is no text; 8 it was taken out."""
    msg_id: str | None = None
    duration_ns: int | None = None
    receivers: int | None = None
    cause: tuple[int, int] | None = None
    """(recorder, seq) of the event that this one answers or retracts."""
    meta: dict[str, Any] | None = None

    @property
    def cursor(self) -> Cursor:
        """Where it stands in replay order."""
        return Cursor(self.ts, self.recorder, self.seq)

    @property
    def time(self) -> str:
        """`ts` as ISO 8601 UTC, all nine digits."""
        return iso(self.ts)

    @property
    def derived_ids(self) -> list[str]:
        """The names of the ids that were worked out."""
        names = ((FROM_DERIVED, "from_id"), (TO_DERIVED, "to_id"))
        return [name for bit, name in names if self.flags & bit]

    @property
    def redacted(self) -> bool:
        """Whether what it said was taken out afterwards."""
        return bool(self.flags & REDACTED)

    @property
    def msg(self) -> Msg:
        """The `Msg` that was sent, or a view of the payload as one."""
        return view(self.payload, ts=self.ts, from_id=self.from_id, event_id=self.msg_id or str(self.cursor))

    @property
    def text(self) -> str:
        """What a person wants to read: the content, out of JSON and of JSON inside JSON."""
        if self.kind in ("gap", "mark"):
            text = _meta_text(self.kind, self.meta or {})
            return f"{text} [redacted]".lstrip() if self.redacted else text
        return "[redacted]" if self.redacted else readable(self.payload)


def _meta_text(kind: str, meta: dict[str, Any]) -> str:
    if kind == "mark":
        given = meta.get("fields") or {}
        fields = " ".join(f"{key}={value}" for key, value in given.items()) if isinstance(given, dict) else given
        return f"{meta.get('name', '')} {fields}".rstrip()
    until, since = meta.get("until"), meta.get("since")
    length = ""
    if isinstance(until, int) and isinstance(since, int) and abs(until - since) < 2**64:
        length = f"{(until - since) / 1e9:.3f} s, "
    count = meta.get("count")
    return f"{length}{'unknown number' if count is None else count} lost: {meta.get('reason', '')}"


def readable(payload: bytes) -> str:
    """The content of a payload as text: its `content` or `text` where it has one (of a list of
    blocks, as AgentScope has them, their texts), nested JSON unpacked."""
    text = payload.decode("utf-8", "backslashreplace")
    for _ in range(3):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return text
        if not isinstance(data, dict):
            return text if not isinstance(data, str) else data
        inner = data.get("content", data.get("text"))
        if isinstance(inner, list) and inner and all(isinstance(block, dict) for block in inner):
            said = [block["text"] for block in inner if isinstance(block.get("text"), str)]
            inner = "\n".join(said) if said else inner
        if not isinstance(inner, str):
            return json.dumps(data, ensure_ascii=False)
        text = inner
    return text


def iso(ts: int) -> str:
    """ns UTC as ISO 8601 with all nine digits; a bare number where the calendar ends."""
    seconds, nanoseconds = divmod(ts, 1_000_000_000)
    try:
        return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"
    except OverflowError:
        return f"{ts}ns"
