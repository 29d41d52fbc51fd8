"""An event as a message of an MCAP file: a JSON object, and the JSON Schema that describes it.

Foxglove reads `jsonschema` schemas whose root is an object and whose properties have one simple type each, bytes as
strings with `contentEncoding`, and times as objects of `sec` and `nsec`. Hence ids are text with their JSON type in a
field beside them, and a value that an event does not have is left out.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, NoReturn

from messager import channels

from ...json_text import dump_strict, is_deep
from ...log.event import Event
from ...log.redaction_records import without_seal
from ..fields import bytes_field

Shape = tuple[tuple[str, str], ...]
"""Names and JSON types of the simple fields of a payload."""
_MOST_FIELDS = 200
"""Maximum number of payload fields that a schema describes."""

_TEXT, _INTEGER, _OBJECT = {"type": "string"}, {"type": "integer"}, {"type": "object"}
_BASE64 = {"type": "string", "contentEncoding": "base64"}
_TIME = {"type": "object", "title": "time", "properties": {"sec": _INTEGER, "nsec": _INTEGER}}
_PROPERTIES: dict[str, dict[str, Any]] = {
    "time": {**_TIME, "description": "ts of the event: seconds since 1970, UTC, and nanoseconds"},
    "cursor": {**_TEXT, "description": "ts:recorder:seq, the position in replay order; ts in ns UTC"},
    "kind": {**_TEXT, "description": "sent, received, blocked, failed, gap, mark, asked or answered"},
    "channel": {**_TEXT, "description": "the channel, if it is UTF-8"},
    "channel_base64": {**_BASE64, "description": "the bytes of any other channel"},
    "from_id": {**_TEXT, "description": "sender; JSON text unless it is a string"},
    "from_type": {**_TEXT, "description": "JSON type of the sender"},
    "to_id": {**_TEXT, "description": "recipient; JSON text unless it is a string"},
    "to_type": {**_TEXT, "description": "JSON type of the recipient"},
    "text": {**_TEXT, "description": "what was said, decoded for people"},
    "payload": {**_TEXT, "description": "the exact payload, if it is UTF-8"},
    "payload_base64": {**_BASE64, "description": "the bytes of any other payload"},
    "data": {**_OBJECT, "description": "the payload, if it is a JSON object"},
    "redacted": {"type": "boolean", "description": "true if the payload was redacted"},
    "derived": {"type": "array", "items": _TEXT, "description": "ids that were not on the wire"},
    "msg_id": _TEXT,
    "messager": {**_TEXT, "description": "the Messager that sent or received it"},
    "arrival": _INTEGER,
    "duration_ns": _INTEGER,
    "receivers": _INTEGER,
    "cause": {**_TEXT, "description": "recorder:seq of the event that this one answers or retracts"},
    "meta": _OBJECT,
}


def schema(shape: Shape = ()) -> bytes:
    """Return the JSON Schema of the messages of a channel whose payloads have these fields."""
    data = {**_PROPERTIES["data"], "properties": {name: {"type": kind} for name, kind in shape}}
    properties = {**_PROPERTIES, "data": data}
    return json.dumps({"type": "object", "title": "messager.Event", "properties": properties}).encode()


def shape_of(data: dict[str, Any]) -> Shape:
    """Return the simple fields of a payload."""
    found = ((name, _simple(value)) for name, value in data.items())
    return tuple(sorted((name, kind) for name, kind in found if kind is not None))[:_MOST_FIELDS]


def topic_of(entry: Event) -> str:
    """Return the topic of an event: its channel, or `messager:KIND` without one. Invalid bytes are escaped."""
    if entry.channel is None:
        return f"messager:{entry.kind}"
    return channels.encode(entry.channel).decode("utf-8", "backslashreplace")


def json_object(payload: bytes) -> dict[str, Any] | None:
    """Return the payload as an object; None if it is anything but an object that every JSON parser reads."""
    if payload.lstrip(b" \t\r\n")[:1] != b"{":
        return None
    try:
        data = json.loads(payload.decode(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and not is_deep(data) else None


def message(entry: Event, data: dict[str, Any] | None) -> bytes:
    """Return the message of an event; `data` is its `json_object`."""
    seconds, nanoseconds = divmod(entry.ts, 1_000_000_000)
    fields: dict[str, Any] = {
        "time": {"sec": seconds, "nsec": nanoseconds},
        "cursor": str(entry.cursor),
        "kind": entry.kind,
    }
    if entry.channel is not None:
        fields |= bytes_field("channel", channels.encode(entry.channel))
    fields |= _id("from", entry.from_id) | _id("to", entry.to_id)
    fields["text"] = entry.text
    fields |= bytes_field("payload", entry.payload)
    if data is not None:
        fields["data"] = data
    if entry.redacted:
        fields["redacted"] = True
    if entry.derived_ids:
        fields["derived"] = entry.derived_ids
    fields |= _given(
        ("msg_id", entry.msg_id),
        ("messager", entry.messager),
        ("arrival", entry.arrival),
        ("duration_ns", entry.duration_ns),
        ("receivers", entry.receivers),
        ("cause", None if entry.cause is None else f"{entry.cause[0]}:{entry.cause[1]}"),
        ("meta", None if entry.meta is None else without_seal(entry.meta)),
    )
    return dump_strict(fields).encode()


def _given(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields if value is not None}


def _id(side: str, value: Any) -> dict[str, str]:
    """Return the fields of a sender or a recipient; none for a missing one."""
    if value is None:
        return {}
    text = value if isinstance(value, str) else json.dumps(value)
    return {f"{side}_id": text, f"{side}_type": "number" if type(value) is int else _TYPES[type(value)]}


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
"""Types in JSON Schema of the values that `json.loads` returns."""


def _simple(value: Any) -> str | None:
    """Return the JSON type of a value that a plot or a table can show."""
    return _TYPES[type(value)] if type(value) in (str, int, float, bool) else None


def _finite(number: str) -> float:
    value = float(number)
    return value if isfinite(value) else _refuse(number)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
