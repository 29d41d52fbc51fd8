"""Programs of this package that run in a process of their own, for work that must be possible to kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import IO, TypeVar

from .errors import StoreError

T = TypeVar("T")


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process of asyncio, unless it has ended.

    `Process.kill` reads the exit code of one that ended in this moment. asyncio, which is to read it, then prints a
    warning and reports 255.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


_NEEDED = "this is done by a process of its own"


class ChildProcess:
    """A program that gets its work through standard input and answers through standard output.

    The end of the `with` block kills it. It has a process group of its own, so that Ctrl-C reaches only this process,
    which then ends the block.
    """

    def __init__(self, program: Path, *options: str) -> None:
        """Start a program; `options` are those of the interpreter. Raises `StoreError` if that is not possible."""
        if not sys.executable:
            raise StoreError(f"{_NEEDED}, and sys.executable is empty. Set it to the path of Python.")
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [sys.executable, *options, str(program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                process_group=0,
            )
        except OSError as error:
            self._errors.close()
            raise StoreError(f"{_NEEDED}, and {sys.executable} cannot be started: {error.strerror}.") from None
        assert self._process.stdin is not None and isinstance(self._process.stdout, BufferedReader)
        self.stdin, self.stdout = self._process.stdin, self._process.stdout
        self._thread = ThreadPoolExecutor(1, "messager child process")

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.shutdown(cancel_futures=True)  # what reads there finds the end of the pipe
        for file in (self.stdin, self.stdout, self._errors):
            with contextlib.suppress(OSError):
                file.close()

    def call(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Use the pipes in a thread, one call at a time. If the future is cancelled, the block must end."""
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def code(self) -> int:
        """Wait for the end of the program, and return its exit code; that of a signal is negative."""
        return self._process.wait()

    def reason(self) -> str:
        """Return the last line of the errors that the program printed."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "the process that reads it was killed"
