"""Start-up: how long a process takes that does next to nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from .measure import Stage, Values

RUNS = 5
"""Processes of a round and side, of which the median counts."""


def _time(command: list[str]) -> float:
    """Wall-clock time of a process, s."""
    took = []
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


class CommandLine:
    """Time (s) of `messager --help`, and of a Python that imports click, which is all that the help needs."""

    def __init__(self, stage: Stage) -> None:
        script = Path(sys.executable).with_name("messager")
        main = [sys.executable, "-c", "from messager_store.cli import main; main()"]
        self._command = [str(script)] if script.exists() else main
        self.ours(), self.theirs()

    def ours(self) -> Values:
        return {"time": _time([*self._command, "--help"])}

    def theirs(self) -> Values:
        return {"time": _time([sys.executable, "-c", "import click"])}


class Import:
    """Time (s) of a Python that imports messager, and of one that imports what that is made with."""

    def __init__(self, stage: Stage) -> None:
        self.ours(), self.theirs()

    def ours(self) -> Values:
        return {"time": _time([sys.executable, "-c", "import messager"])}

    def theirs(self) -> Values:
        return {"time": _time([sys.executable, "-c", "import redis.asyncio, pydantic"])}
