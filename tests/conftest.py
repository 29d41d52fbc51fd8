"""Fixtures of every test: real servers for the whole run, stores of each kind, and a clean environment.

`make test` has fixed seeds and few examples, so that a failure repeats. `--nightly` has random seeds, many examples,
the tests marked `nightly`, and every database.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
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
from messager_store.maintenance.removal import remove
from messager_store.recording import committer, recorder
from messager_store.testing import Databases, PostgresServer, postgres_server
from tests.support import Stores
from tests.support.logs import filled, sent
from tests.support.redis_topologies import cluster


def _use_memory_for_temporary_files() -> None:
    """Set TMPDIR to a file system in memory if it has 4 GB free: the tests create and remove many small files."""
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK | os.X_OK):
        return
    found = os.statvfs(memory)
    if found.f_bavail * found.f_frsize >= 4 << 30 and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(memory)


_use_memory_for_temporary_files()

pytest_plugins = ["tests.support.browser"]

# No deadline: the duration of one example depends on the load of the machine.
settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=100)
settings.register_profile("nightly", deadline=None, print_blob=True, max_examples=1000)

STORES = ("sqlite", "postgres")
GIVEN_POSTGRES = os.environ.get("MESSAGER_TEST_POSTGRES")
"""URL of a PostgreSQL to use instead of starting one. Its user may create databases."""


def pytest_addoption(parser: pytest.Parser) -> None:
    help = "random seeds, many examples, tests marked nightly, every database"
    parser.addoption("--nightly", action="store_true", help=help)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background job; processes would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("nightly" if config.getoption("nightly") else "fixed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return five workers for two processors: tests wait more than half of their time."""
    return 5 * (os.cpu_count() or 1) // 2


def pytest_collection_finish() -> None:
    """Exclude the modules and the collected tests from garbage collection, which would traverse them repeatedly."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use a store on SQLite; those marked `databases`, and all in `make nightly`, on PostgreSQL as well.

    The markers `sqlite` and `postgres` name the only database that a test is for.
    """
    if "stores" not in metafunc.fixturenames:
        return
    marked = metafunc.definition.get_closest_marker
    kinds: list[object] = [kind for kind in STORES if marked(kind)]
    if not kinds:
        kinds = ["sqlite", pytest.param("postgres", marks=() if marked("databases") else pytest.mark.nightly)]
    metafunc.parametrize("stores", kinds, indirect=True)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run tests that share a costly server in one process in `make test`, so that it is started once."""
    server = _costly_server(item)
    if server is not None and not item.config.getoption("nightly"):
        item.add_marker(pytest.mark.xdist_group(server))


def _costly_server(item: pytest.Item) -> str | None:
    if not isinstance(item, pytest.Function):
        return None
    if "redis_cluster" in item.fixturenames:
        return "redis_cluster"
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if params.get("stores") == "postgres" or {"databases", "postgres"} & {*item.fixturenames}:
        return "postgres"
    return "mqtt" if params.get("broker") == "mqtt" or "mqtt" in item.fixturenames else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked `nightly`, unless `--nightly` is given or a case is asked for by its name."""
    items.sort(key=lambda item: "test_ray" not in item.nodeid)  # the longest first: workers end at the same time
    if config.getoption("nightly") or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.fixture(scope="session")
def nightly(pytestconfig: pytest.Config) -> bool:
    """True in `make nightly`, where tests that repeat something repeat it more often."""
    return bool(pytestconfig.getoption("nightly"))


@pytest.fixture(autouse=True)
def scrubbed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("MESSAGER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MESSAGER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[list[RedisServer]]:
    """Three nodes for tests that leave the cluster as it is."""
    with asyncio.Runner() as runner:
        made = cluster()
        yield runner.run(made.__aenter__())
        runner.run(made.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def mqtt() -> Iterator[MqttServer]:
    with mqtt_server() as server:
        yield server


@pytest.fixture(params=["redis", "memory", "mqtt"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """Each kind of broker in turn."""
    if request.param == "memory":
        yield MemoryBroker()
        return
    server: RedisServer | MqttServer = request.getfixturevalue(request.param)
    made = open_broker(server.url) if request.param == "redis" else MqttBroker.from_url(server.url, ping_timeout=60.0)
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
def postgres() -> Iterator[PostgresServer]:
    """PostgreSQL server for tests that leave it running. Its roles belong to all of them."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Databases:
    if GIVEN_POSTGRES:
        given = urlsplit(GIVEN_POSTGRES)  # some tests use the URL without its credentials
        os.environ |= {"PGUSER": unquote(given.username or ""), "PGPASSWORD": unquote(given.password or "")}
        return Databases(GIVEN_POSTGRES)
    server: PostgresServer = request.getfixturevalue("postgres")
    return Databases(server.url("postgres"))


async def _migrate(store: str) -> None:
    async with EventLog.open(store):
        pass


@pytest.fixture(scope="session")
def migrated(databases: Databases) -> Iterator[str]:
    """URL of an empty, migrated store on PostgreSQL, the template of the others."""
    url = databases.create()
    asyncio.run(_migrate(url))
    yield url
    databases.drop(url)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Name of the file of an empty, migrated store on SQLite, the template of the others."""
    file = str(tmp_path_factory.mktemp("template") / "log.db")
    asyncio.run(_migrate(file))
    return file


@pytest.fixture
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """Factory of stores, of each kind in turn."""
    if request.param == "sqlite":
        made = Stores(tmp_path, None, request.getfixturevalue("migrated_file"))
    else:  # the server starts with the first test that needs it
        made = Stores(tmp_path, request.getfixturevalue("databases"), request.getfixturevalue("migrated"))
    yield made
    made.remove()


@pytest.fixture
def store(stores: Stores) -> str:
    """URL or file name of an empty store."""
    return stores.fresh()


@pytest.fixture
def unmade(stores: Stores) -> str:
    """URL or file name of a store without tables."""
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
    """Short timeouts, so that tests of outages are short."""
    monkeypatch.setattr("messager_store.db.sqlite.dialect.BUSY_TIMEOUT_MS", 50)
    monkeypatch.setattr("messager_store.db.postgres.dialect.LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr(committer, "SPOOL_SECONDS", 0.05)
    monkeypatch.setattr(committer, "HOLD_SECONDS", 0.2)
    monkeypatch.setattr(recorder, "STOP_SECONDS", 0.3)
    monkeypatch.setattr(committer, "STOP_SECONDS", 0.3)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """PostgreSQL server for one test, which may stop and kill it."""
    with postgres_server(durable=True) as started:
        yield started
