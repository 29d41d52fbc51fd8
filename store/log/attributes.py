"""Attributes of an event: everything about it but what is ordered, joined and filtered, as one JSON object.

`ATTRIBUTES` declares them. To add one, add a line there and a field to `NewEvent` and `Event`: the row, the chain,
packs and spools hold it from then on, without a migration. The text is made once, when the event is appended, and
hashed as its bytes; null if the event has none. It holds nothing that belongs to one store: another recorder is named
by its uuid, so gathering and unpacking copy the text as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any, NamedTuple

from .. import json_text, limits
from ..db.codes import SEQ_BITS
from ..errors import DamagedAttributes

_INT64 = 1 << 63


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.50} is not a text")
    if not value.isascii():
        value.encode()  # no database holds a lone surrogate
    return encode_basestring(value)


def _number(value: Any) -> str:
    if value.__class__ is not int:
        value = int(value)
    if not -_INT64 <= value < _INT64:
        raise ValueError("a number does not fit into 64 bits")
    return str(value)


def _seq(value: Any) -> int:
    if value.__class__ is not int or not 0 < value < 1 << SEQ_BITS:
        raise ValueError(f"its seq is {value!r:.50}, which no event has")
    return int(value)


def _elsewhere(value: Any) -> str:
    uuid, seq = value
    return f"[{_text(uuid)},{_seq(seq)}]"


def _reference(value: Any) -> str:
    return _elsewhere(value) if isinstance(value, list | tuple) else str(_seq(value))


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
    dump: Callable[[Any], str]
    """Returns a value as JSON text. Raises `ValueError` or `TypeError` for one that is none of this attribute."""


ATTRIBUTES = (
    Attribute("msg_id", "i", _text),
    Attribute("duration_ns", "d", _number),
    Attribute("receivers", "r", _number),
    Attribute("cause", "c", _reference),  # a seq of the same recorder, or [uuid, seq]
    Attribute("arrival", "a", _number),
    Attribute("origin", "o", _elsewhere),
    Attribute("meta", "m", _object),
)
KEYS = {attribute.name: attribute.key for attribute in ATTRIBUTES}
"""The stored key of each attribute."""
_BY_KEY = {attribute.key: attribute for attribute in ATTRIBUTES}
_NAMES = {attribute.key: attribute.name for attribute in ATTRIBUTES}
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
    try:
        return {_NAMES[key]: value for key, value in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise DamagedAttributes(text) from None


def meta_of(text: str | None) -> dict[str, Any]:
    """Return the meta of an event, empty if it has none, or what is stored is none."""
    if text is None or '"m":' not in text:
        return {}
    found = json_text.load_object(text).get("m")
    return found if isinstance(found, dict) else {}


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
        try:
            _BY_KEY[key].dump(value)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{_NAMES[key]}: {error}") from None
    if len(text) > limits.MOST_META + 100_000:
        raise ValueError("attributes are too long")
    return {_NAMES[key]: value for key, value in found.items()}
