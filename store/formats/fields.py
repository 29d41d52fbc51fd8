"""Values in the lines of a file: bytes as text or base64, and checks of types and limits.

The checks are written by hand: pydantic takes the same time for the types alone (0.27 s for 50,000 lines), and base64,
lone surrogates, repeated keys, depth and labels would remain to be checked.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from .. import limits
from ..errors import StoreError
from ..experiments import validation
from ..json_text import is_deep

INT64 = 2**63
NO_CHANNEL = ("gap", "mark", "asked", "answered")
"""Kinds of event that need no channel."""


class InvalidEntry(Exception):
    """A line or a row that is invalid, or exceeds a limit of the file or the store; the text is the reason."""


def bytes_field(field: str, value: bytes) -> dict[str, str]:
    """Return the field for exact bytes: text, or `<field>_base64` if they are not UTF-8."""
    try:
        return {field: value.decode()}
    except UnicodeDecodeError:
        return {f"{field}_base64": base64.b64encode(value).decode()}


def bytes_of(data: dict[str, Any], field: str) -> bytes | None:
    """Return the exact bytes of a field, from its text or its base64."""
    plain, packed = data.get(field), data.get(f"{field}_base64")
    if packed is None:
        return None if plain is None else text(plain, field).encode()
    if plain is not None:
        raise InvalidEntry(f"both {field} and {field}_base64")
    try:
        return base64.b64decode(packed, validate=True)
    except (ValueError, TypeError, binascii.Error):
        raise InvalidEntry(f"{field}_base64 is not base64") from None


def integer(value: Any, what: str, low: int, high: int) -> int:
    """Return a value that must be an integer within bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidEntry(f"{what} is not an integer")
    if not low <= value <= high:
        raise InvalidEntry(f"{what} is not between {low} and {high}")
    return value


def integer_of(data: dict[str, Any], field: str, low: int, high: int) -> int | None:
    """Return an optional field that must be an integer within bounds."""
    value = data.get(field)
    return None if value is None else integer(value, field, low, high)


def text(value: Any, what: str) -> str:
    """Return a value that must be a string without lone surrogates, which no database accepts."""
    encoded(value, what)
    return value  # type: ignore[no-any-return]


def encoded(value: Any, what: str) -> bytes:
    """Return the UTF-8 of a value that must be a string without lone surrogates."""
    if not isinstance(value, str):
        raise InvalidEntry(f"{what} is not a string")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidEntry(f"{what} holds half a character (a lone surrogate)") from None


def text_of(data: dict[str, Any], field: str) -> str | None:
    """Return an optional field that must be a string."""
    value = data.get(field)
    return None if value is None else text(value, field)


def json_text(value: str, what: str, kind: type) -> Any:
    """Return the value of a text that must be JSON of this type."""
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        raise InvalidEntry(f"{what} is not JSON") from None
    if not isinstance(data, kind):
        raise InvalidEntry(f"{what} is not a JSON {'object' if kind is dict else 'list'}")
    return data


def meta_of(text: str) -> dict[str, Any]:
    """Return the meta of a text that must be a JSON object within the limits of meta."""
    if len(text) > limits.MOST_META:
        raise InvalidEntry(f"meta has {len(text):,} characters, at most {limits.MOST_META:,} are allowed")
    found: dict[str, Any] = json_text(text, "meta", dict)
    check_depth(found, "meta")
    return found


def check_meta(meta: dict[str, Any]) -> None:
    """Raise `InvalidEntry` for meta beyond the limits."""
    try:
        validation.meta_text(meta)
    except StoreError as error:
        raise InvalidEntry(str(error)) from None


def check_depth(value: Any, what: str) -> None:
    """Raise `InvalidEntry` for a value nested so deeply that reading it again could fail."""
    if is_deep(value):
        raise InvalidEntry(f"{what} is nested deeper than {limits.MOST_DEPTH} levels")
