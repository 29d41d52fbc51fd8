"""A real Redis, MQTT broker and PostgreSQL for the whole run, and a scrubbed environment for each test."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import settings

from messager import MemoryBroker, RedisBroker
from messager.brokers import Broker, MqttBroker, open_broker
from messager.testing import MqttServer, RedisServer, mqtt_server, redis_server
from messager_store import EventLog
from messager_store.db.database import Database
from messager_store.maintenance.removal import remove
from messager_store.recording import committer, recorder
from messager_store.testing import Databases, PostgresServer, postgres_server
from tests.support import Stores
from tests.support.logs import filled, sent


def _in_memory() -> None:
    """Have temporary files in memory, where there is room: the tests make and remove them by the hundred thousand."""
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK | os.X_OK):
        return
    found = os.statvfs(memory)
    if found.f_bavail * found.f_frsize >= 4 << 30 and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(memory)


_in_memory()

settings.register_profile("messager", deadline=None)  # how long a test takes says nothing about the code
settings.load_profile("messager")

STORES = ("sqlite", "postgres")
GIVEN_POSTGRES = os.environ.get("MESSAGER_TEST_POSTGRES")
"""The URL of a PostgreSQL that may create databases, to be used instead of one that the tests start."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: a test waits for others about as long as it works."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """What is there by now stays: the garbage collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is promised of a store is promised of each; a test may be about one of them."""
    if "stores" in metafunc.fixturenames:
        only = [kind for kind in STORES if metafunc.definition.get_closest_marker(kind)]
        metafunc.parametrize("stores", only or STORES, indirect=True)


@pytest.fixture(autouse=True)
def scrubbed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("MESSAGER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="session")
def mqtt() -> Iterator[MqttServer]:
    with mqtt_server() as server:
        yield server


@pytest.fixture(params=["redis", "memory", "mqtt"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """Each carrier in turn, held to the same promises."""
    if request.param == "memory":
        yield MemoryBroker()
        return
    server: RedisServer | MqttServer = request.getfixturevalue(request.param)
    made = open_broker(server.url)
    yield made
    await made.close()


@pytest.fixture
async def redis_broker(redis: RedisServer) -> AsyncIterator[RedisBroker]:
    made = RedisBroker.from_url(redis.url)
    yield made
    await made.close()


@pytest.fixture
async def mqtt_broker(mqtt: MqttServer) -> AsyncIterator[MqttBroker]:
    made = MqttBroker.from_url(mqtt.url)
    yield made
    await made.close()


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    if GIVEN_POSTGRES:
        given = urlsplit(GIVEN_POSTGRES)  # for tests that know a store by its URL without credentials
        os.environ |= {"PGUSER": unquote(given.username or ""), "PGPASSWORD": unquote(given.password or "")}
        yield Databases(GIVEN_POSTGRES)
        return
    with postgres_server() as server:
        yield Databases(server.url("postgres"))


@pytest.fixture(scope="session")
def migrated(databases: Databases) -> Iterator[str]:
    """A store on PostgreSQL without anything in it, to be copied."""

    async def make() -> None:
        database = Database(url)
        await database.open()
        await database.close()

    url = databases.create()
    asyncio.run(make())
    yield url
    databases.drop(url)


@pytest.fixture
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """Each kind of store in turn, as many as are asked for."""
    if request.param == "sqlite":
        made = Stores(tmp_path)
    else:  # made when a test needs it
        made = Stores(tmp_path, request.getfixturevalue("databases"), request.getfixturevalue("migrated"))
    yield made
    made.remove()


@pytest.fixture
def store(stores: Stores) -> str:
    """A store by its URL or file name."""
    return stores.fresh()


@pytest.fixture
def unmade(stores: Stores) -> str:
    """A store that nobody has made yet."""
    return stores.unmade()


@pytest.fixture
async def log(store: str) -> AsyncIterator[EventLog]:
    async with EventLog.open(store) as opened:
        yield opened


@pytest.fixture
async def other(stores: Stores) -> AsyncIterator[EventLog]:
    async with EventLog.open(stores.fresh()) as opened:
        # ids differ from those in the first store
        await remove(opened, await filled(opened, [sent(1)], "gone"))
        yield opened


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short times, so that an outage need not be long."""
    monkeypatch.setattr("messager_store.db.sqlite.dialect.BUSY_TIMEOUT_MS", 50)
    monkeypatch.setattr("messager_store.db.postgres.dialect.LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(committer, "SPOOL_SECONDS", 0.05)
    monkeypatch.setattr(committer, "HOLD_SECONDS", 0.2)
    monkeypatch.setattr(recorder, "STOP_SECONDS", 0.3)
    monkeypatch.setattr(committer, "STOP_SECONDS", 0.3)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own, which it may stop and kill."""
    with postgres_server(durable=True) as started:
        yield started
