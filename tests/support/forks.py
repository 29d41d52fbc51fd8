"""The command line in processes of their own, without half a second of imports each: forks of one that has done them.

What a fork cannot be told is what Python itself reads when it starts: `PYTHON...`, and the locale.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile

_IMPORTS = ("aiosqlite", "asyncpg", "redis.asyncio", "rich.table", "sqlalchemy.ext.asyncio")


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(("PYTHON", "LANG", "LC_"))}


_STARTED_WITH = _read_at_start(os.environ)


def fits(env: Mapping[str, str]) -> bool:
    """Whether a fork in this environment is what a new process would be."""
    return _read_at_start(env) == _STARTED_WITH


def run(arguments: Sequence[str | bytes], cwd: Path, env: dict[str, str], timeout: float) -> tuple[int, bytes, bytes]:
    """Run a verb: its exit code, negative for a signal as in `subprocess`, and what it wrote to stdout and stderr."""
    words = [os.fsdecode(word) for word in arguments]
    here, there = socket.socketpair()
    with here, there, TemporaryFile() as stdout, TemporaryFile() as stderr:
        socket.send_fds(_server(), [b"."], [there.fileno(), stdout.fileno(), stderr.fileno()])
        there.close()
        here.settimeout(timeout)
        told = here.makefile("rw")
        told.write(json.dumps([words, str(cwd), env]) + "\n")
        told.flush()
        process = int(told.readline())
        try:
            code = int(told.readline())
        except TimeoutError:
            os.kill(process, signal.SIGKILL)
            raise subprocess.TimeoutExpired(words, timeout) from None
        stdout.seek(0)
        stderr.seek(0)
        return code, stdout.read(), stderr.read()


@functools.cache
def _server() -> socket.socket:
    here, there = socket.socketpair()
    with there:
        line = [sys.executable, "-P", __file__, str(there.fileno())]
        root = Path(__file__).resolve().parents[2]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(line, cwd=root, stdin=quiet, stdout=quiet, pass_fds=[there.fileno()])
    atexit.register(process.wait)
    atexit.register(here.close)  # before that: they are called from the last to the first
    return here


def _serve(orders: socket.socket) -> None:
    """Fork for each order, until nobody can give one any more. Returns in the process that is to be the verb."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, (fds), *_ = socket.recv_fds(orders, 1, 3)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            orders.close()
            _watch(socket.socket(fileno=fds[0]), fds[1], fds[2])
            return
        for fd in fds:
            os.close(fd)


def _watch(asks: socket.socket, stdout: int, stderr: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with asks, asks.makefile("rw") as told:
        arguments, cwd, env = json.loads(told.readline())
        process = os.fork()
        if process:
            told.write(f"{process}\n")
            told.flush()
            told.write(f"{os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])}\n")
            told.flush()
            os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for fd, place in ((stdout, 1), (stderr, 2)):
        os.dup2(fd, place)
        os.close(fd)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv[1:] = arguments


if __name__ == "__main__":
    import gc
    from importlib import import_module

    from messager_store import cli

    for name in (*_IMPORTS, *(f"messager_store.cli.commands.{verb}" for verb in cli.verbs.VERBS)):
        import_module(name)
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    cli.main()
