"""A replay in a process of its own, with its control socket in a folder that only this user can read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from typing import Any

from messager.credentials import mask_text
from messager.time_limit import time_limit

from ...child_process import kill
from ...errors import StoreError
from ...text import safe

END_S = 5.0
"""Seconds that the replay has to end by itself."""
LINES = 20
"""Last lines of its output that are kept."""
_WIDTH = 500
_KEPT = 16_384
_PROGRAM = "messager_store.view.server.replay_program"


class ReplayProcess:
    """A process that replays; made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process, folder: str, socket: str) -> None:
        self.socket = socket
        """Path of the control socket. It exists shortly after the start, and until shortly before the end."""
        self._process = process
        self._folder = folder
        self._output = b""
        self._ending = asyncio.create_task(self._end())

    @classmethod
    async def start(cls, **work: Any) -> ReplayProcess:
        """Start a replay; `work` is that of `replay_program.replay`, without the socket. Raises `StoreError`."""
        folder = tempfile.mkdtemp(prefix="messager-")  # of the mode 0700
        socket = os.path.join(folder, "control")
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _PROGRAM),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                process_group=0,  # Ctrl-C reaches only the server, which ends the replay
            )
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise StoreError(f"a replay cannot be started: {error.strerror or error}") from None
        assert process.stdin is not None
        process.stdin.write(json.dumps({**work, "socket": socket}).encode() + b"\n")
        return cls(process, folder, socket)

    @property
    def running(self) -> bool:
        """Return whether the process has not ended."""
        return not self._ending.done()

    @property
    def lines(self) -> list[str]:
        """Return the last lines that it printed."""
        printed = self._output.decode(errors="backslashreplace").splitlines()[-LINES:]
        return [safe(mask_text(line))[:_WIDTH] for line in printed]

    async def ended(self) -> int:
        """Wait for the end of the process, and return its exit code; that of a signal is negative."""
        return await asyncio.shield(self._ending)

    async def end(self) -> int:
        """End the replay where it is, and return the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with time_limit(END_S):
                return await self.ended()
        kill(self._process)
        return await self.ended()

    async def _end(self) -> int:
        assert self._process.stdout is not None
        while read := await self._process.stdout.read(_KEPT):
            self._output = (self._output + read)[-_KEPT:]
        code = await self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        return code
