"""Lines of a recording: JSON objects that people review, so a payload is an object where that keeps its bytes."""

from __future__ import annotations

import json
from typing import Any

from messager import channels
from messager_store.db.codes import FROM_DERIVED, TO_DERIVED
from messager_store.formats.fields import bytes_field
from messager_store.formats.jsonl.event_text import attributes_of
from messager_store.log.event import NewEvent
from messager_store.recording.derived_ids import DerivedIds

_PAYLOADS = ("payload", "payload_base64")


def header_line(name: str) -> bytes:
    """Return the header of a recording that a test makes."""
    return dumped({"format": "messager/1", "name": name, "tags": [], "meta": {}, "recorders": []})


def event_line(event: NewEvent, recorder: int | None = None) -> bytes:
    """Return the line of an event. `recorder` is its ordinal, None in a recording of one."""
    data: dict[str, Any] = {"ts": event.ts, "kind": event.kind}
    if event.channel is not None:
        data |= bytes_field("channel", channels.encode(event.channel))
        data |= {"from_id": event.from_id, "to_id": event.to_id, **payload_field(event.payload)}
    bits = (("from_id", FROM_DERIVED), ("to_id", TO_DERIVED))
    optional = (
        ("recorder", recorder),
        ("derived", [name for name, bit in bits if event.flags & bit] or None),
    )
    return dumped(data | {key: value for key, value in optional if value is not None} | attributes_of(event))


def with_payload(line: bytes, kind: str | None, payload: bytes) -> bytes:
    """Return the line of an event with another kind (None: it stays) and payload, and with the id of that payload."""
    data = json.loads(line)
    as_text = isinstance(data.get("payload"), str)
    made: dict[str, Any] = {}
    for key, value in data.items():
        if key in _PAYLOADS:
            made |= bytes_field("payload", payload) if as_text else payload_field(payload)
        elif key == "kind":
            made[key] = kind or value
        elif key == "msg_id":
            _, msg_id = DerivedIds().from_message(payload, None, sender=False)
            made |= {} if msg_id is None else {key: msg_id}
        else:
            made[key] = value
    return dumped(made)


def payload_field(payload: bytes) -> dict[str, Any]:
    """Return a payload as a JSON value if that has these bytes on the wire again, else as text or base64."""
    try:
        value = json.loads(payload)
        if not isinstance(value, str) and json.dumps(value).encode() == payload:
            json.dumps(value, ensure_ascii=False).encode()  # not with half a character
            return {"payload": value}
    except (ValueError, RecursionError):
        pass
    return bytes_field("payload", payload)


def dumped(data: dict[str, Any]) -> bytes:
    """Return an object as a line without line feed."""
    try:
        return json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(data).encode()
