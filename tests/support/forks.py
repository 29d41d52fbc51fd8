"""Processes without half a second of imports each: forks of a process that has imported what they need.

A program is a module with a function `main`, which finds its arguments in `sys.argv`. A fork cannot be given what
Python reads when it starts: `PYTHON...`, and the locale.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
COMMAND_LINE = "messager_store.cli"
_IMPORTS = (
    *("aiosqlite", "asyncpg", "redis.asyncio", "rich.progress", "rich.table", "sqlalchemy.ext.asyncio"),
    *("messager.brokers.redis.broker", "messager_store.cli.count_table", "messager_store.cli.count_timeline"),
    *("messager_store.cli.progress", "messager_store.db.databases", "messager_store.db.migrations"),
    *("messager_store.db.postgres.dialect", "messager_store.db.sqlite.dialect", "messager_store.formats.jsonl.writer"),
    *("messager_store.formats.pack.reader", "messager_store.formats.pack.writer", "messager_store.maintenance.removal"),
    *("messager_store.queries.status", "messager_store.maintenance.verify", "messager_store.privacy.redaction"),
    *("messager_store.queries.comparison.compare", "messager_store.queries.counting.count"),
    *("messager_store.queries.delays", "messager_store.queries.overview", "messager_store.queries.problems"),
    *("messager_store.projection.sql", "messager_store.recording.closing", "messager_store.formats.gather"),
    *("messager_store.recording.tap", "messager_store.replay.engine"),
)


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(("PYTHON", "LANG", "LC_"))}


_STARTED_WITH = _read_at_start(os.environ)


def fits(env: Mapping[str, str]) -> bool:
    """Return whether a fork in this environment is equal to a new process."""
    return _read_at_start(env) == _STARTED_WITH


def run(
    arguments: Sequence[str | bytes],
    cwd: Path,
    env: dict[str, str],
    timeout: float,
    output: int | None = None,
    given: bytes = b"",
) -> tuple[int, bytes, bytes]:
    """Run the command line. Return its exit code, negative for a signal, and what it wrote to stdout and stderr.

    `given` is its standard input. With `output`, a file descriptor, stdout goes there instead.
    """
    words = [os.fsdecode(word) for word in arguments]
    with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)
        output = stdout.fileno() if output is None else output
        with start(COMMAND_LINE, words, cwd, env, output, stderr.fileno(), stdin.fileno()) as watcher:
            watcher.settimeout(timeout)
            answers = watcher.makefile("r")
            process = int(answers.readline())
            try:
                code = int(answers.readline())
            except TimeoutError:
                os.kill(process, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, timeout) from None
        stdout.seek(0)
        stderr.seek(0)
        return code, stdout.read(), stderr.read()


def start(
    program: str,
    arguments: Sequence[str],
    cwd: Path,
    env: dict[str, str],
    stdout: int,
    stderr: int,
    stdin: int | None = None,
) -> socket.socket:
    """Start a program; without `stdin`, its standard input is empty.

    The socket gives two lines: its process id, and later its exit code, negative for a signal.
    """
    here, there = socket.socketpair()
    with there, open(os.devnull) as nothing:
        given = nothing.fileno() if stdin is None else stdin
        socket.send_fds(_server(program), [b"."], [there.fileno(), given, stdout, stderr])
    here.sendall((json.dumps([list(arguments), str(cwd), env]) + "\n").encode())
    return here


@functools.cache
def _server(program: str) -> socket.socket:
    """Start the process that forks for each order."""
    here, there = socket.socketpair()
    with there:
        line = [sys.executable, "-P", __file__, str(there.fileno()), program]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(line, cwd=ROOT, stdin=quiet, stdout=quiet, pass_fds=[there.fileno()])
    atexit.register(process.wait)
    atexit.register(here.close)  # runs before `process.wait`: the server ends when this end is closed
    return here


def _warm_up() -> None:
    """Make a store and read it: forks find the migrations imported and the statements of SQLite compiled."""
    from messager_store import EventLog, NewEvent

    async def use(store: str) -> None:
        async with EventLog.open(store) as log:
            of = await log.create_experiment("e")
            writer = await log.register(of, role="tap")
            await log.append(writer, [NewEvent("sent", 0, "c", b"1")])
            async for _ in log.read(of):
                pass

    with TemporaryDirectory() as folder:
        asyncio.run(use(os.path.join(folder, "log.db")))


def _serve(orders: socket.socket) -> None:
    """Fork for each order, until the other end is closed. Returns in the process that runs the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, fds, *_ = socket.recv_fds(orders, 1, 4)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            orders.close()
            _watch(socket.socket(fileno=fds[0]), fds[1:])
            return
        for fd in fds:
            os.close(fd)


def _watch(client: socket.socket, streams: Sequence[int]) -> None:
    """Fork once more: the parent reports the process id and the exit code, the child returns and runs the program."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with client, client.makefile("rw") as lines:
        arguments, cwd, env = json.loads(lines.readline())
        process = os.fork()
        if process:
            with contextlib.suppress(OSError):  # the client need not wait for the exit code
                lines.write(f"{process}\n")
                lines.flush()
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            with contextlib.suppress(OSError):
                lines.write(f"{code}\n")
                lines.flush()
            os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for place, fd in enumerate(streams):
        os.dup2(fd, place)
        os.close(fd)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv[1:] = arguments


def _end_with(main: Callable[[], None]) -> NoReturn:
    """Run a program and end the process as Python does, but without tearing down all modules, which copies memory."""
    code = 0
    try:
        main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (ValueError, OSError, AttributeError):  # closed, or nobody reads it
            code = code or 120
    os._exit(code)


if __name__ == "__main__":
    import gc
    from importlib import import_module

    fd, name = sys.argv[1:]
    if name != COMMAND_LINE:
        sys.path.insert(0, str(ROOT))
    program = import_module(name)
    verbs = program.verbs.VERBS if name == COMMAND_LINE else ()
    for module in (*_IMPORTS, *(f"messager_store.cli.commands.{verb}" for verb in verbs)):
        import_module(module)
    if name == COMMAND_LINE:
        _warm_up()
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=int(fd)))
    _end_with(program.main)
