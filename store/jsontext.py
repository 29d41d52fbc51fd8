"""JSON as the store keeps it: readable where a database can hold it, escaped where not."""

from __future__ import annotations

import json
import re
from typing import Any


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


def is_no_text(value: bytes) -> bool:
    """Whether bytes are not UTF-8, or are JSON that escapes half a character: no database decodes these."""
    if not value.isascii():
        try:
            value.decode()
        except UnicodeDecodeError:
            return True
    if b"\\ud" not in value and b"\\uD" not in value:
        return False
    return _SURROGATE.search(_PAIR.sub(b"", value)) is not None


def load_object(text: str | None) -> dict[str, Any]:
    """The object that `dump` wrote; an empty one for anything else."""
    try:
        data = json.loads(text) if text else {}
    except (ValueError, TypeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
