"""Models and migrations agree, up and down, in one transaction."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from sqlite3 import OperationalError

import pytest
from sqlalchemy import inspect

from messager_store import EventLog
from messager_store.db import migrations
from messager_store.db.database import Database
from messager_store.db.schema import HEAD_REVISION, metadata
from messager_store.errors import DowngradeRefused, WrongRevision
from messager_store.maintenance.verify import verify
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.recording.closing import close
from messager_store.testing import Databases
from tests.support import ROOT, Refused, Stores, sql, until
from tests.support.earlier import fill_earlier, migrate, of_version_2
from tests.support.logs import experiment, sent


async def test_the_migrated_tables_are_those_of_the_models(log: EventLog) -> None:
    async with log.database.reading() as connection:
        assert await connection.run_sync(migrations.differences) == []


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
        await migrate(store, "0002")
    await asyncio.gather(*(migrate(store, "head") if store in old else _made(store) for store in each))
    for store in each:
        async with EventLog.open(store) as log, log.database.reading() as connection:
            assert await connection.run_sync(migrations.differences) == []
    servers.remove()


async def _made(store: str) -> None:
    async with EventLog.open(store):
        pass


@pytest.mark.databases
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


@pytest.mark.databases
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
async def test_a_log_of_the_first_revision_is_upgraded_continued_and_still_verified(unmade: str) -> None:
    await fill_earlier(unmade, "0001")
    with pytest.raises((Refused, OperationalError), match="unacknowledged"):
        sql(unmade, "SELECT unacknowledged FROM batch")
    with pytest.raises(WrongRevision, match="db upgrade"):
        await EventLog.open(unmade)
    await migrate(unmade, "head")
    async with EventLog.open(unmade) as log:
        [of] = await log.experiments()
        assert of.schema_version == 1
        before = await verify(log, of)
        [row] = await log.recorders(of)
        writer = await log.take_over(row.uuid)
        await log.append(writer, [sent(4)])
        await log.touch(writer, ended_at=5)
        after = await verify(log, of)
    assert (before.problems, after.problems, after.events) == ([], [], before.events + 1)
    assert before.head != after.head


async def _downgraded(log: EventLog, revision: str) -> None:
    async with log.database.writing() as connection:
        await connection.run_sync(migrations.downgrade, revision)


async def _redacted(log: EventLog, exp_id: str) -> None:
    [writer] = await of_version_2(log, exp_id)
    await log.append(writer, [sent(1), sent(2)])
    await log.touch(writer, ended_at=5)
    await redact(log, exp_id, RedactionFilter(kinds=("sent",)), who="me", why="asked to")


async def _closed(log: EventLog, exp_id: str) -> None:
    [writer] = await of_version_2(log, exp_id)
    await log.append(writer, [sent(1)])
    await close(log, await log.experiment(exp_id), force=True)


async def _strict(log: EventLog, exp_id: str) -> None:
    writer = await log.register(await experiment(log, exp_id), role="messager", durability="strict")
    await log.touch(writer, ended_at=5)


async def _repaired(log: EventLog, exp_id: str) -> None:
    writer = await log.register(await experiment(log, exp_id), role="messager")
    await log.touch(writer, ended_at=5, unclean=1)


async def _not_ended(log: EventLog, exp_id: str) -> None:
    await log.register(await experiment(log, exp_id), role="messager", spool="/nowhere/r.spool")


@pytest.mark.databases
@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (_redacted, "redactions would no longer fit their heads"),
        pytest.param(_closed, "heads of closed experiments would change", marks=pytest.mark.nightly),
        pytest.param(_strict, "strict recorders would count as buffered", marks=pytest.mark.nightly),
        pytest.param(_repaired, "recorders that ended uncleanly would count as ended", marks=pytest.mark.nightly),
        pytest.param(
            _not_ended, "spools of recorders that have not ended would be forgotten", marks=pytest.mark.nightly
        ),
    ],
)
async def test_a_downgrade_that_cannot_keep_a_guarantee_is_refused_and_changes_nothing(
    log: EventLog, made: Callable[[EventLog, str], Awaitable[None]], reason: str
) -> None:
    await made(log, "e1")
    before = await verify(log, await log.experiment("e1"))
    with pytest.raises(DowngradeRefused, match=rf"revision 0001.*{reason} \(e1\).*messager pack"):
        await _downgraded(log, "0001")
    async with log.database.reading() as connection:
        assert await connection.run_sync(migrations.differences) == []
    after = await verify(log, await log.experiment("e1"))
    assert (after.head, after.problems) == (before.head, before.problems)


@pytest.mark.nightly
async def test_a_refused_downgrade_names_every_reason_once_and_the_first_experiments(log: EventLog) -> None:
    for number in range(5):
        await _strict(log, f"s{number}")
    await _redacted(log, "r1")
    with pytest.raises(DowngradeRefused) as refused:
        await _downgraded(log, "0001")
    text = str(refused.value)
    assert "heads (r1)" in text and "(s0, s1, s2 and 2 more)" in text and "\n" not in text


@pytest.mark.postgres
async def test_a_downgrade_sees_what_others_write_while_it_begins(log: EventLog) -> None:
    writer = await log.register(await experiment(log), role="messager")
    await log.touch(writer, ended_at=5)

    async def waits() -> bool:
        async with log.database.reading() as connection:
            query = (
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('relation', 'transactionid', 'tuple')"
            )
            return bool((await connection.exec_driver_sql(query)).scalar_one())

    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE recorder SET unclean = 1")
        downgrading = asyncio.create_task(_downgraded(log, "0001"))
        await until(waits)
    with pytest.raises(DowngradeRefused, match="ended uncleanly"):
        await downgrading


@pytest.mark.nightly
async def test_a_downgrade_to_base_removes_a_redacted_log_too(log: EventLog) -> None:
    await _redacted(log, "e1")
    await _downgraded(log, "base")
    async with log.database.reading() as connection:
        assert "event" not in await connection.run_sync(lambda sync: inspect(sync).get_table_names())


@pytest.mark.nightly
async def test_what_was_redacted_under_the_first_revision_goes_back_to_it(unmade: str) -> None:
    await fill_earlier(unmade, "0001")
    await migrate(unmade, "head")
    async with EventLog.open(unmade) as log:
        [of] = await log.experiments()
        await redact(log, of, RedactionFilter(kinds=("sent",)), who="me", why="asked to")
        head = (await verify(log, of)).head
    await migrate(unmade, "0001")
    await migrate(unmade, "head")
    async with EventLog.open(unmade) as log:
        verdict = await verify(log, of)
    assert (verdict.problems, verdict.head) == ([], head)


@pytest.mark.nightly
def test_alembic_itself_works_in_a_checkout(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "alembic", "-x", f"store={tmp_path / 'a.db'}"]
    for command in (["upgrade", "head"], ["check"], ["downgrade", "base"]):
        done = subprocess.run([*run, *command], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    sql = subprocess.run([*run, "upgrade", "head", "--sql"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "CREATE TABLE event" in sql.stdout
