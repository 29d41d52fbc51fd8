"""The columns of an experiment as a table of pyarrow. docs/analysis.md describes them."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from typing import Any

from messager import channels
from messager.drivers import requirement

from ..db.codes import KINDS
from ..errors import StoreError

ID_TYPES = ("string", "number", "boolean", "array", "object", "json")
"""Values of `from_type` and `to_type`. An id of the type `json` is a string with a lone surrogate, as JSON."""


def pyarrow() -> Any:
    """Return the module pyarrow with its parts. Raises `StoreError` if it is not installed."""
    try:
        for part in ("compute", "csv", "ipc", "parquet"):
            import_module(f"pyarrow.{part}")
        return import_module("pyarrow")
    except ImportError:
        raise StoreError(
            f"tables need pyarrow, which is not installed: `pip install '{requirement('pyarrow')}'`"
        ) from None


@cache
def schema() -> Any:
    """Return the schema of every table of events."""
    pa = pyarrow()
    name = pa.dictionary(pa.int32(), pa.string())
    few = pa.dictionary(pa.int8(), pa.string())
    time = pa.timestamp("us", "UTC")
    return pa.schema(
        [
            ("ts", pa.int64()),
            ("time", time),
            ("recorder", pa.int32()),
            ("seq", pa.int64()),
            ("kind", few),
            ("channel", name),
            ("from_id", pa.string()),
            ("from_type", few),
            ("to_id", pa.string()),
            ("to_type", few),
            ("derived", pa.int8()),
            ("msg_id", pa.string()),
            ("text", pa.string()),
            ("payload", pa.binary()),
            ("redacted", pa.bool_()),
            ("received_at", time),
            ("copies", pa.int64()),
            ("mark", name),
            ("messager", name),
            ("heard", pa.int64()),
            ("arrival", pa.int64()),
            ("cause", pa.string()),
            ("receivers", pa.int32()),
            ("duration_ns", pa.int64()),
            ("meta", pa.string()),
            ("origin", pa.string()),
        ]
    )


@cache
def kinds() -> Any:
    """Return the dictionary of the column `kind`."""
    return pyarrow().array(KINDS)


@cache
def id_types() -> Any:
    """Return the dictionary of the columns `from_type` and `to_type`."""
    return pyarrow().array(ID_TYPES)


def id_columns(agent: Any) -> tuple[str, int]:
    """Return an id as text, and the position of its type in `ID_TYPES`. A text is itself, other ids are JSON."""
    if isinstance(agent, str):
        return (agent, 0) if is_utf_8(agent) else (json.dumps(agent), 5)
    kind = 2 if isinstance(agent, bool) else 3 if isinstance(agent, list) else 4 if isinstance(agent, dict) else 1
    text = json.dumps(agent, ensure_ascii=False)
    return (text if is_utf_8(text) else json.dumps(agent)), kind


def name_text(name: str) -> str:
    """Return the name of a channel, and `hex:` with its bytes if these are not UTF-8, as in the views."""
    return name if is_utf_8(name) else f"hex:{channels.encode(name).hex().upper()}"


def is_utf_8(text: str) -> bool:
    """Return whether a text has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
