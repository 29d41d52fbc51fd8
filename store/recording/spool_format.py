"""Format of a spool file: a line of JSON, then frames, each with a CRC-32.

A frame is an event (a line of JSON and the payload) or a note (a line of JSON that changes fields of the first line).
A frame with a damaged body counts as one lost event. Behind a damaged head, no frame can be located.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from ..db.codes import SEQ_BITS
from ..errors import DamagedAttributes, SpoolDamaged
from ..log.attributes import decode, encoder_of
from ..log.event import NewEvent

FORMAT = "messager-spool/1"
EVENT, NOTE = 1, 2

REGISTRATION = "registration"
"""Key of the registration in notes."""
_FIELDS = ("kind", "ts", "channel", "from_id", "to_id", "flags", "messager", "attributes")
"""The line of an event: these values, the attributes as text, as in the log."""
_attributes = encoder_of(NewEvent._fields)
_FRAME = struct.Struct("<BIII")  # its type, the lengths of its line and its payload, CRC-32 of both
_CHECK = struct.Struct("<I")  # CRC-32 of the above
_HEAD_BYTES = _FRAME.size + _CHECK.size
_HEADER_BYTES = 1 << 16


def read_header(file: BinaryIO, path: Path) -> dict[str, Any]:
    """Return the fields of the first line. Raises `SpoolDamaged`."""
    try:
        facts = json.loads(file.readline(_HEADER_BYTES))
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise SpoolDamaged(str(path), "its first line is not that of a spool")
    for name, fits in _FACTS.items():
        if not fits(facts.get(name)):
            raise SpoolDamaged(str(path), f"its first line has {facts.get(name)!r:.50} as {name}")
    return facts


def frame(what: int, line: bytes, payload: bytes = b"") -> bytes:
    head = _FRAME.pack(what, len(line), len(payload), crc32(payload, crc32(line)))
    return b"".join((head, _CHECK.pack(crc32(head)), line, payload))


def event_line(entry: NewEvent) -> bytes:
    """Return the line of an event. Its cause is the position of an event of the same recorder. Raises `ValueError`."""
    ordinal, position = entry.cause or (0, None)
    if ordinal:
        raise ValueError(f"its cause is an event of recorder {ordinal}")
    fixed = [getattr(entry, name) for name in _FIELDS[:-1]]
    return json.dumps([*fixed, _attributes(entry, position)], default=str).encode()


def read_event(line: bytes, payload: bytes) -> NewEvent:
    """Return the event of a line."""
    kind, ts, channel, from_id, to_id, flags, messager, text = json.loads(line)
    values = decode(text)
    if (position := values.get("cause")) is not None:
        values["cause"] = (0, position)
    if (origin := values.get("origin")) is not None:
        values["origin"] = tuple(origin)
    return NewEvent(kind, ts, channel, payload, from_id, to_id, flags, messager, **values)


def lost_event(before: list[NewEvent]) -> NewEvent:
    """Return the gap event that replaces an event damaged on disk."""
    at = before[-1].ts if before else time.time_ns()
    meta = {"reason": "an event was damaged in the spool", "since": at, "until": at, "count": 1}
    return NewEvent("gap", at, None, b"", meta=meta)


def read_frame(file: BinaryIO, path: Path) -> tuple[int, bytes | None, bytes]:
    """Return the type of the next frame, its line and its payload; None for the line if the body was damaged."""
    head = _read_head(file)
    if head is not None:
        what, line_length, payload_length, check = head
        line, payload = file.read(line_length), file.read(payload_length)
        if len(line) == line_length and len(payload) == payload_length:
            whole = crc32(payload, crc32(line)) == check and _fits(line, what)
            return (what, line, payload) if whole else (what, None, b"")
    raise SpoolDamaged(str(path), "one of its frames is incomplete")


def cut_short(file: BinaryIO, at: int, end: int) -> bool:
    """Return True if the frame at `at` is truncated or consists of zeros, as after a crash."""
    file.seek(at)
    if end - at < _HEAD_BYTES:
        return True
    head = _read_head(file)
    if head is not None:
        return at + _HEAD_BYTES + head[1] + head[2] > end
    file.seek(at)
    return not any(file.read(min(end - at, 1 << 20)))


def _read_head(file: BinaryIO) -> tuple[int, int, int, int] | None:
    """Return the head of the next frame; None if it is truncated or damaged."""
    data = file.read(_HEAD_BYTES)
    head = data[: _FRAME.size]
    if len(data) < _HEAD_BYTES or _CHECK.unpack(data[_FRAME.size :])[0] != crc32(head):
        return None
    what, line_length, payload_length, check = _FRAME.unpack(head)
    return what, line_length, payload_length, check


def _fits(line: bytes, what: int) -> bool:
    """Return whether the line of a frame is one, as far as spools use it; the log checks the rest of an event."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if what == NOTE:
        return isinstance(data, dict) and all(fits(data[name]) for name, fits in _NOTED.items() if name in data)
    if not isinstance(data, list) or len(data) != len(_FIELDS) or not is_number(data[1]):
        return False
    try:
        return isinstance(decode(data[-1]).get("cause", 0), int)
    except DamagedAttributes:
        return False


def is_number(value: object) -> bool:
    """Return whether a value is an integer of 64 bits."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _is_position(value: object) -> bool:
    return is_number(value) and 0 <= value < 1 << SEQ_BITS  # type: ignore[operator]


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


_FACTS: dict[str, Callable[[object], bool]] = {
    "recorder": lambda value: _is_name(value) and value != "",
    "first_seq": lambda value: _is_position(value) and value != 0,
    "offset": lambda value: value is None or _is_position(value),
    "exp_id": lambda value: value is None or _is_name(value),
    "store": lambda value: value is None or isinstance(value, str),
}
"""Fields of the first line, with the condition that each fulfils."""
_NOTED: dict[str, Callable[[object], bool]] = {
    "recorder": _FACTS["recorder"],
    "offset": _is_position,
    "last_seq": is_number,
    "complete_until": lambda value: value is None or is_number(value),
    "ended_at": lambda value: value is None or is_number(value),
    REGISTRATION: lambda value: value is None or isinstance(value, dict),
}
"""Fields of notes."""
