"""Attributes of an event: everything about it but what is ordered, joined and filtered, as one JSON object.

`ATTRIBUTES` declares them, in the order of the last fields of `NewEvent` and `Event`. The text is made once, when the
event is appended, and hashed as its bytes; null if the event has none. It holds nothing that belongs to one store:
another recorder is named by its uuid, so gathering and unpacking copy the text as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from operator import index, itemgetter
from typing import Any, NamedTuple, get_args

from messager.record import Carrier

from .. import json_text, limits
from ..db.codes import SEQ_BITS
from ..errors import DamagedAttributes

_INT64 = 1 << 63
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # half of the time of `json.loads`
_UUID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.50} is not a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half a character (a lone surrogate), which no database holds") from None
    return encode_basestring(value)


def _number_to(most: int) -> Callable[[Any], str]:
    def dump(value: Any) -> str:
        if value.__class__ is not int:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise ValueError(f"{value!r:.50} is not an integer")
            value = index(value)
        if not 0 <= value <= most:
            raise ValueError(f"{value} is not between 0 and {most}")
        return str(value)

    return dump


def _seq(value: Any) -> int:
    if value.__class__ is not int or not 0 < value < 1 << SEQ_BITS:
        raise ValueError(f"its seq is {value!r:.50}, which no event has")
    return int(value)


def _elsewhere(value: Any) -> str:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"{value!r:.50} is not the uuid of a recorder and a seq")
    uuid, seq = value
    if not isinstance(uuid, str) or not _UUID.fullmatch(uuid):
        raise ValueError(f"{uuid!r:.50} is not the uuid of a recorder")
    return f"[{_text(uuid)},{_seq(seq)}]"


def _reference(value: Any) -> str:
    return _elsewhere(value) if isinstance(value, list | tuple) else str(_seq(value))


def _carrier(value: Any) -> str:
    if value not in get_args(Carrier):
        raise ValueError(f"{value!r:.50} is none of {', '.join(get_args(Carrier))}")
    return f'"{value}"'


def _object(value: Any) -> str:
    if not isinstance(value, Mapping):
        raise ValueError("it is not a JSON object")
    text = json_text.dump(value)
    if len(text) > limits.MOST_META:
        raise ValueError(f"it has {len(text):,} characters, at most {limits.MOST_META:,} are allowed")
    return text


class Attribute(NamedTuple):
    """One attribute."""

    name: str
    """Name of its field in `NewEvent` and `Event`, and in all files."""
    key: str
    """Its key in the stored text."""
    types: tuple[type, ...]
    """Classes of its value as JSON is read. A list is always the uuid of a recorder and a seq."""
    dump: Callable[[Any], str]
    """Returns a value as JSON text. Raises `ValueError` or `TypeError` for one that is none of this attribute."""
    column: str | None = "integer"
    """The type of its column in `event_view`, `text` or `integer`; None if that is written in `migrations/views.py`."""


ATTRIBUTES = (
    Attribute("msg_id", "i", (str,), _text, "text"),
    Attribute("cause", "c", (int, list), _reference, None),  # a seq of the same recorder, or [uuid, seq]
    Attribute("duration_ns", "d", (int,), _number_to(_INT64 - 1)),
    Attribute("receivers", "r", (int,), _number_to((1 << 31) - 1)),
    Attribute("arrival", "a", (int,), _number_to(_INT64 - 1)),
    Attribute("origin", "o", (list,), _elsewhere, None),
    Attribute("carrier", "t", (str,), _carrier, "text"),
    Attribute("meta", "m", (dict,), _object, None),
)
KEYS = {attribute.name: attribute.key for attribute in ATTRIBUTES}
"""The stored key of each attribute."""
_BY_NAME = {attribute.name: attribute for attribute in ATTRIBUTES}
_BY_KEY = {attribute.key: attribute for attribute in ATTRIBUTES}
_NAMES = {attribute.key: attribute.name for attribute in ATTRIBUTES}
_STORED = {attribute.key: (attribute.name, attribute.types) for attribute in ATTRIBUTES}
_PARTS = tuple((attribute.name, f'"{attribute.key}":', attribute.dump) for attribute in ATTRIBUTES)


def encoder_of(fields: tuple[str, ...]) -> Callable[[Any, Any], str | None]:
    """Return a function that encodes events given as tuples of `fields`, with their cause as it is stored."""
    values_of = itemgetter(*(fields.index(attribute.name) for attribute in ATTRIBUTES))
    nothing = (None,) * len(ATTRIBUTES)
    cause_at = tuple(KEYS).index("cause")

    def encode(entry: Any, cause: Any) -> str | None:
        values = values_of(entry)
        if values == nothing:
            return None
        if cause is not None:
            values = (*values[:cause_at], cause, *values[cause_at + 1 :])
        found = []
        for value, (name, prefix, dump) in zip(values, _PARTS, strict=True):
            if value is not None:
                try:
                    found.append(prefix + dump(value))
                except (ValueError, TypeError) as error:
                    raise ValueError(f"{name}: {error}") from None
        return f"{{{','.join(found)}}}"

    return encode


def encode(values: Mapping[str, Any]) -> str | None:
    """Return the text of attributes, given by name as `decode` returns them; None and missing ones are left out.

    Raises `ValueError` or `TypeError` for a value that an attribute cannot have.
    """
    found = [prefix + dump(value) for name, prefix, dump in _PARTS if (value := values.get(name)) is not None]
    return f"{{{','.join(found)}}}" if found else None


def decode(text: str | None) -> dict[str, Any]:
    """Return the attributes of an event by name, as they are stored. Raises `DamagedAttributes`."""
    if text is None:
        return {}
    found: dict[str, Any] = {}
    try:
        values, end = _scan(text, 0)
        if end != len(text):
            raise ValueError
        for key, value in values.items():
            name, types = _STORED[key]
            kind = value.__class__
            if kind not in types or (kind is int and not 0 <= value < _INT64):
                raise ValueError
            if kind is list:
                uuid, seq = value
                if uuid.__class__ is not str or seq.__class__ is not int:
                    raise ValueError
            found[name] = value
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, StopIteration):
        raise DamagedAttributes(text) from None
    return found


def meta_of(text: str | None) -> dict[str, Any]:
    """Return the meta of an event, empty if it has none, or what is stored is none."""
    if not isinstance(text, str) or '"m":' not in text:
        return {}
    found = json_text.load_object(text).get("m")
    return found if isinstance(found, dict) else {}


def check(name: str, value: Any) -> None:
    """Raise `ValueError` for a value that an attribute cannot have."""
    try:
        _BY_NAME[name].dump(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from None


def checked(text: str | None) -> dict[str, Any]:
    """Return attributes from a source that is not trusted, by name. Raises `ValueError`: what cannot be an event's."""
    if text is None:
        return {}
    try:
        pairs = json.loads(text, object_pairs_hook=lambda pairs: pairs)
        found: Any = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise ValueError("attributes are not JSON") from None
    if not isinstance(found, dict) or len(pairs) != len(found) or not found:
        raise ValueError("attributes are not an object, empty, or have a key twice")
    for key, value in found.items():
        if json_text.is_deep(value):
            raise ValueError(f"{_NAMES.get(key, key)} is nested deeper than {limits.MOST_DEPTH} levels")
        if key not in _BY_KEY:
            raise ValueError(f"unknown attribute {key!r:.50}; was it recorded by a newer messager?")
        check(_NAMES[key], value)
    if len(text) > limits.MOST_META + 100_000:
        raise ValueError("attributes are too long")
    return {_NAMES[key]: value for key, value in found.items()}
