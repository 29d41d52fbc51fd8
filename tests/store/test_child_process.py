"""Ends of the programs that run in processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any

import pytest

from messager_store.child_process import kill


async def test_a_process_that_ends_while_it_is_killed_keeps_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    killed, wait = threading.Event(), os.waitpid

    def waitpid(*arguments: Any) -> Any:
        """Read the exit code late, as asyncio does on a busy machine."""
        killed.wait(60)
        return wait(*arguments)

    monkeypatch.setattr(os, "waitpid", waitpid)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(3)")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222  # the code stays unread
    kill(process)
    killed.set()
    assert await process.wait() == 3
    assert not caplog.records
