"""A PostgreSQL that cannot be had: URLs, drivers, passwords and rights, each told in one line that shows no secret."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from messager_store import EventLog
from messager_store.dialects import for_store
from messager_store.errors import NotAStore, StoreError, StoreUnavailable
from messager_store.testing import GUARDED, Databases, PostgresServer, execute
from tests.integration.test_log import filled, listed, sent

pytestmark = pytest.mark.postgres


URLS = [
    "postgresql://u:hunter2@Host/db",
    "postgres://u:hunter2@host:5432/db",
    "postgresql+asyncpg://host/db",
    "postgresql://host/db?user=u&password=hunter2&sslmode=require",
]


@pytest.mark.parametrize("url", URLS)
def test_a_store_has_one_name_without_credentials_and_one_folder_for_spools(url: str, tmp_path: Path) -> None:
    dialect = for_store(url)
    assert dialect.where == "postgresql://host/db"
    assert dialect.spool_folder == for_store(URLS[0]).spool_folder
    assert Path(dialect.spool_folder).parent == tmp_path / "state" / "messager" / "spool"
    assert dialect.spool_folder != for_store("postgresql://host/db2").spool_folder


def test_what_says_which_store_it_is_stays_in_its_name() -> None:
    assert for_store("postgresql://u@/db?host=/run/pg&port=5433").where == "postgresql:///db?host=/run/pg&port=5433"
    assert for_store("postgresql://a:1,b:2/db?search_path=x").where == "postgresql://a:1,b:2/db?search_path=x"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql+psycopg2://u:hunter2@h/db", "through asyncpg: write postgresql://"),
        ("postgresql://u:hunter2@h", "names no database"),
        ("postgresql://u:hunter2@h/", "names no database"),
        ("postgresql://u:hun/ter2@h/db", "percent-encoded"),
        ("postgresql://u:hunter2#@h/db", "percent-encoded"),
        ("postgresql://u:hunter2@x@h/db", "percent-encoded"),
        ("postgresql://u:hunter2@h:port/db", "port is not a number"),
        ("postgresql://u:hunter2\udce4@h/db", "not a PostgreSQL URL"),
    ],
)
def test_a_url_that_cannot_be_read_is_told_without_its_secrets(url: str, reason: str) -> None:
    with pytest.raises(StoreError, match=reason) as caught:
        for_store(url)
    assert "hunter2" not in str(caught.value) and "ter2" not in str(caught.value)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("messager_store.dialects.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StoreError, match=r"pip install 'messager\[postgres\]'"):
        for_store("postgresql://h/db")


async def refused(url: str, reason: str, error: type[StoreError] = StoreUnavailable) -> None:
    with pytest.raises(error, match=reason) as caught:
        async with asyncio.timeout(5), EventLog.open(url):
            pass
    assert "hunter2" not in str(caught.value) and "\n" not in str(caught.value)


async def test_what_keeps_one_out_is_told_in_one_line(server: PostgresServer) -> None:
    databases = Databases(server.url("postgres"))
    store = databases.create()
    name = store.rpartition("/")[2]
    execute(store, f"CREATE ROLE {GUARDED} LOGIN PASSWORD 'other'")
    await refused(server.url(name, GUARDED, "hunter2"), "the password is wrong, or there is no such user")
    await refused(server.url("nowhere"), "no database 'nowhere': make it with `createdb -E UTF8 nowhere`")
    await refused(server.url(name, port=1), "nobody listens there")
    await refused(server.url(name).replace("127.0.0.1", "no-such-host.invalid"), "no such host")
    await refused(
        server.url(name) + "?sslmode=require",
        "refuses this user, this host, or a connection of this kind|"
        "PostgreSQL server at|SSL|something in the URL|connection broke",
    )
    await refused(server.url(name) + "?nonsense=1", "nonsense")
    for wrong in ("sslmode=bad", "target_session_attrs=bad"):
        await refused(
            f"{server.url(name)}?{wrong}", "something in the URL, or in a PG... variable, is wrong", StoreError
        )
    execute(server.url("postgres"), "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    await refused(server.url("latin"), "its encoding is not UTF8")
    execute(store, "CREATE TABLE recipes (id int)")
    await refused(store, "recipes", NotAStore)
    execute(store, "DROP TABLE recipes", f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await refused(store, "only reads")


async def test_a_password_that_nobody_can_send_is_not_shown(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(server.url("postgres"), f"CREATE ROLE {GUARDED} LOGIN PASSWORD 'other'")
    monkeypatch.setenv("PGPASSWORD", "hunter2\udce4")
    await refused(server.url("postgres", GUARDED), "in a PG... variable, is wrong", StoreError)


async def test_the_right_that_is_missing_is_named_with_the_command_that_gives_it(server: PostgresServer) -> None:
    databases = Databases(server.url("postgres"))
    store = databases.create()
    name = store.rpartition("/")[2]
    execute(store, "CREATE ROLE reader LOGIN", f"REVOKE CONNECT ON DATABASE {name} FROM public")
    reader = server.url(name, "reader")
    await refused(reader, f'CONNECT on database {name} is missing: `GRANT CONNECT ON DATABASE {name} TO "reader"`')
    execute(store, f"GRANT CONNECT ON DATABASE {name} TO reader", "REVOKE CREATE ON SCHEMA public FROM public")
    await refused(
        reader, r"the right CREATE on schema public is missing: `GRANT .* CREATE ON SCHEMA public TO \"reader\"`"
    )
    async with EventLog.open(store) as log:
        await filled(log, [sent(1)])
    execute(store, "GRANT SELECT ON alembic_version TO reader")
    async with EventLog.open(reader) as log:
        with pytest.raises(StoreUnavailable, match="the right SELECT on table experiment is missing"):
            await log.experiment("e1")
        execute(store, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        assert len(await listed(log.read("e1"))) == 1
        with pytest.raises(
            StoreUnavailable, match=r"the right UPDATE on table experiment is missing: .*GRANT SELECT, INS"
        ):
            await log.register(await log.experiment("e1"), role="tap")
        execute(store, "GRANT SELECT, INSERT, UPDATE, DELETE ON experiment, recorder, name TO reader")
        with pytest.raises(StoreUnavailable, match="USAGE on sequence recorder_id_seq"):
            await log.register(await log.experiment("e1"), role="tap")
        execute(store, "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO reader")
        writer = await log.register(await log.experiment("e1"), role="tap")
        with pytest.raises(StoreUnavailable, match="the right INSERT on table batch is missing"):
            await log.append(writer, [sent(2)])
        execute(store, "GRANT INSERT ON batch TO reader")
        await log.recover(writer)
        with pytest.raises(StoreUnavailable, match="the right INSERT on table event is missing"):
            await log.append(writer, [sent(2)])
        execute(store, "GRANT INSERT ON event TO reader")
        await log.recover(writer)
        await log.append(writer, [sent(2)])
        assert await log.database.rewrite() == "only the owner of its tables can rewrite them"
