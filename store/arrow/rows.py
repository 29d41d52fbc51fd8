"""Events as record batches, made one by one: for filters that need Python, for changed copies, and for a few events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import func, select

from .. import json_text
from ..db.codes import FROM_DERIVED, KINDS, NO_TEXT, SEQ_BITS, TO_DERIVED
from ..db.database import Database
from ..db.schema import delivery
from ..log.event import Event
from ..log.text import MAX_TEXT, storable
from . import schema

LOOKUP = 5000
"""Ids in one query."""

Received = dict[int, tuple[int, int]]
"""Time of the first reception, and number of receptions, by the id of the sending."""


async def receptions(database: Database, sendings: Sequence[int]) -> Received:
    """Return the receptions of sendings. A sending without receptions is missing."""
    found: Received = {}
    async with database.reading() as connection:
        for at in range(0, len(sendings), LOOKUP):
            query = (
                select(delivery.c.sending_id, func.min(delivery.c.received_at), func.count())
                .where(delivery.c.sending_id.in_(sendings[at : at + LOOKUP]))
                .group_by(delivery.c.sending_id)
            )
            for sending, first, copies in await connection.execute(query):
                found[sending] = first, copies
    return found


async def batch(
    database: Database,
    events: Sequence[Event],
    marks: Sequence[str | None],
    ids: dict[int, int],
    text: Callable[[Event], str | None],
    *,
    delivered: bool,
) -> Any:
    """Return events as a record batch. `marks` has the mark of each; `ids` are ids of recorders by ordinal.

    `text` gives the text of an event that is neither redacted nor binary. Without `delivered`, receptions are unknown.
    """
    sendings = [ids[entry.recorder] << SEQ_BITS | entry.seq for entry in events if entry.kind == "sent"]
    received = await receptions(database, sendings) if delivered else {}
    return _batch(events, marks, ids, text, received if delivered else None)


def _batch(
    events: Sequence[Event],
    marks: Sequence[str | None],
    ids: dict[int, int],
    text: Callable[[Event], str | None],
    received: Received | None,
) -> Any:
    pa = schema.pyarrow()
    columns: dict[str, list[Any]] = {field.name: [] for field in schema.schema()}
    rows = [_row(entry, mark, ids, text, received) for entry, mark in zip(events, marks, strict=True)]
    for row in rows:
        for value, column in zip(row, columns.values(), strict=True):
            column.append(value)
    arrays = []
    for field in schema.schema():
        values = columns[field.name]
        if field.name == "kind":
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(values, pa.int8()), schema.kinds()))
        elif field.name in ("from_type", "to_type"):
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(values, pa.int8()), schema.id_types()))
        elif pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.schema())


def _row(
    entry: Event,
    mark: str | None,
    ids: dict[int, int],
    text: Callable[[Event], str | None],
    received: Received | None,
) -> tuple[Any, ...]:
    """Return an event as a value for each column, in the order of the schema."""
    sender, recipient = (
        (None, None) if agent is None else schema.id_columns(agent) for agent in (entry.from_id, entry.to_id)
    )
    first, copies = None, None
    if entry.kind == "received":
        first = entry.ts
    elif entry.kind == "sent" and received is not None:
        first, copies = received.get(ids[entry.recorder] << SEQ_BITS | entry.seq, (None, 0))
    return (
        entry.ts,
        entry.ts // 1000,
        entry.recorder,
        entry.seq,
        KINDS.index(entry.kind),
        None if entry.channel is None else schema.name_text(entry.channel),
        *sender,
        *recipient,
        entry.flags & (FROM_DERIVED | TO_DERIVED),
        entry.msg_id,
        text_of(entry, text),
        entry.payload,
        entry.redacted,
        None if first is None else first // 1000,
        copies,
        mark,
        entry.messager,
        entry.arrival if entry.kind != "received" else None,
        entry.arrival if entry.kind == "received" else None,
        None if entry.cause is None else f"{entry.cause[0]}:{entry.cause[1]}",
        entry.receivers,
        entry.duration_ns,
        None if entry.meta is None else json_text.dump(entry.meta),
        None if entry.origin is None else f"{entry.origin[0]}:{entry.origin[1]}",
    )


def text_of(entry: Event, text: Callable[[Event], str | None]) -> str | None:
    """Return the column `text` of an event, as the side table `said` has it: null if it is redacted or binary."""
    if entry.redacted:
        return None
    if entry.flags & NO_TEXT:
        try:
            entry.payload.decode()
        except UnicodeDecodeError:
            return None
    said = text(entry)
    return None if said is None else storable(said)[:MAX_TEXT]
