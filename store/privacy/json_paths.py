"""Redaction by JSON path: blank parts of payloads before they are recorded or when they are exported.

A path consists of keys joined by dots, from the payload's root: `content`, `a.b`, `items.*.name`. `*` matches
any key or index, a number matches an index or a key, `\\.` is a dot inside a key. A path continues inside
a string that contains JSON, as in AgentSociety's nested messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from ..db.schema import FROM_DERIVED
from ..errors import StoreError
from ..log.event import Event, NewEvent
from ..recording.derived_ids import DEFAULT_SENDER, DerivedIds

BLANK = "[redacted]"
_DOT = re.compile(r"(?<!\\)\.")


class PathRedactor:
    """Replaces the values at the paths of a payload by "[redacted]".

    A payload without these paths is returned unchanged, byte for byte; any other is encoded again with
    `json.dumps`. A payload that is not JSON is replaced as a whole. Raises `StoreError` for no path, an empty path
    or a path with an empty key.
    """

    def __init__(self, *paths: str) -> None:
        if not paths:
            raise StoreError("there is no path to redact: give at least one path, such as content or items.*.name")
        self._paths = [self._steps(path) for path in paths]
        self.changed = 0
        """Payloads changed so far."""
        self.unreadable = 0
        """Changed payloads that were not JSON and were replaced as a whole."""

    @staticmethod
    def _steps(path: str) -> list[str]:
        steps = [step.replace("\\.", ".") for step in _DOT.split(path)]
        if not all(steps):
            raise StoreError(f"{path!r} is not a path: give keys joined by dots, such as content or items.*.name")
        return steps

    def __call__(self, payload: bytes) -> bytes:
        """Return the payload with the values at the paths replaced."""
        if not payload:
            return payload
        try:
            data, duplicate = loads(payload)
            cleaned = self.cleaned(data)
            if cleaned is data and not duplicate:
                return payload
            self.changed += 1
            return json.dumps(cleaned).encode()
        except (ValueError, RecursionError):
            self.changed += 1
            self.unreadable += 1
            return json.dumps(BLANK).encode()

    def cleaned(self, data: Any) -> Any:
        """Return a decoded JSON value with the values at the paths replaced; the same object if there are none."""
        for steps in self._paths:
            data = _without(data, steps, 0)
        return data


def loads(text: str | bytes) -> tuple[Any, bool]:
    """Return the decoded JSON and whether an object in it has a duplicate key.

    Decoding drops the first value of a duplicate key, so such a text must be encoded again even if unchanged.
    """
    duplicate = False

    def as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal duplicate
        found = dict(pairs)
        duplicate = duplicate or len(found) != len(pairs)
        return found

    return json.loads(text, object_pairs_hook=as_dict), duplicate


def _without(data: Any, steps: list[str], at: int) -> Any:
    """Return a copy of `data` with the value at the end of the steps blanked; `data` itself if there is none."""
    if at == len(steps):
        return BLANK
    step = steps[at]
    if isinstance(data, dict):
        keys = list(data) if step == "*" else [step] if step in data else []
        new = {key: _without(data[key], steps, at + 1) for key in keys}
        return {**data, **new} if any(new[key] is not data[key] for key in keys) else data
    if isinstance(data, list):
        places = range(len(data)) if step == "*" else [int(step)] if step.isdecimal() and len(step) < 10 else []
        items = list(data)
        for place in places:
            if place < len(items):
                items[place] = _without(items[place], steps, at + 1)
        return items if any(new is not old for new, old in zip(items, data, strict=True)) else data
    if isinstance(data, str) and data.lstrip()[:1] in ("{", "[", '"'):
        try:
            inner, duplicate = loads(data)
        except (ValueError, RecursionError):
            return data
        cleaned = _without(inner, steps, at)
        return data if cleaned is inner and not duplicate else json.dumps(cleaned)
    return data


def redactor(*paths: str, sender: Sequence[str] = DEFAULT_SENDER) -> Callable[[NewEvent], NewEvent]:
    """Return a function for `Recorder(redact=...)` that redacts paths in payloads and in the fields of marks.

    A from_id that was derived from a redacted value (by the rules `sender`) and a msg_id read from one are deleted.
    The event is not flagged as redacted: the log never contained the values. Raises `StoreError`.
    """
    clean = PathRedactor(*paths)
    derived = DerivedIds(sender)

    def redacted(entry: NewEvent) -> NewEvent:
        changes = changes_of(clean, derived, entry)
        return entry._replace(**changes) if changes else entry

    return redacted


def changes_of(clean: PathRedactor, derived: DerivedIds, entry: NewEvent | Event) -> dict[str, Any]:
    """Return the fields of an event that change if the paths are redacted."""
    changes: dict[str, Any] = {}
    payload = clean(entry.payload)
    if payload is not entry.payload:
        changes["payload"] = payload
        sender, msg_id = derived.from_message(payload, None, sender=True)
        was_sender, was_msg_id = derived.from_message(entry.payload, None, sender=True)
        if entry.flags & FROM_DERIVED and sender != entry.from_id and was_sender == entry.from_id:
            changes |= {"from_id": None, "flags": entry.flags & ~FROM_DERIVED}
        if entry.msg_id is not None and msg_id != entry.msg_id == was_msg_id:
            changes["msg_id"] = None
    fields = (entry.meta or {}).get("fields") if entry.kind == "mark" else None
    if fields:
        kept = clean.cleaned(fields)
        if kept is not fields:
            changes["meta"] = {**(entry.meta or {}), "fields": kept}
    return changes
