"""The values of a line: bytes as text or as base64, and the checks of what a file says."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from ..json_text import MOST_DEPTH, is_deep

INT64 = 2**63


class Unfit(Exception):
    """A line, or a row, that a file cannot hold or that this store cannot take; says why."""


def bytes_field(field: str, value: bytes) -> dict[str, str]:
    """Exact bytes as a line has them: text, or `<field>_base64` where they are not UTF-8."""
    try:
        return {field: value.decode()}
    except UnicodeDecodeError:
        return {f"{field}_base64": base64.b64encode(value).decode()}


def bytes_of(data: dict[str, Any], field: str) -> bytes | None:
    """A field's exact bytes: of its text, or of its base64."""
    plain, packed = data.get(field), data.get(f"{field}_base64")
    if packed is None:
        return None if plain is None else text(plain, field).encode()
    if plain is not None:
        raise Unfit(f"both {field} and {field}_base64")
    try:
        return base64.b64decode(packed, validate=True)
    except (ValueError, TypeError, binascii.Error):
        raise Unfit(f"{field}_base64 is not base64") from None


def integer(value: Any, what: str, low: int, high: int) -> int:
    """A value that must be an integer within bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unfit(f"{what} is not an integer")
    if not low <= value <= high:
        raise Unfit(f"{what} is not between {low} and {high}")
    return value


def integer_of(data: dict[str, Any], field: str, low: int, high: int) -> int | None:
    """A field that must be an integer within bounds, where it is there."""
    value = data.get(field)
    return None if value is None else integer(value, field, low, high)


def text(value: Any, what: str) -> str:
    """A value that must be text that a database can hold."""
    if not isinstance(value, str):
        raise Unfit(f"{what} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit(f"{what} holds half a character (a lone surrogate)") from None
    return value


def text_of(data: dict[str, Any], field: str) -> str | None:
    """A field that must be text, where it is there."""
    value = data.get(field)
    return None if value is None else text(value, field)


def json_text(value: str, what: str, kind: type) -> Any:
    """The value of a text that must be JSON of this type."""
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        raise Unfit(f"{what} is not JSON") from None
    if not isinstance(data, kind):
        raise Unfit(f"{what} is not a JSON {'object' if kind is dict else 'list'}")
    return data


def check_depth(value: Any, what: str) -> None:
    """Raise `Unfit` for a value that is nested so deep that reading it again could fail."""
    if is_deep(value):
        raise Unfit(f"{what} is nested deeper than {MOST_DEPTH} levels")
