"""Stores at an earlier revision, with the rows of the fixture `everything.db`, on each database; and their contents."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, MetaData, func, insert, inspect, select, text, update

from messager_store import EventLog
from messager_store.db import migrations
from messager_store.db.database import Database
from messager_store.db.schema import experiment, recorder
from messager_store.log.writer import Writer

FIXTURES = Path(__file__).resolve().parent.parent / "data"
EVERYTHING = FIXTURES / "revision_0002" / "everything.db"
_OF_VERSION_1 = ("first-open",)
"""The experiment of the fixture that a store of revision 0001 can hold."""

Rows = dict[str, list[dict[str, Any]]]
"""Rows by table, in order of the primary key, without the values that are null."""


async def migrate(store: str, revision: str) -> None:
    """Migrate a store to an older or newer revision, or to `head`; an empty one is created."""
    database = Database(store)
    await database.open_engines()
    try:
        async with database.migrating(long=True) as connection:
            await connection.run_sync(_to, revision)
    finally:
        await database.close()


def _to(connection: Connection, revision: str) -> None:
    tables = inspect(connection).get_table_names()
    now = connection.execute(text("SELECT version_num FROM alembic_version")).scalar() if tables else None
    act = migrations.downgrade if revision != "head" and now is not None and now > revision else migrations.upgrade
    act(connection, revision)


async def fill_earlier(store: str, revision: str = "0002") -> None:
    """Create the tables of revision 0002 or 0001 in an empty store, with rows that the code of that time has made.

    At revision 0002 all tables have rows; at 0001 there is an open experiment of one recorder.
    """
    await migrate(store, revision)
    database = Database(store)
    await database.open_engines()
    try:
        async with database.writing(long=True) as connection:
            await connection.run_sync(_insert_fixture, _OF_VERSION_1 if revision == "0001" else None)
    finally:
        await database.close()


def _insert_fixture(connection: Connection, only: Iterable[str] | None) -> None:
    there = _reflected(connection)
    given = _fixture(only)
    for table in there.sorted_tables:
        if rows := given[table.name]:
            columns = set(table.columns.keys())
            connection.execute(insert(table), [{key: row[key] for key in row.keys() & columns} for row in rows])
            if connection.dialect.name == "postgresql" and isinstance(rows[0].get("id"), int) and table.name != "event":
                sequence = func.pg_get_serial_sequence(table.name, "id")
                connection.execute(select(func.setval(sequence, max(row["id"] for row in rows))))


def _fixture(only: Iterable[str] | None) -> dict[str, list[dict[str, Any]]]:
    with closing(sqlite3.connect(f"file:{EVERYTHING}?mode=ro&immutable=1", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {
            name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")]
            for name in names
            if name not in ("alembic_version", "sqlite_sequence")
        }
    if only is None:
        return rows
    kept = {row["id"] for row in rows["experiment"] if row["exp_id"] in only}
    # the recorder that ended: revision 0001 does not know of spools
    recorders = {row["id"] for row in rows["recorder"] if row["experiment_id"] in kept and row["ended_at"] is not None}
    rows["experiment"] = [row | {"recorders": 1} for row in rows["experiment"] if row["id"] in kept]
    rows["recorder"] = [row for row in rows["recorder"] if row["id"] in recorders]
    rows["batch"] = [row for row in rows["batch"] if row["recorder_id"] in recorders]
    rows["event"] = [row for row in rows["event"] if row["id"] >> 40 in recorders]
    for name in ("tag", "name"):
        rows[name] = [row for row in rows[name] if row["experiment_id"] in kept]
    rows["delivery"] = rows["redaction"] = []
    return rows


def _reflected(connection: Connection) -> MetaData:
    found = MetaData()
    found.reflect(connection, only=lambda name, _: name != "alembic_version")
    return found


async def of_version_2(log: EventLog, exp_id: str, *, recorders: int = 1, **more: Any) -> list[Writer]:
    """Create an experiment of schema version 2 with recorders of chain version 2, as revision 0002 did."""
    of = await log.create_experiment(exp_id)
    names = [(await log.register(of, role="messager", **more)).uuid for _ in range(recorders)]
    async with log.database.writing() as connection:
        await connection.execute(update(experiment).where(experiment.c.id == of.id).values(schema_version=2))
        await connection.execute(update(recorder).where(recorder.c.experiment_id == of.id).values(chain_version=2))
    return [await log.take_over(name) for name in names]


async def rows_of(store: str) -> Rows:
    """Return all rows of a store."""
    return await _read(store, _rows)


def _rows(connection: Connection) -> Rows:
    return {
        table.name: [
            {key: value for key, value in row.items() if value is not None}
            for row in connection.execute(select(table).order_by(*table.primary_key.columns)).mappings()
        ]
        for table in _reflected(connection).sorted_tables
    }


async def schema_of(store: str) -> dict[str, Any]:
    """Return the columns and indexes of each table, the views, and the functions of the views."""
    return await _read(store, _schema)


def _schema(connection: Connection) -> dict[str, Any]:
    there = inspect(connection)
    found: dict[str, Any] = {}
    for name in there.get_table_names():
        columns = {
            column["name"]: (str(column["type"]), column["nullable"], column["default"], column.get("comment"))
            for column in there.get_columns(name)
        }
        indexes = sorted((index["name"] or "", *index["column_names"]) for index in there.get_indexes(name))
        found[name] = columns, indexes, there.get_pk_constraint(name), there.get_foreign_keys(name)
    found["views"] = {name: there.get_view_definition(name) for name in there.get_view_names()}
    if connection.dialect.name == "postgresql":
        query = (
            "SELECT proname, pg_get_functiondef(oid) AS definition FROM pg_proc "
            "WHERE pronamespace = 'public'::regnamespace"
        )
        found["functions"] = {row.proname: row.definition for row in connection.execute(text(query))}
    return found


async def _read(store: str, act: Any) -> Any:
    database = Database(store)
    await database.open_engines()
    try:
        async with database.reading() as connection:
            return await connection.run_sync(act)
    finally:
        await database.close()
