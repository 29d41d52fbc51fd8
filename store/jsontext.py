"""JSON as the store keeps it: readable where a database can hold it, escaped where not."""

from __future__ import annotations

import json
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


def load_object(text: str | None) -> dict[str, Any]:
    """The object that `dump` wrote; an empty one for anything else."""
    data = json.loads(text) if text else {}
    return data if isinstance(data, dict) else {}
