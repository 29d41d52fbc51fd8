"""First difference of two texts and of two JSON values, and the part of a long text that is shown."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 400
"""Maximum characters of a text that are shown, unless in full."""
LEAD = 60
"""Characters shown before the first difference of a shortened text."""


def shortened(text: str, start: int = 0, *, most: int = LONGEST, full: bool = False) -> str:
    """Return `most` characters of a text from `start` on, with an ellipsis at each cut; with `full`, the text."""
    if full:
        return text
    end = start + most
    return ("…" if start else "") + text[start:end] + ("…" if len(text) > end else "")


def common_prefix(a: str, b: str) -> int:
    """Return the number of characters that both texts begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def differing_path(a: bytes, b: bytes) -> str | None:
    """Return the path of the first value that differs, as `$.items[2].name`; None unless both are JSON objects."""
    try:
        one, other = json.loads(a), json.loads(b)
        found = _path(one, other) if isinstance(one, dict) and isinstance(other, dict) else None
    except (ValueError, RecursionError):
        return None
    return None if found is None else f"${found}"


def _path(a: Any, b: Any) -> str | None:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if key not in a or key not in b:
                return _step(key)
            if (found := _path(a[key], b[key])) is not None:
                return _step(key) + found
        return None
    if isinstance(a, list) and isinstance(b, list):
        for at, (one, other) in enumerate(zip(a, b, strict=False)):
            if (found := _path(one, other)) is not None:
                return f"[{at}]{found}"
        return None if len(a) == len(b) else f"[{min(len(a), len(b))}]"
    return None if type(a) is type(b) and repr(a) == repr(b) else ""


def _step(key: str) -> str:
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key, ensure_ascii=False)}]"
