"""The event table through `sqlite3` alone: the same columns and index, without the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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


def insert(connection: sqlite3.Connection, first_seq: int, events: Sequence[NewEvent]) -> None:
    """Insert one batch in one transaction. Includes making the row tuples; the ids of names are arbitrary."""
    base = 1 << 40 | first_seq
    rows = [
        (base + at, 1, entry.ts, 1, 1, 2, 3, 0, None, None, None, None, None, entry.payload, None, None, None, None)
        for at, entry in enumerate(events)
    ]
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, rows)
    connection.execute("COMMIT")
