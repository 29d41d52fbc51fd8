"""`db check` compares the definitions of views and functions with those of the revision; `db upgrade` restores them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from messager_store import EventLog
from messager_store.db import migrations
from messager_store.db.database import Database
from messager_store.testing import Databases, PostgresServer, execute
from tests.support import messager, sql
from tests.support.logs import filled, sent


async def differences(store: str) -> list[str]:
    database = Database(store)
    await database.open_engines()
    try:
        async with database.reading() as connection:
            return await connection.run_sync(migrations.differences)
    finally:
        await database.close()


async def migrated(store: str, revision: str, *, down: bool = False) -> None:
    database = Database(store)
    await database.open_engines()
    try:
        async with database.writing(long=True) as connection:
            await connection.run_sync(migrations.downgrade if down else migrations.upgrade, revision)
    finally:
        await database.close()


CHANGES = [
    (("DROP VIEW event_view",), "the view event_view is missing"),
    (
        ("DROP VIEW event_view", "CREATE VIEW event_view AS SELECT * FROM event"),
        "the view event_view has another definition",
    ),
]


async def test_a_changed_view_is_reported_and_restored(log: EventLog, store: str, tmp_path: Path) -> None:
    await filled(log, [sent(1)])
    for statements, expected in CHANGES:
        sql(store, *statements)
        remedy = ": `messager db upgrade` makes the views of this revision again"
        assert expected + remedy in await differences(store)
        await migrated(store, "head")
        assert await differences(store) == []
    sql(store, *statements)
    checked = messager("--store", store, "db", "check", cwd=tmp_path)
    assert checked.returncode == 1 and expected + remedy in checked.stdout
    assert messager("--store", store, "db", "upgrade", cwd=tmp_path).returncode == 0
    assert sql(store, "SELECT exp_id, seq FROM event_view") == [("e1", 1)]


async def test_tables_indexes_and_columns_that_differ_are_named(log: EventLog, store: str) -> None:
    await filled(log, [sent(1)])
    sql(store, "DROP VIEW event_view")
    sql(store, "DROP TABLE tag", "DROP INDEX ix_event_replay", "ALTER TABLE event DROP COLUMN attributes")
    sql(store, "CREATE TABLE notes (a INTEGER)")
    found = await differences(store)
    for expected in (
        "the table tag is missing",
        "the table notes is unknown",
        "the index ix_event_replay is missing",
        "the column event.attributes is missing",
    ):
        assert expected in found


@pytest.mark.nightly
@pytest.mark.postgres
async def test_a_changed_function_is_reported_and_restored(log: EventLog, store: str) -> None:
    await filled(log, [sent(1, from_id=5)])
    execute(
        store,
        "CREATE OR REPLACE FUNCTION messager_id(value bytea, shown text) RETURNS jsonb LANGUAGE sql IMMUTABLE "
        "AS $$ SELECT 'null'::jsonb $$",
    )
    [line] = await differences(store)
    assert line.startswith("the function messager_id(value bytea, shown text) has another definition: `messager db up")
    await migrated(store, "head")
    assert await differences(store) == []
    assert sql(store, "SELECT from_id::text FROM event_view") == [("5",)]


@pytest.mark.nightly
@pytest.mark.postgres
async def test_a_store_in_a_schema_of_its_own_is_clean(databases: Databases, tmp_path: Path) -> None:
    store = databases.create()
    execute(store, 'CREATE SCHEMA "Other One"')
    store += f"?search_path={quote(chr(34) + 'Other One' + chr(34))}"
    await migrated(store, "head")
    assert await differences(store) == []
    schemas = execute(store, "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'messager%'")
    assert schemas == []  # the scratch schema was rolled back


@pytest.mark.nightly
@pytest.mark.postgres
async def test_a_user_who_may_not_make_a_schema_is_told_that_the_views_were_not_compared(
    server: PostgresServer, tmp_path: Path
) -> None:
    name = Databases(server.url("postgres")).create().rpartition("/")[2]
    store, url = server.url(name), server.url(name, "reader")
    async with EventLog.open(store):
        pass
    execute(store, "CREATE ROLE reader LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    checked = messager("--store", url, "db", "check", cwd=tmp_path)
    assert checked.returncode == 0
    assert (
        "the views were not compared, because the user reader may not create a scratch schema: "
        f"`GRANT CREATE ON DATABASE {name} TO reader`, or check as the owner of the tables" in checked.stderr
    )
    execute(store, f"GRANT CREATE ON DATABASE {name} TO reader", "DROP VIEW event_view")
    checked = messager("--store", url, "db", "check", cwd=tmp_path)
    assert (checked.returncode, "not compared" in checked.stderr) == (1, False)
    assert "the view event_view is missing: `messager db upgrade`" in checked.stdout
