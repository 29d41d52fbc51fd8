"""Programs that run beside a test, as forks."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from . import forks


class ForkedProgram:
    """A program in a fork (see `forks`), with the methods of `subprocess.Popen` that tests use.

    Its output comes through pipes, as text, except to a given file descriptor.
    """

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        cwd: Path,
        env: Mapping[str, str] | None = None,
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self.returncode: int | None = None
        """Exit code, negative for a signal; None until `wait` has found it."""
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        with contextlib.ExitStack() as theirs:
            if stdout is None:
                self.stdout, stdout = _pipe(theirs)
            if stderr is None:
                self.stderr, stderr = _pipe(theirs)
            given = dict(os.environ if env is None else env)
            self._watcher = forks.start(program, arguments, cwd, given, stdout, stderr, stdin)
        self.pid = int(self._answer())

    def _answer(self) -> bytes:
        """Return the next line of the process that watches this one. Raises `TimeoutError`."""
        line = b""
        while not line.endswith(b"\n") and (piece := self._watcher.recv(1)):
            line += piece
        return line

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._watcher.settimeout(timeout)
            try:
                self.returncode = int(self._answer())
            except TimeoutError:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
            self._watcher.close()
        return self.returncode

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._watcher], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end. Return what it has written."""
        files = [file for file in (self.stdout, self.stderr) if file is not None]
        read: dict[IO[str], str] = {}
        threads = [threading.Thread(target=lambda file=file: read.update({file: file.read()})) for file in files]
        for thread in threads:
            thread.start()
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            for thread in threads:
                thread.join()
            self._close()
        stdout, stderr = (read.get(file, "") if file is not None else "" for file in (self.stdout, self.stderr))
        return stdout, stderr

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _close(self) -> None:
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()

    def __enter__(self) -> ForkedProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        self._close()
        self.wait()


def _pipe(theirs: contextlib.ExitStack) -> tuple[IO[str], int]:
    """Return the end of a pipe to read from, and the other one, which `theirs` closes."""
    here, there = os.pipe()
    theirs.callback(os.close, there)
    return open(here), there
