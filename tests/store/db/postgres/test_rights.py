"""Rights on PostgreSQL: an error names all missing rights for a task, with the commands that grant them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from urllib.parse import quote

import pytest

from messager_store import EventLog
from messager_store.errors import StoreError, StoreUnavailable
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.recording.closing import close
from messager_store.testing import SUPERUSER, Databases, PostgresServer, execute
from tests.store.db.postgres.test_refusals import refused
from tests.support import messager
from tests.support.logs import experiment, filled, listed, sent

pytestmark = pytest.mark.postgres


async def test_a_database_that_may_not_be_connected_to_is_told_with_the_command_that_gives_the_right(
    postgres: PostgresServer,
) -> None:
    store = Databases(postgres.url("postgres")).create()
    name = store.rpartition("/")[2]
    execute(store, "CREATE ROLE stranger LOGIN", f"REVOKE CONNECT ON DATABASE {name} FROM public")
    grant = f'`GRANT CONNECT ON DATABASE {name} TO "stranger"`'
    await refused(postgres.url(name, "stranger"), f"CONNECT on database {name} is missing: {grant}")


async def test_who_may_not_make_the_tables_is_told_of_all_that_it_takes(postgres: PostgresServer) -> None:
    store = Databases(postgres.url("postgres")).create()
    execute(store, "CREATE ROLE maker LOGIN", "REVOKE ALL ON SCHEMA public FROM public")
    url = postgres.url(store.rpartition("/")[2], "maker")
    for create in (True, False):  # what may not be seen is not taken for an empty database
        with pytest.raises(StoreUnavailable, match="may not make its tables: `GRANT USAGE, CREATE ON SCHEMA public"):
            await EventLog.open(url, create=create)
    with pytest.raises(StoreUnavailable) as caught:
        await EventLog.open(url)
    execute(store, *grants(caught.value))
    async with EventLog.open(url) as log:
        await filled(log, [sent(1)])
    await refused(f"{url}?search_path=nowhere", r"no schema of its search_path \(nowhere\) is there: make one with")


def grants(error: StoreError, job: str = "") -> list[str]:
    """Return the statements of an error that grant the rights for a task."""
    found = re.search(f"{job}.*?`(.+?)`", str(error))
    assert found is not None, str(error)
    return found[1].split("; ")


@pytest.mark.parametrize("schema", ["public", pytest.param("Other One", marks=pytest.mark.nightly)])
async def test_all_rights_that_are_missing_for_a_job_are_named_at_once_with_the_commands_that_give_them(
    postgres: PostgresServer, schema: str, tmp_path: Path
) -> None:
    """The named rights are sufficient for each task."""
    name = Databases(postgres.url("postgres")).create().rpartition("/")[2]
    path = f"?search_path={quote(chr(34) + schema + chr(34))}"
    role = f"reader_{schema[0]}".lower()
    store, url = postgres.url(name) + path, postgres.url(name, role) + path
    execute(
        store,
        f"CREATE ROLE {role} LOGIN",
        f'CREATE SCHEMA IF NOT EXISTS "{schema}"',
        f'REVOKE ALL ON SCHEMA "{schema}" FROM public',
    )
    async with EventLog.open(store) as log:
        await filled(log, [sent(1)])
    with pytest.raises(StoreUnavailable, match=rf'^.*the user "{role}" lacks rights on it: to read, ') as caught:
        await EventLog.open(url, create=False)
    execute(store, *grants(caught.value, "to read"))
    async with EventLog.open(url) as log:
        assert len(await listed(log.read("e1"))) == 1
        async with log.database.reading() as connection:
            assert (await connection.exec_driver_sql("SELECT count(*) FROM event_view")).scalar_one() == 1
        assert (await verify(log, await log.experiment("e1"))).problems == []
        with pytest.raises(
            StoreUnavailable, match=r"on it: to record, .* to remove, .* to redact or upgrade"
        ) as caught:
            await log.register(await log.experiment("e1"), role="tap")
        execute(store, *grants(caught.value, "to record"))
        writer = await log.register(await log.experiment("e1"), role="tap")
        await log.append(writer, [sent(2, channel="another")])
        await log.recover(writer)
        await log.append(await log.take_over(writer.uuid), [sent(3)])
        await log.tag(await log.experiment("e1"), ["a"], [])
        await close(log, await log.experiment("e1"), force=True)
        await export_jsonl(log, "e1", tmp_path / "a.jsonl")
        await import_jsonl(log, tmp_path / "a.jsonl", "e2")
        with pytest.raises(StoreUnavailable, match=r"on it: to remove, `GRANT DELETE ON .*`; to redact") as caught:
            await remove(log, await log.experiment("e2"))
        assert (await log.experiment("e2")).status == "closed"  # all of it is there still
        execute(store, *grants(caught.value, "to remove"))
        assert await remove(log, await log.experiment("e2"))
        owner = f'on it: to redact or upgrade, be "{SUPERUSER}", who owns its tables$'
        with pytest.raises(StoreUnavailable, match=owner):
            await redact(log, "e1", RedactionFilter(kinds=("sent",)), who="me", why="asked to")
        assert await log.database.rewrite() == "only the owner of its tables can rewrite them"
        assert await remove(log, await log.experiment("e1"))  # a closed experiment is a reason of its own
    done = await asyncio.to_thread(messager, "db", "downgrade", "base", "--yes", "--store", url, cwd=tmp_path)
    assert done.returncode == 3 and re.search(owner, done.stderr.strip()), done.stderr


async def test_a_right_that_is_taken_away_in_mid_recording_is_named(postgres: PostgresServer) -> None:
    store = Databases(postgres.url("postgres")).create()
    async with EventLog.open(store) as log:
        await experiment(log)
    execute(
        store,
        "CREATE ROLE writer LOGIN",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO writer",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO writer",
    )
    async with EventLog.open(postgres.url(store.rpartition("/")[2], "writer")) as log:
        writer = await log.register(await log.experiment("e1"), role="tap")
        await log.append(writer, [sent(1)])
        execute(store, "REVOKE INSERT ON event, batch FROM writer")
        with pytest.raises(StoreUnavailable, match='to record, `GRANT INSERT ON event, batch TO "writer"`; to redact'):
            await log.append(writer, [sent(2)])
        execute(store, "GRANT INSERT ON event, batch TO writer")
        await log.recover(writer)
        await log.append(writer, [sent(2)])
        assert [entry.ts for entry in await listed(log.read("e1"))] == [1, 2]
