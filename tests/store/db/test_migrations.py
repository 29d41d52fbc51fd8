"""Models and migrations agree, up and down, in one transaction."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import inspect

from messager_store import EventLog
from messager_store.db import migrations
from messager_store.db.database import Database
from messager_store.db.schema import HEAD_REVISION, metadata
from messager_store.errors import DowngradeRefused, WrongRevision
from messager_store.maintenance.verify import verify
from messager_store.testing import Databases
from tests.support import ROOT, Stores, sql, until
from tests.support.next_revision import FIRST, NEXT, fill, known, migrate, rows_of


@pytest.mark.databases
async def test_the_migrated_tables_are_those_of_the_models(log: EventLog) -> None:
    async with log.database.reading() as connection:
        assert await connection.run_sync(migrations.differences) == []


async def test_a_column_that_is_missing_would_be_noticed(log: EventLog) -> None:
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("DROP VIEW event_view")
        await connection.exec_driver_sql("ALTER TABLE event DROP COLUMN attributes")
    async with log.database.reading() as connection:
        assert "attributes" in str(await connection.run_sync(migrations.differences))


def test_the_revision_the_code_expects_is_the_newest() -> None:
    assert migrations.scripts().get_heads() == [HEAD_REVISION]


async def test_stores_of_one_process_are_made_and_upgraded_at_once(
    migrated_file: str, databases: Databases, tmp_path: Path
) -> None:
    """Alembic has one context a process: statements for one store reached the connection of another."""
    files, servers = Stores(tmp_path, None, migrated_file), Stores(tmp_path, databases, "")
    each = [kind.unmade() for kind in (files, servers) for _ in range(2)]
    old = each[1::2]
    for store in old:
        await fill(store)
    with known():
        await asyncio.gather(*(migrate(store, NEXT) if store in old else _made(store) for store in each))
    for store in each:
        await migrate(store, FIRST)
        async with EventLog.open(store) as log, log.database.reading() as connection:
            assert await connection.run_sync(migrations.differences) == []
    servers.remove()


async def _made(store: str) -> None:
    async with EventLog.open(store):
        pass


async def test_down_removes_everything_and_up_brings_it_back(store: str) -> None:
    database = Database(store)
    await database.open()
    async with database.writing() as connection:
        await connection.run_sync(migrations.downgrade, "base")
    async with database.reading() as connection:
        tables = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        views = await connection.run_sync(lambda sync: inspect(sync).get_view_names())
    assert (set(tables) - {"alembic_version"}, views) == (set(), [])
    async with database.writing() as connection:
        await connection.run_sync(migrations.upgrade)
    async with database.reading() as connection:
        tables = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        assert await connection.run_sync(migrations.differences) == []
    assert set(tables) - {"alembic_version"} == set(metadata.tables)
    await database.close()


async def test_a_migration_that_fails_leaves_nothing_half_done(unmade: str) -> None:
    database = Database(unmade)
    await database.open_engines()
    try:
        async with database.writing() as connection:
            await connection.run_sync(migrations.upgrade)
            raise RuntimeError("the power went out")
    except RuntimeError:
        pass
    async with database.reading() as connection:
        assert await connection.run_sync(lambda sync: inspect(sync).get_table_names()) == []
    await database.close()


@pytest.mark.databases
async def test_a_store_with_data_in_every_table_goes_up_and_down_again(unmade: str) -> None:
    await fill(unmade)
    before = await rows_of(unmade)
    assert set(before) == set(metadata.tables) and all(before.values()), "every table has rows"
    await migrate(unmade, NEXT)
    above = await rows_of(unmade)
    assert [row["bytes"] for row in above["batch"]] == 2 * [8 * 16, 10 * 16]
    assert {**above, "batch": [{k: v for k, v in row.items() if k != "bytes"} for row in above["batch"]]} == {
        **before,
        "annotation": [],
    }
    with pytest.raises(WrongRevision, match="is at revision 0002, this messager needs 0001"):
        await EventLog.open(unmade)
    await migrate(unmade, FIRST)
    assert await rows_of(unmade) == before
    async with EventLog.open(unmade) as log:
        verdicts = [await verify(log, of) for of in await log.experiments()]
        async with log.database.reading() as connection:
            assert await connection.run_sync(migrations.differences) == []
    assert [verdict.problems for verdict in verdicts] == [[], []]


@pytest.mark.databases
async def test_a_downgrade_that_cannot_keep_a_guarantee_is_refused_and_changes_nothing(unmade: str) -> None:
    await fill(unmade)
    await migrate(unmade, NEXT)
    for number in range(1, 6):
        add = (
            "INSERT INTO experiment (exp_id, status, created_at, meta, recorders) VALUES ('s{}', 'open', 1, '{{}}', 0)"
        )
        sql(unmade, add.format(number))
    sql(unmade, "INSERT INTO annotation (experiment_id, text) SELECT id, 'a' FROM experiment WHERE exp_id LIKE 's%'")
    sql(unmade, "UPDATE recorder SET durability = 'group' WHERE experiment_id = 1")
    before = await rows_of(unmade)
    with pytest.raises(DowngradeRefused) as refused:
        await migrate(unmade, FIRST)
    text = str(refused.value)
    assert "back to revision 0001: annotations would be lost (s1, s2, s3 and 2 more); recorders that" in text
    assert "count alone (p1)." in text and "messager pack" in text and "\n" not in text
    assert await rows_of(unmade) == before
    await migrate(unmade, "base")  # which removes the whole log


@pytest.mark.postgres
async def test_a_downgrade_sees_what_others_write_while_it_begins(unmade: str) -> None:
    await fill(unmade)
    await migrate(unmade, NEXT)
    database = Database(unmade)
    await database.open_engines()

    async def waits() -> bool:
        async with database.reading() as connection:
            query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
            return bool((await connection.exec_driver_sql(query)).scalar_one())

    async with database.writing() as connection:
        await connection.exec_driver_sql("UPDATE recorder SET durability = 'group'")
        downgrading = asyncio.create_task(migrate(unmade, FIRST))
        await until(waits)
    with pytest.raises(DowngradeRefused, match="count alone"):
        await downgrading
    await database.close()


@pytest.mark.nightly
def test_alembic_itself_works_in_a_checkout(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "alembic", "-x", f"store={tmp_path / 'a.db'}"]
    for command in (["upgrade", "head"], ["check"], ["downgrade", "base"]):
        done = subprocess.run([*run, *command], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    sql = subprocess.run([*run, "upgrade", "head", "--sql"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "CREATE TABLE event" in sql.stdout
