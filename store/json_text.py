"""JSON as the store keeps it, and checks of JSON from files against `limits`."""

from __future__ import annotations

import json
import re
from typing import Any

from . import limits


def is_deep(value: Any) -> bool:
    """Return whether a value is nested deeper than `limits.MOST_DEPTH` levels."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > limits.MOST_DEPTH:
            return True
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return False


_MARKS = (b"[", b"{", b",", b":")


def is_crowded(line: bytes) -> bool:
    """Return whether a line of JSON has more than `limits.MOST_PARTS` values. Punctuation in strings does not count."""
    most = limits.MOST_PARTS
    if len(line) <= most or sum(line.count(mark) for mark in _MARKS) <= most:
        return False
    plain = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    parts = at = 0
    while parts <= most:
        opening = plain.find(b'"', at)
        end = len(plain) if opening < 0 else opening
        parts += 1 + sum(plain.count(mark, at, end) for mark in _MARKS)
        at = plain.find(b'"', end + 1) + 1
        if not at:
            break
    return parts > most


_FOUR_BYTES = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")
_TWO_BYTES = re.compile(rb"[\xc4-\xef]|\\u(?!00)")
_CONTINUATION = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that begin no character."""


def too_long(line: bytes) -> str | None:
    """Return the reason why a line of JSON is too long; None if it has at most `limits.MOST_LINE` bytes, also as text.

    In memory, all characters of a string take the bytes of its widest one: 1, 2 from U+0100 on, 4 from U+10000 on.
    """
    most = limits.MOST_LINE
    if len(line) > most:
        return f"longer than {most:,} bytes"
    width, where = 4, "U+FFFF"
    if len(line) <= most // width:
        return None
    if not _FOUR_BYTES.search(line):
        width, where = (2, "U+00FF") if _TWO_BYTES.search(line) else (1, "")
    if len(line.translate(None, _CONTINUATION)) <= most // width:
        return None
    return f"longer than {most // width:,} characters, one of them beyond {where}"


def dump(value: Any) -> str:
    """Return JSON text that any database can hold. A value that JSON cannot represent becomes its `str`."""
    text = json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # a lone surrogate
            return json.dumps(value, default=str, separators=(",", ":"))
    return text


_STRICT = json.JSONEncoder(allow_nan=False)


def dump_strict(value: Any, indent: int | None = None) -> str:
    """Return JSON text that any program can read: NaN and Infinity, which are not JSON, are written as strings."""
    try:
        return _STRICT.encode(value) if indent is None else json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(value), parse_constant=str), indent=indent)


class Number(float):
    """A number that `float` or `int` would write in another way, such as 1e400, 1.50 or -0; its `repr` is the text."""

    __slots__ = ("_text",)
    _text: str

    def __new__(cls, text: str) -> Number:
        """Return the number that a text of JSON writes."""
        number = super().__new__(cls, text)
        number._text = text
        return number

    def __repr__(self) -> str:
        return self._text


class Doubled(dict[str, Any]):
    """An object that has a key more than once. The last value counts."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs
        """All keys with their values, as they are written."""


def read(text: str | bytes) -> Any:
    """Return a decoded value that `written` writes as it was, except for white space and escapes.

    Raises `ValueError` and `RecursionError`, as `json.loads`.
    """
    return json.loads(text, parse_float=Number, parse_int=int_of, object_pairs_hook=_object)


def written(value: Any, *, ascii: bool = False) -> str:
    """Return the JSON text of a value that `read` returned. Raises `RecursionError`."""
    if isinstance(value, Number):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(written(inner, ascii=ascii) for inner in value)}]"
    if isinstance(value, dict):
        pairs = value.pairs if isinstance(value, Doubled) else value.items()
        texts = (f"{json.dumps(key, ensure_ascii=ascii)}: {written(inner, ascii=ascii)}" for key, inner in pairs)
        return f"{{{', '.join(texts)}}}"
    return json.dumps(value, ensure_ascii=ascii)


def int_of(text: str) -> int | Number:
    """Return the integer that a text of JSON writes; -0, which `int` would write as 0, as a `Number`."""
    return Number(text) if text == "-0" else int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Doubled(pairs)


_PAIR = re.compile(rb"\\+u[dD][89abAB][0-9a-fA-F]{2}\\+u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
escapes_half = _SURROGATE.search
"""Find an escaped surrogate, one of a pair or alone."""


def is_no_text(value: bytes) -> bool:
    """Return whether bytes are not UTF-8, or JSON with a lone escaped surrogate: no database decodes these."""
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            return True
    return escapes_half(value) is not None and escapes_half(_PAIR.sub(b"", value)) is not None


def load_object(text: str | None) -> dict[str, Any]:
    """Return the object that `dump` wrote, or an empty one for anything else."""
    try:
        data = json.loads(text) if text else {}
    except (ValueError, TypeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
