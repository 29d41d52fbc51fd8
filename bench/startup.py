"""Rows about start-up time."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .measure import Stage, Values

RUNS = 5
"""Processes per side and round; the median is used."""


def _time(command: Sequence[str], runs: int = RUNS) -> float:
    """Return the wall-clock time of a process, s."""
    took = []
    for _ in range(runs):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


class _Processes:
    """Two commands. Each runs once before the measurement."""

    our_command: Sequence[str] = ()
    their_command: Sequence[str] = ()

    def __init__(self, stage: Stage) -> None:
        _time(self.our_command, 1)
        _time(self.their_command, 1)

    def ours(self) -> Values:
        return {"time": _time(self.our_command)}

    def theirs(self) -> Values:
        return {"time": _time(self.their_command)}


class CommandLine(_Processes):
    """Time (s) of `messager --help`, and of a Python that imports click, which the help needs."""

    their_command = (sys.executable, "-c", "import click")

    def __init__(self, stage: Stage) -> None:
        script = Path(sys.executable).with_name("messager")
        main = [sys.executable, "-c", "from messager_store.cli import main; main()"]
        self.our_command = [*([str(script)] if script.exists() else main), "--help"]
        super().__init__(stage)


class Import(_Processes):
    """Time (s) of a Python that imports messager, and of one that imports its dependencies."""

    our_command = (sys.executable, "-c", "import messager")
    their_command = (sys.executable, "-c", "import redis.asyncio, pydantic")
