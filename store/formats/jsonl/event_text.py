"""Events as JSON text. Most of a line is the same for many events: their names are encoded once."""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring, encode_basestring_ascii
from operator import attrgetter
from typing import Any

from messager import channels

from ...json_text import dump_strict
from ...log.attributes import KEYS
from ...log.event import Event, NewEvent
from ..fields import bytes_field

_MOST_NAMES = 50_000
_SIMPLE = (int, str, type(None))


def event_to_dict(entry: Event) -> dict[str, Any]:
    """Return the fields of an event that export and `events --json` share."""
    data: dict[str, Any] = {"ts": entry.ts, "kind": entry.kind, **_names(entry.channel, entry.from_id, entry.to_id)}
    data |= bytes_field("payload", entry.payload)
    if entry.redacted:
        data["redacted"] = True
    return data


_NAMED = ("msg_id", "messager", *(name for name in KEYS if name not in ("msg_id", "cause")))
_values = attrgetter(*_NAMED)
_NONE = (None,) * len(_NAMED)


def attributes_of(entry: Event | NewEvent) -> dict[str, Any]:
    """Return the Messager and the attributes of an event that lines have as they are: all but its cause."""
    values = _values(entry)
    if values == _NONE:
        return {}
    return {name: value for name, value in zip(_NAMED, values, strict=True) if value is not None}


def _names(channel: str | None, from_id: Any, to_id: Any) -> dict[str, Any]:
    named = {"channel": None} if channel is None else bytes_field("channel", channels.encode(channel))
    return {**named, "from_id": from_id, "to_id": to_id}


class EventText:
    """Encodes events; the text is that of `json.dumps` of the same fields. With `ascii`, other characters are escaped.

    Without it, a lone surrogate in an id or in meta remains in the text, which then has no UTF-8. NaN and Infinity
    remain too, so that an import gives the same events, unless the text is `strict`.
    """

    def __init__(self, *, ascii: bool, strict: bool = False) -> None:
        exact = json.JSONEncoder(ensure_ascii=ascii, check_circular=False).encode
        self.dumps: Callable[[Any], str] = dump_strict if strict else exact
        """As `json.dumps`, which creates an encoder for every call. Values from a store have no cycles."""
        self._quoted: Callable[[str], str] = encode_basestring_ascii if ascii else encode_basestring
        self._names: dict[Any, str] = {}

    def fields(self, entry: Event) -> str:
        """Return the fields of `event_to_dict` without braces."""
        from_id, to_id = entry.from_id, entry.to_id
        if from_id.__class__ in _SIMPLE and to_id.__class__ in _SIMPLE:
            key = entry.channel, from_id, from_id.__class__, to_id, to_id.__class__  # 1 == True, for example
            names = self._names.get(key)
            if names is None:
                if len(self._names) >= _MOST_NAMES:
                    self._names.clear()
                names = self._names[key] = self.dumps(_names(entry.channel, from_id, to_id))[1:-1]
        else:
            names = self.dumps(_names(entry.channel, from_id, to_id))[1:-1]
        try:
            payload = f'"payload": {self._quoted(entry.payload.decode())}'
        except UnicodeDecodeError:
            payload = self.dumps(bytes_field("payload", entry.payload))[1:-1]
        redacted = ', "redacted": true' if entry.redacted else ""
        return f'"ts": {entry.ts}, "kind": "{entry.kind}", {names}, {payload}{redacted}'
