"""Parts of payloads taken out by path, before anything is written or when something is shared.

A path is keys joined by dots, from the payload's root: `content`, `a.b`, `items.*.name`. `*` is
any key or index, a number an index or a key, `\\.` a dot that belongs to a key. It walks on into
a string that holds JSON, as AgentSociety nests it.
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
    """Puts "[redacted]" in place of what stands at the paths of a payload.

    A payload without any of them stays as it is, byte for byte; another is written anew, as
    `json.dumps` does. One that is no JSON cannot be looked into: it is replaced whole.
    Raises `StoreError` for a path that is empty or has an empty part.
    """

    def __init__(self, *paths: str) -> None:
        if not paths:
            raise StoreError("say at least one path to redact, such as content or items.*.name")
        self._paths = [self._steps(path) for path in paths]
        self.changed = 0
        """Payloads that were changed so far."""
        self.unreadable = 0
        """Of these, those that were no JSON and were replaced whole."""

    @staticmethod
    def _steps(path: str) -> list[str]:
        steps = [step.replace("\\.", ".") for step in _DOT.split(path)]
        if not all(steps):
            raise StoreError(f"{path!r} is no path: keys joined by dots, such as content or items.*.name")
        return steps

    def __call__(self, payload: bytes) -> bytes:
        """The payload without what stands at the paths."""
        if not payload:
            return payload
        try:
            data, twice = loads(payload)
            cleaned = self.cleaned(data)
            if cleaned is data and not twice:
                return payload
            self.changed += 1
            return json.dumps(cleaned).encode()
        except (ValueError, RecursionError):
            self.changed += 1
            self.unreadable += 1
            return json.dumps(BLANK).encode()

    def cleaned(self, data: Any) -> Any:
        """The same for a value that JSON can hold; the value itself where nothing stands at the paths."""
        for steps in self._paths:
            data = _without(data, steps, 0)
        return data


def loads(text: str | bytes) -> tuple[Any, bool]:
    """The value of JSON, and whether a key of it is there twice.

    Such a key hides a value from whoever looks at the value alone: written anew, it is gone.
    """
    twice = False

    def known(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        found = dict(pairs)
        twice = twice or len(found) != len(pairs)
        return found

    return json.loads(text, object_pairs_hook=known), twice


def _without(data: Any, steps: list[str], at: int) -> Any:
    """A copy of `data` with what the steps lead to blanked; `data` itself where they lead nowhere."""
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
            inner, twice = loads(data)
        except (ValueError, RecursionError):
            return data
        cleaned = _without(inner, steps, at)
        return data if cleaned is inner and not twice else json.dumps(cleaned)
    return data


def redact_paths(*paths: str) -> PathRedactor:
    """A function that takes a payload and gives it without what stands at the paths. Raises `StoreError`."""
    return PathRedactor(*paths)


def redactor(*paths: str, sender: Sequence[str] = DEFAULT_SENDER) -> Callable[[NewEvent], NewEvent]:
    """A function for `Recorder(redact=...)`: an event without what stands at the paths.

    Paths look into payloads and into the fields of marks. A from_id that was worked out from what is
    taken out (by the rules `sender`), and a msg_id read from it, go too. The event is not flagged: the log never
    held what was taken out, so there is nothing for `verify` to miss. Raises `StoreError`.
    """
    clean = PathRedactor(*paths)
    identifier = DerivedIds(sender)

    def without(entry: NewEvent) -> NewEvent:
        changes = changes_of(clean, identifier, entry)
        return entry._replace(**changes) if changes else entry

    return without


def changes_of(clean: PathRedactor, identifier: DerivedIds, entry: NewEvent | Event) -> dict[str, Any]:
    """What of an event changes when the paths are taken out of it."""
    changes: dict[str, Any] = {}
    payload = clean(entry.payload)
    if payload is not entry.payload:
        changes["payload"] = payload
        sender, msg_id = identifier.said(payload, None, sender=True)
        was_sender, was_msg_id = identifier.said(entry.payload, None, sender=True)
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
