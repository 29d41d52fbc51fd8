"""JSON as the store keeps it: readable where a database can hold it, escaped where not."""

from __future__ import annotations

import json
import re
from typing import Any

MOST_DEPTH = 100
"""How deep ids and meta may be nested where they come from a file."""


def is_deep(value: Any) -> bool:
    """Whether a value is nested deeper than `MOST_DEPTH` levels."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > MOST_DEPTH:
            return True
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return False


MOST_PARTS = 1_000_000
"""Values that a line of JSON may be made of: each takes many times its bytes in memory."""
_MARKS = (b"[", b"{", b",", b":")


def is_crowded(line: bytes) -> bool:
    """Whether a long line of JSON is made of more than `MOST_PARTS` values. What strings hold does not count."""
    if len(line) <= MOST_PARTS or sum(line.count(mark) for mark in _MARKS) <= MOST_PARTS:
        return False
    plain = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    parts = at = 0
    while parts <= MOST_PARTS:
        opening = plain.find(b'"', at)
        end = len(plain) if opening < 0 else opening
        parts += 1 + sum(plain.count(mark, at, end) for mark in _MARKS)
        at = plain.find(b'"', end + 1) + 1
        if not at:
            break
    return parts > MOST_PARTS


def dump(value: Any) -> str:
    """JSON text that any database can hold. What JSON has no word for becomes its `str`."""
    text = json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # a lone surrogate
            return json.dumps(value, default=str, separators=(",", ":"))
    return text


_PAIR = re.compile(rb"\\+u[dD][89abAB][0-9a-fA-F]{2}\\+u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
escapes_half = _SURROGATE.search
"""Whether bytes escape a character in two halves, or only one half of one."""


def is_no_text(value: bytes) -> bool:
    """Whether bytes are not UTF-8, or are JSON that escapes half a character: no database decodes these."""
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            return True
    return escapes_half(value) is not None and escapes_half(_PAIR.sub(b"", value)) is not None


def load_object(text: str | None) -> dict[str, Any]:
    """The object that `dump` wrote; an empty one for anything else."""
    try:
        data = json.loads(text) if text else {}
    except (ValueError, TypeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
