"""The rows of a pack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, Column, Integer, LargeBinary, SmallInteger, Table

from ...db.schema import batch, experiment, recorder, redaction
from ..fields import InvalidEntry, integer, text

FORMAT = "messager-pack/1"
MOST_RECORDERS = 20_000
MOST_REDACTIONS = 5_000


def _portable(table: Table, *local: str) -> dict[str, Column[Any]]:
    """Return the columns that mean the same in every store."""
    return {column.name: column for column in table.c if column.name not in local}


EXPERIMENT = _portable(experiment, "id")
RECORDER = _portable(recorder, "id", "experiment_id", "spool")
BATCH = _portable(batch, "recorder_id")
REDACTION = _portable(redaction, "id", "experiment_id")


def row_to_json(columns: Mapping[str, Column[Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as JSON. Raise `InvalidEntry` for one that could not be read again."""
    data = {key: value.hex() if isinstance(value := row[key], bytes) else value for key in columns}
    row_from_json(columns, data)
    return data


def row_from_json(columns: Mapping[str, Column[Any]], data: Any) -> dict[str, Any]:
    """Return a row with values of the types of its columns."""
    if not isinstance(data, dict):
        raise InvalidEntry("not a JSON object")
    unknown = data.keys() - columns.keys()
    if unknown:
        raise InvalidEntry(f"unknown field {sorted(unknown)[0]!r}; was it packed by a newer messager?")
    return {key: _value(column, data.get(key)) for key, column in columns.items()}


def _value(column: Column[Any], value: Any) -> Any:
    if value is None and column.nullable:
        return None
    if isinstance(column.type, LargeBinary):
        try:
            return bytes.fromhex(value)
        except (TypeError, ValueError):
            raise InvalidEntry(f"{column.name} is not hexadecimal") from None
    if isinstance(column.type, Integer):
        bits = 63 if isinstance(column.type, BigInteger) else 15 if isinstance(column.type, SmallInteger) else 31
        return integer(value, column.name, -(2**bits), 2**bits - 1)
    return text(value, column.name)
