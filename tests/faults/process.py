"""Processes of the harness: started, read from, and ended with SIGTERM or SIGKILL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.support import forks

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

PATIENCE = 240.0
"""Seconds to wait for a line of a process, or for its end."""


_running: set[Worker] = set()


class Hung(Exception):
    """A process did not write an expected line or did not end in time."""


async def kill_those_left() -> None:
    """Kill the processes that a failed fault has left behind."""
    for worker in list(_running):
        await worker.kill()


class Worker:
    """One verb of `tests.faults.worker` in a process of its own.

    The lines `word number` that it writes to standard output are kept here, and so outlive it.
    """

    def __init__(self, pid: int, watcher: Connection, stdout: Connection, errors: Path) -> None:
        self.pid = pid
        self._connections = watcher, stdout
        self._errors = errors
        _running.add(self)
        self.said: dict[str, list[int]] = defaultdict(list)
        """Numbers by word."""
        self._heard = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())
        self._exit_code = asyncio.create_task(watcher[0].readline())

    @classmethod
    async def start(cls, verb: str, folder: Path, **options: Any) -> Worker:
        """Start a process that works in `folder`."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("MESSAGER_")}
        here, there = socket.socketpair()
        errors = folder / "stderr.txt"
        with there, errors.open("ab") as file:
            fds = there.fileno(), file.fileno()
            watcher = forks.start("tests.faults.worker", [verb, json.dumps(options)], folder, env, *fds)
        answers = await asyncio.open_connection(sock=watcher)
        stdout = await asyncio.open_connection(sock=here)
        return cls(int(await answers[0].readline()), answers, stdout, errors)

    def last(self, word: str) -> int:
        """Return the last number of this word, 0 if there is none."""
        numbers = self.said.get(word)
        return numbers[-1] if numbers else 0

    async def heard(self, word: str, number: int = 0) -> None:
        """Wait until it has written this word with this number or a higher one. Raises `Hung`."""
        async with _patience(f"a worker did not say {word!r}", self):
            while not (word in self.said and self.said[word][-1] >= number):
                if self._listening.done():
                    raise Hung(f"a worker ended without saying {word!r}: {self.complaint()}")
                self._heard.clear()
                await self._heard.wait()

    async def kill(self) -> None:
        """Send SIGKILL. Return once it has ended and its output is read."""
        self.send(signal.SIGKILL)
        await self.ended()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if not self._exit_code.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def stop(self) -> None:
        """Send SIGTERM. Return once it has ended. Raises `Hung` if it does not end or fails."""
        self.send(signal.SIGTERM)
        if await self.ended() != 0:
            raise Hung(f"a worker failed: {self.complaint()}")

    async def ended(self) -> int:
        """Return the exit code once it has ended. Raises `Hung`."""
        async with _patience("a worker did not end", self):
            code = int(await asyncio.shield(self._exit_code))
            await self._listening
        for _, writer in self._connections:
            writer.close()
        _running.discard(self)
        return code

    def complaint(self) -> str:
        """Return the end of its standard error."""
        text = self._errors.read_text(errors="replace").strip() if self._errors.exists() else ""
        return text[-600:] or "nothing on standard error"

    async def _listen(self) -> None:
        rest = b""
        try:
            while data := await self._connections[1][0].read(1 << 18):
                lines = (rest + data).split(b"\n")
                rest = lines.pop()
                for line in lines:
                    word, _, number = line.partition(b" ")
                    self.said[word.decode()].append(int(number or 0))
                self._heard.set()
        finally:
            self._heard.set()


class _patience:
    """Timeout with a message that says what was waited for. It kills the process."""

    def __init__(self, complaint: str, worker: Worker) -> None:
        self._complaint, self._worker = complaint, worker
        self._timeout = asyncio.timeout(PATIENCE)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *exc: Any) -> None:
        try:
            await self._timeout.__aexit__(*exc)
        except TimeoutError:
            self._worker.send(signal.SIGKILL)
            raise Hung(f"{self._complaint} within {PATIENCE:g} s: {self._worker.complaint()}") from None
