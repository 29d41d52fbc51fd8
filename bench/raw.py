"""The event table through `sqlite3` alone: the same columns and index, without the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from messager_store.db.schema import event

if TYPE_CHECKING:
    from messager_store import NewEvent

COLUMNS = ", ".join(event.c.keys())
INSERT = f"INSERT INTO event ({COLUMNS}) VALUES ({', '.join('?' * len(event.c))})"


def open_table(path: Path) -> sqlite3.Connection:
    """Create a file with the event table: WAL, synchronous FULL."""
    from sqlalchemy.dialects import sqlite
    from sqlalchemy.schema import CreateIndex, CreateTable

    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(str(CreateTable(event).compile(dialect=sqlite.dialect())))
    for index in event.indexes:
        connection.execute(str(CreateIndex(index).compile(dialect=sqlite.dialect())))
    return connection


def rows(first_seq: int, events: Sequence[NewEvent]) -> list[tuple[Any, ...]]:
    """Return events as rows of the table; the ids of names are arbitrary."""
    base = 1 << 40 | first_seq
    return [(base + at, 1, entry.ts, 1, 1, 2, 3, None, 0, None, entry.payload) for at, entry in enumerate(events)]


def insert(connection: sqlite3.Connection, first_seq: int, events: Sequence[NewEvent]) -> None:
    """Insert one batch in one transaction. Includes making the row tuples."""
    made = rows(first_seq, events)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, made)
    connection.execute("COMMIT")
