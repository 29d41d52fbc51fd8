"""Temporary folder of a server. When the process that made it ends, the server is ended and the folder removed.

No process can clean up after its own SIGKILL. So each folder has a watchdog, a small process that reads the pid of the
server from a pipe. The pipe closes when the process at its other end exits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

END_SECONDS = 10.0
"""Seconds for a server to exit after its signal. Then it is killed."""


class ServerFolder:
    """New temporary folder, with `server` in its name, and the server that runs in it.

    `last_signal` ends the server if the process that made the folder exits first.
    """

    def __init__(self, server: str, *, last_signal: int = signal.SIGTERM) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"messager-{server}-"))
        command = [sys.executable, "-I", "-S", __file__, str(self.path), str(int(last_signal))]
        quiet = subprocess.DEVNULL
        self._watchdog = subprocess.Popen(
            command, bufsize=0, cwd="/", stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
        )

    def runs(self, process: subprocess.Popen[Any] | None) -> None:
        """Set the process that runs in the folder, or None."""
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.write(b"%d\n" % (process.pid if process is not None else 0))

    def remove(self) -> None:
        """End the server if one runs, and remove the folder."""
        assert self._watchdog.stdin is not None
        self._watchdog.stdin.close()
        self._watchdog.wait()


def _watch(folder: str, last_signal: int) -> None:
    """Wait for the end of the pipe, then end the server and remove the folder."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server = 0
    for line in sys.stdin:
        server = int(line)
    if server:
        with contextlib.suppress(OSError):
            os.kill(server, last_signal)
            os.kill(server, signal.SIGCONT)  # it may be stopped
            deadline = time.monotonic() + END_SECONDS
            while time.monotonic() < deadline:
                os.kill(server, 0)
                time.sleep(0.02)
            os.kill(server, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _watch(sys.argv[1], int(sys.argv[2]))
