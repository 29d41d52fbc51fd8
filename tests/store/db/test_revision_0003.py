"""Upgrade to revision 0003, and downgrade to 0002, with rows in every table."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from messager_store import EventLog, NewEvent
from messager_store.db import migrations
from messager_store.db.codes import MESSAGER, RECORDER
from messager_store.db.database import Database
from messager_store.db.schema import HEAD_REVISION
from messager_store.errors import DowngradeRefused
from messager_store.log.names import intern
from messager_store.maintenance.verify import verify, verify_all
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.recording.closing import close
from tests.support import Stores, sql, until
from tests.support.earlier import EVERYTHING, Rows, fill_earlier, migrate, of_version_2, rows_of, schema_of

NEW_TABLES = {"said", "activity", "indexed_recorder", "indexed_experiment"}
COUNTED = ("asked_count", "answered_count")


@pytest.fixture
async def earlier(unmade: str) -> str:
    """Store at revision 0002 with rows in every table."""
    await fill_earlier(unmade)
    return unmade


@pytest.fixture
async def upgraded(earlier: str) -> str:
    """The same store at the newest revision."""
    await migrate(earlier, "head")
    return earlier


async def _heads(store: str) -> dict[str, tuple[str | None, list[str]]]:
    """Return the head and the problems of each experiment, apart from unclean ends."""
    async with EventLog.open(store) as log:
        return {
            verdict.exp_id: (verdict.head, [each for each in verdict.problems if "ended uncleanly" not in each])
            async for verdict in verify_all(log)
        }


async def _differences(store: str) -> list[str]:
    async with EventLog.open(store) as log, log.database.reading() as connection:
        return await connection.run_sync(migrations.differences)


def _as_before(rows: Rows) -> Rows:
    """Return the rows of a store of revision 0003 without what revision 0002 has not."""
    kept = {name: found for name, found in rows.items() if name not in NEW_TABLES | {"delivery"}}
    new = {"chain_version", *COUNTED}
    kept["recorder"] = [{key: value for key, value in row.items() if key not in new} for row in kept["recorder"]]
    return kept


def _without_deliveries(rows: Rows) -> Rows:
    return {name: found for name, found in rows.items() if name != "delivery"}


async def test_the_earlier_store_has_rows_in_every_table(earlier: str) -> None:
    assert all((await rows_of(earlier)).values())


async def test_an_upgrade_keeps_every_row_but_deliveries(earlier: str) -> None:
    before = await rows_of(earlier)
    await migrate(earlier, "head")
    after = await rows_of(earlier)
    assert _as_before(after) == _without_deliveries(before)
    assert {name for name, found in after.items() if not found} == NEW_TABLES | {"delivery"}
    assert await _differences(earlier) == []


async def test_recorders_keep_the_chain_version_of_their_experiment(upgraded: str) -> None:
    query = (
        "SELECT x.exp_id, x.schema_version, r.chain_version FROM recorder r JOIN experiment x ON x.id = r.experiment_id"
    )
    found = {(exp_id, version, chain) for exp_id, version, chain in sql(upgraded, query)}
    assert found == {
        ("first", 1, 1),
        ("first-open", 1, 1),
        *((exp_id, 2, 2) for exp_id in ("everything", "secret", "killed", "imported", "imported-redacted")),
    }


async def test_heads_are_those_that_revision_0002_had(upgraded: str) -> None:
    heads = {exp_id: head for exp_id, (head, problems) in (await _heads(upgraded)).items() if not problems}
    assert heads == HEADS


HEADS = {
    "first": "1fd89ceea060382c9130b0e3709cf43f689fb0b714152cdc2afe71a1c3190e57",
    "first-open": "ff1afd1ff739db53467c0f102faeda013514e5e84218dd59a1c87cf869f39049",
    "everything": "1cc5a8376dfe3497a668683cebe7f2e8223650060ecd993398ac9ce3eac6b082",
    "secret": "b619aa589d6033caa1ddcfc19029ebd49c3acea93f460cff31f2908e1a61afc1",
    "killed": "76b3b7e9dd65e5b2cb97db5a7d46fcc7f305b6a71e96a7f608ce9312a6ed64e5",
    "imported": "762b08be478af4dee08824a2734df78615cc0baf8bf450ec99f9382b53e9f446",
    "imported-redacted": "2f2b5567044dfc0921142d95b8c6590d2ced62585813658ba82faad8f8fc3ac0",
}
"""Heads that the code of revision 0002 printed."""


async def test_down_and_up_again_changes_no_row(earlier: str) -> None:
    before = await rows_of(earlier)
    await migrate(earlier, "head")
    upgraded = await rows_of(earlier)
    async with EventLog.open(earlier) as log:  # fills side tables, which a downgrade drops
        await close(log, await log.experiment("secret"))
    closed = {
        "status": "closed",
        "closed_at": sql(earlier, "SELECT closed_at FROM experiment WHERE exp_id = 'secret'")[0][0],
    }
    for rows in (before, upgraded):
        rows["experiment"] = [row | closed if row["exp_id"] == "secret" else row for row in rows["experiment"]]
    await migrate(earlier, "0002")
    assert await rows_of(earlier) == before | {"delivery": []}
    await migrate(earlier, "head")
    assert await rows_of(earlier) == upgraded
    assert {exp_id: head for exp_id, (head, _) in (await _heads(earlier)).items()} == HEADS


async def test_a_downgrade_restores_tables_views_and_functions_exactly(stores: Stores) -> None:
    never, back = stores.unmade(), stores.unmade()
    await migrate(never, "0002")
    await migrate(back, "head")
    await migrate(back, "0002")
    assert await schema_of(back) == await schema_of(never)


@pytest.mark.sqlite
async def test_a_downgrade_restores_the_views_that_the_code_of_revision_0002_made(tmp_path: Path) -> None:
    store = str(shutil.copy(EVERYTHING, tmp_path))
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'view' ORDER BY name"
    before = sql(store, query)
    await migrate(store, "head")
    await migrate(store, "0002")
    assert sql(store, query) == before


async def test_a_store_of_revision_0001_goes_up_two_revisions_at_once(unmade: str) -> None:
    await fill_earlier(unmade, "0001")
    before = await rows_of(unmade)
    await migrate(unmade, "head")
    assert await _differences(unmade) == []
    [problems] = [problems for _, problems in (await _heads(unmade)).values()]
    assert problems == []
    await migrate(unmade, "0001")
    assert await rows_of(unmade) == before


@pytest.mark.parametrize("target", ["head", "0002"])
async def test_a_migration_is_one_transaction(earlier: str, target: str) -> None:
    if target == "0002":
        await migrate(earlier, "head")
    rows, schema = await rows_of(earlier), await schema_of(earlier)
    database = Database(earlier)
    await database.open_engines()
    act = migrations.upgrade if target == "head" else migrations.downgrade
    with contextlib.suppress(RuntimeError):
        async with database.writing() as connection:
            await connection.run_sync(act, target)
            raise RuntimeError("the power went out")
    await database.close()
    assert (await rows_of(earlier), await schema_of(earlier)) == (rows, schema)


async def _chain(log: EventLog) -> None:
    """An event of chain version 3 in an open experiment of version 2."""
    await log.append(await log.register(await log.experiment("killed"), role="tap"), [NewEvent("mark", 1, None, b"")])


async def _arrival(log: EventLog) -> None:
    entry = NewEvent("received", 1, "c", b"x", messager="m", arrival=3)
    await log.append(await log.register(await log.experiment("killed"), role="tap"), [entry])


async def _parent(log: EventLog) -> None:
    await log.create_experiment("fork")
    async with log.database.writing() as connection:
        await connection.execute(text("UPDATE experiment SET parent_exp_id = 'first' WHERE exp_id = 'fork'"))


async def _call(log: EventLog) -> None:
    await log.append(await log.register(await log.experiment("killed"), role="tap"), [NewEvent("asked", 1, "c", b"x")])


async def _redacted(log: EventLog) -> None:
    of = await log.create_experiment("new")
    writer = await log.register(of, role="tap")
    await log.append(writer, [NewEvent("sent", 1, "c", b"x")])
    await log.touch(writer, ended_at=5)
    await redact(log, of, RedactionFilter(kinds=("sent",)), who="me", why="asked to")


async def _closed(log: EventLog) -> None:
    of = await log.create_experiment("new")
    for _ in range(2):
        await log.touch(await log.register(of, role="tap"), ended_at=5)
    await close(log, of)


@pytest.mark.parametrize(
    ("made", "reasons"),
    [
        (_chain, ["chains of recorders that began since 0003 would no longer verify (killed)"]),
        (
            _arrival,
            [
                "chains of recorders that began since 0003 would no longer verify (killed)",
                "Messagers, arrivals and origins of events would be lost (killed)",
            ],
        ),
        (
            _call,
            [
                "chains of recorders that began since 0003 would no longer verify (killed)",
                "model calls would have no kind (killed)",
            ],
        ),
        (_parent, ["forks would not know their parents (fork)"]),
        (
            _redacted,
            [
                "chains of recorders that began since 0003 would no longer verify (new)",
                "redactions would no longer fit their heads (new)",
            ],
        ),
        (_closed, ["heads of closed experiments would change (new)"]),
    ],
)
async def test_a_downgrade_is_refused_with_every_reason_and_changes_nothing(
    upgraded: str, made: object, reasons: list[str]
) -> None:
    assert callable(made)
    async with EventLog.open(upgraded) as log:
        await made(log)
    before = await rows_of(upgraded)
    with pytest.raises(DowngradeRefused) as refused:
        await migrate(upgraded, "0002")
    assert (refused.value.revision, refused.value.reasons) == ("0002", reasons)
    assert await rows_of(upgraded) == before
    assert await _differences(upgraded) == []


@pytest.mark.postgres
async def test_a_downgrade_sees_what_is_recorded_while_it_begins(upgraded: str) -> None:
    async def waits() -> bool:
        query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('relation', 'transactionid', 'tuple')"
        async with log.database.reading() as connection:
            return bool((await connection.exec_driver_sql(query)).scalar_one())

    async with EventLog.open(upgraded) as log:
        writer = await log.register(await log.experiment("killed"), role="tap")
        async with log.database.writing() as connection:
            await connection.execute(text("UPDATE recorder SET last_seq = 1 WHERE id = :id"), {"id": writer.id})
            downgrading = asyncio.create_task(migrate(upgraded, "0002"))
            await until(waits)
    with pytest.raises(
        DowngradeRefused, match=r"chains of recorders that began since 0003 would no longer verify \(killed\)"
    ):
        await downgrading


async def test_experiments_and_recorders_without_events_go_down(upgraded: str) -> None:
    before = {exp_id: head for exp_id, (head, _) in (await _heads(upgraded)).items()}
    async with EventLog.open(upgraded) as log:
        await log.touch(await log.register(await log.create_experiment("empty"), role="tap"), ended_at=5)
        await log.touch(await log.register(await log.experiment("secret"), role="tap"), ended_at=5)
        # names are inserted before the events that refer to them, which may never follow
        await intern(log.database, (await log.experiment("secret")).id, {(MESSAGER, b"m"), (RECORDER, b"r")})
    await migrate(upgraded, "0002")
    assert sql(upgraded, "SELECT what FROM name WHERE what > 1") == []
    versions = sql(upgraded, "SELECT exp_id, schema_version FROM experiment WHERE exp_id IN ('empty', 'secret')")
    assert sorted(map(tuple, versions)) == [("empty", 2), ("secret", 2)]
    await migrate(upgraded, "head")
    after = await _heads(upgraded)
    assert after["empty"][1] == after["secret"][1] == []
    assert {exp_id: head for exp_id, (head, _) in after.items() if exp_id not in ("empty", "secret")} == {
        exp_id: head for exp_id, head in before.items() if exp_id != "secret"
    }


async def test_a_recorder_that_had_registered_only_keeps_its_chain_version(log: EventLog) -> None:
    [writer] = await of_version_2(log, "e1")
    async with log.database.writing() as connection:
        await connection.execute(text("UPDATE recorder SET epoch = 1"))
    of = await log.experiment("e1")
    again = await log.register(of, role="messager", name=writer.uuid)  # as a drain does after a lost answer
    await log.append(again, [NewEvent("sent", 1, "c", b"x")])
    await log.touch(again, ended_at=5)
    verdict = await verify(log, of)
    assert (verdict.problems, verdict.events) == ([], 1)


@pytest.mark.postgres
async def test_an_upgrade_does_not_rewrite_the_events_of_postgresql(earlier: str) -> None:
    def places() -> list[object]:
        files = sql(earlier, "SELECT pg_relation_filenode('event'), pg_relation_filenode('ix_event_replay')")
        return [*files, *sql(earlier, "SELECT id, ctid, xmin FROM event ORDER BY id")]

    before = places()
    await migrate(earlier, "head")
    assert places() == before


@pytest.mark.sqlite
async def test_an_upgrade_does_not_rewrite_the_events_of_sqlite(unmade: str) -> None:
    await fill_earlier(unmade)
    with closing(sqlite3.connect(unmade)) as connection, connection:
        connection.execute("UPDATE event SET payload = zeroblob(20000)")
    size = _settled(unmade)
    with closing(sqlite3.connect(unmade)) as connection:  # keeps the write-ahead log
        connection.execute("SELECT count(*) FROM event").fetchone()
        await migrate(unmade, "head")
        written = Path(f"{unmade}-wal").stat().st_size
    assert written < size / 10
    assert sql(unmade, "SELECT version_num FROM alembic_version")[0][0] == HEAD_REVISION


def _settled(store: str) -> int:
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(store).stat().st_size
