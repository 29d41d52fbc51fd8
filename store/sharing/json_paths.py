"""Redaction by JSON path: blank parts of payloads before they are recorded or when they are exported.

The paths are those of `json_path`. The paths `$` and `**` blank the whole payload.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ..db.codes import FROM_DERIVED
from ..errors import StoreError
from ..json_path import Steps, Wildcard, may_hold_json, parse
from ..json_text import Number, int_of, written
from ..log.event import Event, NewEvent
from ..privacy.blanking import BLANK
from ..recording.derived_ids import DEFAULT_SENDER, DerivedIds

_QUOTING = frozenset(("reason", "error"))
"""Fields in the meta of a message that an interceptor may have written, and quote the message."""


class PathRedactor:
    """Replaces the values at the paths of a payload by "[redacted]".

    A payload without these paths is returned unchanged, byte for byte; any other is encoded again, with
    numbers as they are. A payload that is not JSON is replaced as a whole. Raises `StoreError` for no path or a wrong
    one.
    """

    def __init__(self, *paths: str) -> None:
        if not paths:
            raise StoreError("there is no path to redact: give at least one path, such as content or items.*.name")
        self._paths = [parse(path) for path in paths]
        self.changed = 0
        """Payloads changed so far."""
        self.unreadable = 0
        """Changed payloads that were not JSON and were replaced as a whole."""

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
            return written(cleaned, ascii=True).encode()
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

    Decoding drops the first value of a duplicate key, so such a text must be encoded again even if unchanged: by
    `written`, so that numbers stay as they are.
    """
    duplicate = False

    def as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal duplicate
        found = dict(pairs)
        duplicate = duplicate or len(found) != len(pairs)
        return found

    return json.loads(text, parse_float=Number, parse_int=int_of, object_pairs_hook=as_dict), duplicate


def _without(data: Any, steps: Steps, at: int) -> Any:
    """Return a copy of `data` with the value at the end of the steps blanked; `data` itself if there is none."""
    if at == len(steps):
        return BLANK
    if isinstance(data, str):
        return _without_inside(data, steps, at)
    step, below = steps[at], at + 1
    if step is Wildcard.ANY_DEPTH:
        data = _without(data, steps, at + 1)  # `**` matches nothing
        step, below = Wildcard.ANY, at
    if isinstance(data, dict):
        keys = list(data) if isinstance(step, Wildcard) else [key for key in step if key in data]
        new = {key: _without(data[key], steps, below) for key in keys}
        return {**data, **new} if any(new[key] is not data[key] for key in keys) else data
    if isinstance(data, list):
        places = range(len(data)) if isinstance(step, Wildcard) else [key for key in step if isinstance(key, int)]
        items = list(data)
        for place in places:
            if place < len(items):
                items[place] = _without(items[place], steps, below)
        return items if any(new is not old for new, old in zip(items, data, strict=True)) else data
    return data


def _without_inside(text: str, steps: Steps, at: int) -> str:
    """Return a text with the JSON in it redacted; the text itself if it holds none, or nothing at the steps."""
    if not may_hold_json(text):
        return text
    try:
        inner, duplicate = loads(text)
    except (ValueError, RecursionError):
        return text
    cleaned = _without(inner, steps, at)
    return text if cleaned is inner and not duplicate else written(cleaned, ascii=True)


def redactor(*paths: str, sender: Sequence[str] = DEFAULT_SENDER) -> Callable[[NewEvent], NewEvent]:
    """Return a function for `Recorder(redact=...)` that redacts paths in payloads and in the fields of marks.

    A from_id that was derived from a redacted value (by the rules `sender`) and a msg_id read from one are deleted, and
    the reason of an interceptor, or the error, is replaced.
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
        if quoting := _QUOTING.intersection(entry.meta or ()):
            changes["meta"] = {**(entry.meta or {}), **dict.fromkeys(quoting, BLANK)}
    fields = (entry.meta or {}).get("fields") if entry.kind == "mark" else None
    if fields:
        kept = clean.cleaned(fields)
        if kept is not fields:
            changes["meta"] = {**(entry.meta or {}), "fields": kept}
    return changes
