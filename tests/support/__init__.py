"""Shared by tests of several packages: waiting, stores, a proxy with faults, hostile values, the command line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import shutil
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from messager import Clock, Messager, MessageRecord
from messager.brokers import Broker, MqttBroker, kind_of
from messager.record import CLOSED, SUBSCRIBED
from messager_store.recording.auto_recorder import AutoRecorder
from messager_store.testing import Databases, execute
from tests.support import forks
from tests.support.forked_program import ForkedProgram

ROOT = Path(__file__).resolve().parents[2]
MESSAGER = [sys.executable, "-c", "from messager_store.cli import main; main()"]

HOSTILE_PAYLOADS = [
    b"",
    b"\x00",
    b"\xff\xfe not utf-8 \x80",
    b'{"content": "plain"}',
    b"not json {",
    '{"content": "h\u00e9 \u65e5\u672c \U0001f600"}'.encode(),
    b'"\\ud800"',
    b"line\r\nbreak\nand\ttab\x1b[31m",
    b"*3\r\n$7\r\nPUBLISH\r\n",
    bytes(range(256)),
]
HOSTILE_CHANNELS = [
    b"plain",
    b"with space",
    b"new\nline\r\n",
    b"nul\x00inside",
    b"glob*[a-z]?\\x",
    b"\xff\xfe\x80",
    "exps:e1:agents:\u65e5\u672c:chat".encode(),
    b"exps:e1:agents:7:agent-chat",
    b"a=b",
    b"'; DROP TABLE event; --",
]
HOSTILE_IDS: list[Any] = [None, 0, 5, "5", -1, 2**70, -(2**90), "", "a\x00b", "\u65e5\u672c", "x" * 500, "\ud800", True]


def self_recording(messager: Messager) -> AutoRecorder:
    """Return the hook that `MESSAGER_STORE` added to the Messager."""
    [hook] = messager._offered
    assert isinstance(hook, AutoRecorder)
    return hook


def nightly_after(number: int, cases: Iterable[Any]) -> list[Any]:
    """Return the cases of a parametrized test. Those behind the first `number` run in `make nightly` only."""
    cases = list(cases)
    return cases[:number] + [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.nightly)
        for case in cases[number:]
    ]


async def until(holds: Callable[[], bool | Awaitable[bool]], seconds: float = 60.0) -> None:
    """Return as soon as the condition holds. Fail if it does not hold within this many seconds.

    A condition that is awaited usually asks a server, which costs more than the pause: its pauses grow.
    """
    began = time.monotonic()
    while True:
        pause, answer = 0.005, holds()
        if not isinstance(answer, bool):
            pause = min(0.05, max(pause, (time.monotonic() - began) / 10))
            answer = await answer
        if answer:
            return
        assert time.monotonic() - began < seconds, "the condition did not come to hold"
        await asyncio.sleep(pause)


def told(broker: Broker, *receivers: int) -> list[int | None]:
    """Return the numbers of receivers that the broker reports: an MQTT broker reports none."""
    return [None if isinstance(broker, MqttBroker) else count for count in receivers]


def carried(broker: Broker, messages: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the messages that the broker accepts: on MQTT not every channel is a topic."""
    return [
        (channel, data) for channel, data in messages if kind_of(broker.url).publish_fault(channel, len(data)) is None
    ]


class Stores:
    """Stores of one kind, files in a folder or databases: copies of `template`, which is empty and migrated."""

    def __init__(self, folder: Path, databases: Databases | None, template: str) -> None:
        self._folder, self._databases, self._template = folder, databases, template
        self.made: list[str] = []
        """URLs or file names, in the order of making."""

    def fresh(self) -> str:
        """Return the URL or file name of another store, empty and migrated."""
        if self._databases is None:
            made = self._file()
            shutil.copyfile(self._template, made)
        else:
            made = self._databases.create(self._template)
        self.made.append(made)
        return made

    def copy(self, made: str) -> str:
        """Return the URL or file name of a copy of a store that nobody has open."""
        if self._databases is None:
            self.made.append(self._file())
            shutil.copyfile(made, self.made[-1])
        else:
            self.made.append(self._databases.create(made))
        return self.made[-1]

    def unmade(self) -> str:
        """Return the URL or file name of a store without tables."""
        self.made.append(self._file() if self._databases is None else self._databases.create())
        return self.made[-1]

    def _file(self) -> str:
        return str(self._folder / f"{'other' if self.made else 'log'}{len(self.made) or ''}.db")

    def move_away(self, made: str) -> None:
        """Move a store to another name."""
        if self._databases is None:
            with closing(sqlite3.connect(made)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            os.rename(made, f"{made}.moved")
        else:
            self._databases.rename(made, f"{made.rpartition('/')[2]}_moved")

    def move_back(self, made: str) -> None:
        """Move a store back to its name, replacing what is there now."""
        if self._databases is None:
            os.replace(f"{made}.moved", made)
        else:
            self._databases.drop(made)
            self._databases.rename(f"{made}_moved", made.rpartition("/")[2])

    def put_another(self, made: str) -> None:
        """Put another, empty store in the place of one that was moved away."""
        if self._databases is None:
            for ending in ("-wal", "-shm"):
                Path(made + ending).unlink(missing_ok=True)
        else:
            another = self._databases.create(self._template)
            self._databases.rename(another, made.rpartition("/")[2])

    def remove(self) -> None:
        """Remove all stores that were made."""
        for made in self.made:
            if self._databases is not None:
                self._databases.drop(made)


class Refused(Exception):
    """The database does not accept a value of this type."""


def sql(store: str, *statements: str) -> list[Any]:
    """Execute statements directly in the database. Return the rows of the last one, as tuples.

    Statements are written for SQLite: literals of bytes and shifts are translated for PostgreSQL. Foreign keys are
    not checked. Raises `Refused`.
    """
    if "://" in store:
        unguarded = "SET session_replication_role = replica"
        try:
            return execute(store, unguarded, *map(_in_postgres, statements))
        except (asyncpg.DataError, asyncpg.SyntaxOrAccessError) as error:
            raise Refused(str(error)) from None
    with closing(sqlite3.connect(store)) as connection, connection:
        rows: list[Any] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows


def _in_postgres(statement: str) -> str:
    statement = re.sub(r"\bx'([0-9a-f]*)'", r"'\\x\1'::bytea", statement)
    statement = re.sub(r"CAST\(('[^']*') AS BLOB\)", r"convert_to(\1, 'UTF8')", statement)
    return re.sub(r"(\d+) << (\d+)", lambda found: str(int(found[1]) << int(found[2])), statement)


class Listed:
    """Log hook that keeps its connections and records; subscriptions and closings are in lists of their own."""

    def __init__(self) -> None:
        self.records: list[MessageRecord] = []
        self.subscriptions: list[MessageRecord] = []
        self.closings: list[MessageRecord] = []
        self.before: list[int] = []
        self.connections: list[tuple[str, Clock, int | None]] = []

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        self.before.append(len(records))

    def after(self, record: MessageRecord) -> None:
        own = {SUBSCRIBED: self.subscriptions, CLOSED: self.closings}
        own.get(record.mark or "", self.records).append(record)

    def connected(self, url: str, clock: Clock, clock_offset_ns: int | None) -> None:
        self.connections.append((url, clock, clock_offset_ns))

    def kinds(self) -> list[str]:
        return [record.kind for record in self.records]


class Proxy:
    """TCP proxy on the loopback interface that can cut connections, drop data and drop answers.

    With `tls`, clients connect by TLS; the connection to the server is always in plain text.
    """

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._target = port
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.silent = False
        """Drop all data in both directions, and keep the connections."""
        self.silent_from: bytes | None = None
        """Become silent at a request that contains these bytes, and drop it."""
        self.cut_answer_to: bytes | None = None
        """Forward a request that contains these bytes, drop its answer, and cut every connection."""
        self.cut_within_request = False
        """Forward half of the next request, and cut every connection."""
        self.cut_after: int | None = None
        """Forward this number of further bytes of requests, and cut every connection."""
        self.answer_delay = 0.0
        """Delay of each piece of an answer, at most 64 kB, s."""
        self.requests = b""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._server.close()
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()

    def cut(self) -> None:
        """Cut every connection."""
        for writer in self._writers:
            with contextlib.suppress(AttributeError):  # raised by Python 3.11.2 for TLS that was closed before
                writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, there_writer}
            back = asyncio.create_task(self._pump(there_reader, writer, answers=True))
            try:
                await self._pump(reader, there_writer, answers=False)
            finally:
                back.cancel()
                await asyncio.gather(back, return_exceptions=True)
                for end in (writer, there_writer):
                    end.close()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()  # also if the server refuses the connection
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not answers and self.silent_from and self.silent_from in data:
                    self.silent = True
                if self.silent:
                    continue
                if not answers and self.cut_within_request:
                    self.cut_within_request = False
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    self.cut()
                    return
                if not answers and self.cut_after is not None:
                    left, self.cut_after = self.cut_after, max(0, self.cut_after - len(data))
                    if len(data) >= left:
                        self.cut_after = None
                        writer.write(data[:left])
                        await writer.drain()
                        self.cut()
                        return
                if not answers:
                    self.requests += data
                elif self.answer_delay:
                    await asyncio.sleep(self.answer_delay)
                if answers and self.cut_answer_to and self.cut_answer_to in self.requests:
                    self.cut_answer_to = None
                    self.cut()
                    return
                writer.write(data)
                await writer.drain()
        if answers:
            writer.close()  # the server has closed the connection


def messager(*arguments: str, cwd: Path, env: dict[str, str] | None = None, text: bool = True, **options: Any) -> Any:
    """Run the command line in a separate process, a fork if possible."""
    env = {**os.environ, **(env or {})}
    if not options.keys() - {"input"} and forks.fits(env):
        given = options.get("input") or b""
        given = given.encode() if isinstance(given, str) else given
        code, stdout, stderr = forks.run(arguments, cwd, env, 60, given=given)
        if not text:
            return subprocess.CompletedProcess(arguments, code, stdout, stderr)
        return subprocess.CompletedProcess(arguments, code, stdout.decode(), stderr.decode())
    return subprocess.run(
        [*MESSAGER, *arguments], cwd=cwd, env=env, capture_output=True, text=text, timeout=60, **options
    )


def asked(
    folder: Path,
    answer: str,
    *arguments: str,
    meanwhile: Callable[[ForkedProgram], object] = lambda process: None,
) -> tuple[int, str, str]:
    """Run a verb on a terminal and answer its question. `meanwhile` is called while the verb waits."""
    there, here = pty.openpty()
    process = ForkedProgram(forks.COMMAND_LINE, arguments, folder, stdin=here)
    assert process.stderr is not None
    asking = b""
    while b"[y/N]" not in asking and (piece := os.read(process.stderr.fileno(), 1000)):
        asking += piece
    meanwhile(process)
    os.write(there, answer.encode())
    stdout, stderr = process.communicate(timeout=30)
    os.close(there)
    os.close(here)
    return process.wait(), stdout, asking.decode() + stderr
