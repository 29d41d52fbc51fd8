"""Refused connections to PostgreSQL: URLs, drivers, passwords and limits, each in one line without secrets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
import trustme

from messager_store import EventLog
from messager_store.db.databases import for_store
from messager_store.errors import NotAStore, StoreError, StoreUnavailable
from messager_store.testing import GUARDED, Databases, PostgresServer, execute, postgres_server, transaction
from tests.support import messager, until
from tests.support.logs import experiment, filled, listed, sent

pytestmark = pytest.mark.postgres


URLS = [
    "postgresql://u:hunter2@Host/db",
    "postgres://u:hunter2@host:5432/db",
    "postgresql+asyncpg://host/db",
    "postgresql://host/db?user=u&password=hunter2&sslmode=require",
]


def test_a_store_has_one_name_without_credentials_and_one_folder_for_spools(tmp_path: Path) -> None:
    for url in URLS:
        dialect = for_store(url)
        assert dialect.location == "postgresql://host/db"
        assert dialect.spool_folders[0] == for_store(URLS[0]).spool_folders[0]
        assert Path(dialect.spool_folders[0]).parent == tmp_path / "state" / "messager" / "spool"
        assert dialect.spool_folders[0] != for_store("postgresql://host/db2").spool_folders[0]


def test_what_says_which_store_it_is_stays_in_its_name() -> None:
    assert for_store("postgresql://u@/db?host=/run/pg&port=5433").location == "postgresql:///db?host=/run/pg&port=5433"
    assert for_store("postgresql://a:1,b:2/db?search_path=x").location == "postgresql://a:1,b:2/db?search_path=x"


def test_a_url_that_cannot_be_read_is_told_without_its_secrets() -> None:
    for url, reason in [
        ("postgresql+psycopg2://u:hunter2@h/db", "through asyncpg: write postgresql://"),
        ("postgresql://u:hunter2@h", "names no database"),
        ("postgresql://u:hunter2@h/", "names no database"),
        ("postgresql://u:hun/ter2@h/db", "percent-encoded"),
        ("postgresql://u:hunter2#@h/db", "percent-encoded"),
        ("postgresql://u:hunter2@x@h/db", "percent-encoded"),
        ("postgresql://u:hunter2@h:port/db", "port is not a number"),
        ("postgresql://u:hunter2\udce4@h/db", "not a PostgreSQL URL"),
    ]:
        with pytest.raises(StoreError, match=reason) as caught:
            for_store(url)
        assert "hunter2" not in str(caught.value) and "ter2" not in str(caught.value)


def test_a_missing_driver_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("messager_store.db.postgres.dialect")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StoreError, match=r"pip install 'asyncpg>=0\.29'"):
        for_store("postgresql://h/db")


async def refused(url: str, reason: str, error: type[StoreError] = StoreUnavailable) -> None:
    with pytest.raises(error, match=reason) as caught:
        async with asyncio.timeout(60), EventLog.open(url):
            pass
    assert "hunter2" not in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.exit_code == (3 if error is StoreUnavailable else 2)


def guarded(store: str) -> list[str]:
    """Return the statements that make the user who needs a password, if there is none."""
    there = execute(store, f"SELECT 1 FROM pg_roles WHERE rolname = '{GUARDED}'")
    return [] if there else [f"CREATE ROLE {GUARDED} LOGIN PASSWORD 'other'"]


async def test_what_keeps_one_out_is_told_in_one_line(postgres: PostgresServer) -> None:
    databases = Databases(postgres.url("postgres"))
    store = databases.create()
    name = store.rpartition("/")[2]
    execute(
        store,
        *guarded(store),
        "CREATE ROLE plain LOGIN",
        "CREATE ROLE mute",
        "CREATE ROLE busy LOGIN CONNECTION LIMIT 0",
        f"CREATE DATABASE full_up TEMPLATE {name} CONNECTION LIMIT 0",
        "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0",
    )
    await refused(postgres.url(name, GUARDED, "hunter2"), "the password is wrong, or there is no such user")
    await refused(postgres.url(name, "nobody", "hunter2"), 'there is no user "nobody" on the server')
    await refused(postgres.url(name, "mute", "hunter2"), 'the user "mute" may not log in: `ALTER ROLE "mute" LOGIN`')
    await refused(postgres.url(name, "busy", "hunter2"), 'the role "busy" has all the connections that it may have')
    await refused(postgres.url("full_up", "plain"), 'the database "full_up" has all the connections that it may have')
    await refused(postgres.url("nowhere"), "no database 'nowhere': make it with `createdb -E UTF8 nowhere`")
    await refused(postgres.url(name, port=1), "nobody listens there")
    await refused(postgres.url(name).replace("127.0.0.1", "no-such-host.invalid"), "no such host")
    await refused(f"postgresql:///{name}?host={postgres.folder}/none", "no such socket")
    await refused(f"{postgres.url(name)}?nonsense=1", 'the URL has a parameter "nonsense", and neither')
    await refused(f"{postgres.url(name)}?target_session_attrs=standby", "no server of the URL is of the kind")
    for wrong in ("sslmode=bad", "target_session_attrs=bad"):
        await refused(
            f"{postgres.url(name)}?{wrong}", "something in the URL, or in a PG... variable, is wrong", StoreError
        )
    await refused(postgres.url("latin"), "its encoding is not UTF8")
    execute(store, "CREATE TABLE recipes (id int)")
    await refused(store, "recipes", NotAStore)
    execute(store, "DROP TABLE recipes", f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await refused(store, "the server only reads: .* write to the primary")


async def test_a_server_without_tls_is_told_where_tls_is_asked_for(postgres: PostgresServer, tmp_path: Path) -> None:
    store = postgres.url("postgres")
    (tmp_path / "root.crt").write_text("no certificate")
    await refused(f"{store}?sslmode=require", "does not speak TLS, and sslmode asks for it: .* or use sslmode=prefer")
    await refused(f"{store}?ssl=true", "asks for TLS with ssl: write sslmode=require")
    await refused(f"{store}?sslmode=verify-full", "name the file of that authority with sslrootcert=FILE")
    await refused(
        f"{store}?sslmode=require&sslrootcert=/none", "the file /none, which sslrootcert names, cannot be read"
    )
    await refused(f"{store}?sslmode=require&sslrootcert={tmp_path}/root.crt", "TLS: no certificate or crl found")


@contextlib.asynccontextmanager
async def behind_tls(store: str, context: ssl.SSLContext) -> AsyncIterator[str]:
    """Return the URL of the store behind a server that accepts TLS."""
    parts = urlsplit(store)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readexactly(8)  # which asks for TLS
            writer.write(b"S")
            await writer.start_tls(context)
            there_reader, there = await asyncio.open_connection(parts.hostname, parts.port)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()
            return
        await asyncio.gather(pump(reader, there), pump(there_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{port}")))


@pytest.mark.parametrize(
    ("host", "options", "reason"),
    [
        ("127.0.0.1", "sslmode=verify-full&sslrootcert=CA", ""),
        pytest.param("127.0.0.1", "sslmode=require", "", marks=pytest.mark.nightly),
        ("127.0.0.1", "sslmode=verify-full&sslrootcert=OTHER", "not accepted: .*; name the file of who signed it with"),
        pytest.param(
            *(
                "example.org",
                "sslmode=verify-full&sslrootcert=CA",
                "not accepted: .*; name a host that it is for, or use",
            ),
            marks=pytest.mark.nightly,
        ),
    ],
)
async def test_certificates_are_checked_as_the_url_says(
    store: str, tmp_path: Path, host: str, options: str, reason: str
) -> None:
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(host).configure_cert(context)
    for name, of in (("CA", authority), ("OTHER", trustme.CA())):
        of.cert_pem.write_to_path(str(tmp_path / name))
        options = options.replace(f"={name}", f"={tmp_path / name}")
    async with behind_tls(store, context) as url:
        if reason:
            await refused(f"{url}?{options}", reason)
        else:
            async with EventLog.open(f"{url}?{options}") as log:
                assert len(await listed(log.read(await filled(log, [sent(1)])))) == 1


@pytest.mark.nightly
async def test_a_server_that_takes_no_more_connections_is_told(tmp_path: Path) -> None:
    settings = "max_connections=3", "superuser_reserved_connections=0", "max_wal_senders=0"
    with postgres_server(*settings) as server, contextlib.ExitStack() as held:
        for _ in range(3):
            held.enter_context(transaction(server.url("postgres")))
        await refused(server.url("postgres"), "takes no more connections: end some, or raise its max_connections")


@pytest.mark.nightly
async def test_a_server_that_is_going_down_is_told(server: PostgresServer) -> None:
    store = server.url("postgres")
    with transaction(store):  # for which it waits
        pid = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGTERM)

        async def takes_nobody() -> bool:
            try:
                await (await asyncpg.connect(store)).close()
            except asyncpg.CannotConnectNowError:
                return True
            return False

        await until(takes_nobody)
        await refused(store, "the server takes nobody now, as it starts, recovers or shuts down: try again")


async def test_a_pooler_that_refuses_settings_is_told() -> None:
    async def pooler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # which asks for TLS
        writer.write(b"N")
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)) - 4)
        fields = b"SFATAL\0C08P01\0Munsupported startup parameter: lock_timeout\0\0"
        writer.write(b"E" + (len(fields) + 4).to_bytes(4) + fields)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(pooler, "127.0.0.1", 0) as server:
        url = f"postgresql://u:hunter2@127.0.0.1:{server.sockets[0].getsockname()[1]}/db"
        await refused(url, "a pooler in between refuses the setting lock_timeout: connect to the server itself$")


async def test_a_pooler_that_changes_connections_between_transactions_is_told(store: str) -> None:
    async with EventLog.open(store) as log:
        of = await experiment(log)

        async def find_it_prepared_no_more() -> None:
            for _ in range(2):
                async with log.database.writing() as connection:
                    await connection.exec_driver_sql("SELECT 1")
                    await connection.exec_driver_sql("DEALLOCATE ALL")

        with pytest.raises(StoreUnavailable, match="have it pool sessions"):
            await find_it_prepared_no_more()
        assert (await log.register(of, role="tap")).ordinal == 1


@pytest.mark.nightly
async def test_a_replica_is_read_from_and_says_that_it_only_reads(server: PostgresServer, tmp_path: Path) -> None:
    store = Databases(server.url("postgres")).create()
    async with EventLog.open(store) as log:
        await filled(log, [sent(1), sent(2)])
    server.stop()
    (server.folder / "data" / "standby.signal").touch()
    server.start()
    for verb in (
        ["ls"],
        ["info", "e1"],
        ["events", "e1"],
        ["verify", "e1"],
        ["export", "e1", "-o", "a.jsonl"],
        ["db", "check"],
    ):
        done = await asyncio.to_thread(messager, *verb, "--store", store, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), (verb, done.stderr)
    async with EventLog.open(store) as log:
        assert [entry.ts for entry in await listed(log.read("e1"))] == [1, 2]
        with pytest.raises(StoreUnavailable, match="only reads: it is a replica"):
            await log.register(await log.experiment("e1"), role="tap")


async def test_a_password_that_nobody_can_send_is_not_shown(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(postgres.url("postgres"), *guarded(postgres.url("postgres")))
    monkeypatch.setenv("PGPASSWORD", "hunter2\udce4")
    await refused(postgres.url("postgres", GUARDED), "in a PG... variable, is wrong", StoreError)
