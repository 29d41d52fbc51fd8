"""A second revision, which exists in the tests only: it shows that stores with data can be migrated up and down.

It adds a column that is computed from the events, a table, and a view; and it has a guarantee that revision 0001 cannot
keep, so that its downgrade is refused.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy import Connection, MetaData, inspect, select, text

from messager_store import EventLog, NewEvent
from messager_store.db import database as opening
from messager_store.db import migrations
from messager_store.db.database import Database
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter

FIRST, NEXT = "0001", "0002"

Rows = dict[str, list[dict[str, Any]]]
"""Rows by table, in order of the primary key, without the values that are null."""


_users = 0
_turn = threading.Lock()
_change = contextlib.ExitStack()


@contextlib.contextmanager
def known() -> Iterator[None]:
    """Let this process know the second revision, as the newest one; migrations of several tasks and threads may."""
    global _users
    with _turn:
        if _users == 0:
            both = [*migrations.folders(), str(Path(__file__).parent / "versions")]
            _change.enter_context(mock.patch.object(migrations, "folders", return_value=both))
            for module in (migrations, opening):
                _change.enter_context(mock.patch.object(module, "HEAD_REVISION", NEXT))
        _users += 1
    try:
        yield
    finally:
        with _turn:
            _users -= 1
            if _users == 0:
                _change.close()


async def migrate(store: str, revision: str) -> None:
    """Migrate a store to an older or newer revision, or to `head`; an empty one is created."""
    database = Database(store)
    await database.open_engines()
    try:
        with known():
            async with database.migrating(long=True) as connection:
                await connection.run_sync(_to, revision)
    finally:
        await database.close()


def _to(connection: Connection, revision: str) -> None:
    tables = inspect(connection).get_table_names()
    now = connection.execute(text("SELECT version_num FROM alembic_version")).scalar() if tables else None
    act = migrations.downgrade if revision != "head" and now is not None and now > revision else migrations.upgrade
    act(connection, revision)


async def fill(store: str) -> None:
    """Make a store at the first revision in an empty database, with rows in every table."""
    async with EventLog.open(store) as log:
        of = await log.create_experiment("p1", name="kept", tags=["t"], meta={"seed": 7})
        for number in range(2):
            writer = await log.register(of, role="messager", spool="/nowhere/r.spool")
            for first in (0, 5):
                entries = [
                    NewEvent(kind, n, f"channel {n % 3}", b'{"content": "%d"}' % n, n % 5, "all", messager="m")
                    for n in range(first, first + 5)
                    for kind in ("sent", "received")
                ]
                await log.append(writer, entries, unacknowledged_ns=number)
            await log.touch(writer, ended_at=9)
        await redact(log, of, RedactionFilter(contains=("3",)), who="me", why="asked to")
        await log.create_experiment("f1", parent="p1")


async def rows_of(store: str) -> Rows:
    """Return all rows of a store."""
    return await _read(store, _rows)


def _rows(connection: Connection) -> Rows:
    there = MetaData()
    there.reflect(connection, only=lambda name, _: name != "alembic_version")
    return {
        table.name: [
            {key: value for key, value in row.items() if value is not None}
            for row in connection.execute(select(table).order_by(*table.primary_key.columns)).mappings()
        ]
        for table in there.sorted_tables
    }


async def _read(store: str, act: Any) -> Any:
    database = Database(store)
    await database.open_engines()
    try:
        async with database.reading() as connection:
            return await connection.run_sync(act)
    finally:
        await database.close()
