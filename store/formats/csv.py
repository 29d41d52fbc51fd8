"""CSV: the columns of docs/analysis.md. A payload that is not UTF-8 is in the column `payload_base64` instead."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from typing import Any

from ..log.event_log import EventLog
from ..log.selection import Selection
from ..projection.schema import pyarrow
from ..projection.tables import columns
from .exporting import begin
from .output_file import open_output
from .sharing import Sharing


async def write(
    log: EventLog,
    exp_id: str,
    path: str | os.PathLike[str],
    *,
    progress: Callable[..., None] | None = None,
    shared: Sharing | None = None,
    selection: Selection | None = None,
    messages: bool = False,
) -> int:
    """Export the selected events, or with `messages` each message once, to a file; return their number.

    The file appears when it is complete, and replaces an existing one.
    """
    pa = pyarrow()
    written = pa.schema([*((field.name, _kind(field)) for field in columns()), ("payload_base64", pa.string())])
    export = await begin(log, exp_id, progress, shared)
    with open_output(path) as file, pa.csv.CSVWriter(file, written) as writer:
        async for batch in export.batches(selection, messages=messages):
            writer.write_batch(_with_texts(batch, written))
    return export.count


def _kind(field: Any) -> Any:
    """Return the type in which a column is written: CSV has no bytes and no dictionaries."""
    pa = pyarrow()
    return pa.string() if pa.types.is_dictionary(field.type) or pa.types.is_binary(field.type) else field.type


def _with_texts(batch: Any, of: Any) -> Any:
    """Return a record batch with texts in place of dictionaries and bytes."""
    pa = pyarrow()
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    texts: list[str | None] = []
    others: list[str | None] = []
    for payload in batch["payload"].to_pylist():
        try:
            texts.append(payload.decode())
            others.append(None)
        except UnicodeDecodeError:
            texts.append(None)
            others.append(base64.b64encode(payload).decode())
    arrays |= {"payload": pa.array(texts, pa.string()), "payload_base64": pa.array(others, pa.string())}
    return pa.RecordBatch.from_arrays([arrays[field.name].cast(field.type) for field in of], schema=of)
