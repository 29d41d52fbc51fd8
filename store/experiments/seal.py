"""Seals: a hash of each ended recorder's row, so that no fact in it can be changed unseen.

The chain covers the events of a recorder. Readers also show what only its row says, such as times, role, patterns and
meta, and which events are messages depends on it. The seal is written in the transaction that ends the recorder, and
the head of an ended recorder is its seal. A recorder has a seal if and only if it has an end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.schema import recorder

SEALED = {*recorder.c.keys()} - {"id", "experiment_id", "ordinal", "epoch", "spool", "seal"}
"""The columns that a seal covers: all that mean the same in every store, the last chain hash among them."""


def seal_of(row: Mapping[Any, Any]) -> bytes | None:
    """Return the seal that belongs in a recorder's row, None if the recorder has not ended.

    Null is left out, so that a later column which is null changes no seal.
    """
    if row["ended_at"] is None:
        return None
    facts = {key: row[key] for key in SEALED if row[key] is not None}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), default=_bytes)
    return sha256(b"messager seal " + text.encode()).digest()


def _bytes(value: Any) -> list[str]:
    """Return bytes in a form that no text has."""
    return [bytes(value).hex()]


async def seal_ended(connection: AsyncConnection, which: ColumnElement[bool]) -> None:
    """Write the seals of the recorders of a condition that have ended.

    To be called in each transaction that writes a sealed column of such a recorder, after that, so that it has locked
    the row.
    """
    rows = await connection.execute(select(recorder).where(which, recorder.c.ended_at.is_not(None)))
    seals = [{"of_recorder": row["id"], "new_seal": seal_of(row)} for row in rows.mappings()]
    if seals:
        change = update(recorder).where(recorder.c.id == bindparam("of_recorder"))
        await connection.execute(change.values(seal=bindparam("new_seal")), seals)
