"""Guard: connections and programs that no hook sees, counted while recording and refused while serving.

An audit hook of the interpreter sees every socket of Python that connects. It cannot be removed, and does nothing
without a guard. uvloop and gRPC connect in C: their functions are wrapped. Unix sockets always pass.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from functools import wraps
from typing import Any, Literal

from ..on_import import on_import
from .exchange import CallRefused, is_inside, log_failure
from .model_paths import is_link_local

Mode = Literal["note", "refuse"]
_ANY_HOST = "*"
_HARMLESS = {"uname"}
"""Programs without calls, which the standard library starts."""


class Guard:
    """Counts what no hook sees, and refuses connections if its mode is "refuse"."""

    def __init__(self, mode: Mode, allowed: Iterable[tuple[str, int]] = ()) -> None:
        """`allowed` are hosts and ports of the broker and the store; the host "*" stands for all."""
        self.mode = mode
        self.connections: Counter[tuple[str, int]] = Counter()
        """Connections that no hook saw, by host and port."""
        self.programs: Counter[str] = Counter()
        """Programs that were started, by name, without those of Python."""
        self._allowed: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        for host, port in allowed:
            self.allow(host, port)

    def allow(self, host: str, port: int) -> None:
        """Let connections to a host pass uncounted, under all its addresses."""
        self._allowed.add((host, port))
        if host == _ANY_HOST:
            return
        self.connections.pop((host, port), None)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:  # then nothing can connect to it by name, either
            return
        for *_, address in found:
            self._allowed.add((str(address[0]), port))
            self.connections.pop((str(address[0]), port), None)  # it was counted before it was known

    def connecting(self, host: str, port: int) -> None:
        """Note a connection. Raises `CallRefused` if it is refused."""
        if is_inside() or (host, port) in self._allowed or (_ANY_HOST, port) in self._allowed:
            return
        if self.mode == "note" and is_link_local(host):
            return
        with self._lock:
            self.connections[host, port] += 1
        if self.mode == "refuse":
            raise CallRefused(
                f"the connection to {host}:{port} is refused: it is no recorded call, and what it brings would "
                f"not be that of the recording. Allow it with --allow {host}:{port}"
            )

    def starting(self, program: str) -> None:
        """Note the start of a program. Python is left out: a process of its own records its calls."""
        name = os.path.basename(program)
        if name and name not in _HARMLESS and not name.startswith("python") and not is_inside():
            with self._lock:
                self.programs[name] += 1

    def lines(self) -> list[str]:
        """Return a line for each host and each program that was not recorded, the most frequent first."""
        done = "refused" if self.mode == "refuse" else "not recorded"
        lines = [
            f"{count} connection{'s' if count > 1 else ''} to {host}:{port} {'were' if count > 1 else 'was'} {done}"
            for (host, port), count in self.connections.most_common()
        ]
        lines += [
            f"{name} was started {count} time{'s' if count > 1 else ''}: calls that it makes are not recorded"
            for name, count in self.programs.most_common()
        ]
        return lines


_guard: Guard | None = None
_added = False
_counted = threading.local()
"""`program`: what `subprocess` is starting in this thread, as it may do so with `os.posix_spawn`."""


def watch(guard: Guard | None) -> None:
    """Use a guard for this process, in place of the one before; None for no guard."""
    global _guard, _added
    _guard = guard
    if guard is not None and not _added:
        _added = True
        sys.addaudithook(_audit)
        on_import(["uvloop"], _wrap_uvloop)
        on_import(["grpc"], _wrap_grpc)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    guard = _guard
    if guard is None:
        return
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        if isinstance(address, tuple) and len(address) >= 2:
            guard.connecting(str(address[0]), address[1])
    elif event == "subprocess.Popen":
        executable, command = arguments[0], arguments[1]
        first = command if isinstance(command, str | bytes | os.PathLike) else next(iter(command), "")
        _counted.program = os.path.basename(os.fsdecode(executable or first))
        guard.starting(os.fsdecode(executable or first))
    elif event == "os.posix_spawn":
        program = os.fsdecode(arguments[0])
        counted, _counted.program = getattr(_counted, "program", None), None
        if counted != os.path.basename(program):
            guard.starting(program)
    elif event == "os.system":
        guard.starting(next(iter(os.fsdecode(arguments[0]).split()), ""))


def _connecting(host: Any, port: Any) -> None:
    if _guard is not None and host is not None:
        _guard.connecting(str(host), int(port or 0))


def _wrap_uvloop() -> None:
    try:
        loops = sys.modules["uvloop"].Loop
        before = loops.create_connection

        @wraps(before)
        async def create_connection(loop: Any, factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
            _connecting(host, port)
            return await before(loop, factory, host, port, **more)

        loops.create_connection = create_connection
    except Exception:
        log_failure()


def _wrap_grpc() -> None:
    try:
        grpc = sys.modules["grpc"]
        for module in (grpc, getattr(grpc, "aio", None)):
            for name in ("insecure_channel", "secure_channel"):
                if hasattr(module, name):
                    setattr(module, name, _wrapped_channel(getattr(module, name)))
    except Exception:
        log_failure()


def _wrapped_channel(before: Any) -> Any:
    @wraps(before)
    def channel(target: str, *args: Any, **more: Any) -> Any:
        place = target.rpartition("/")[2]  # dns:///host:port
        host, _, port = place.rpartition(":")
        if not target.startswith("unix"):
            _connecting(host or place, port if port.isdigit() else 0)
        return before(target, *args, **more)

    return channel
