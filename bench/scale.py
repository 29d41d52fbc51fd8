"""Rows about size: frequent operations on a store of 10 million events, and on one of 100 thousand."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import statistics
import time
from pathlib import Path

from messager_store import EventLog
from messager_store.cli import cli

from . import stores
from .measure import Stage, Values
from .workload import BATCH, channel, events, remove

APPENDED = 50_000
RUNS = 5
"""Repetitions of everything except the append; the median is used."""


class Sizes:
    """The large store and the small one: events appended per second, and the time (s) of the other operations.

    The append uses another experiment of the store, so that the large one is not changed. `ls` and `info` run in this
    process, because the start of Python would hide their cost.
    """

    def __init__(self, stage: Stage) -> None:
        self._large, self._small = stores.large(stage), stores.small(stage)
        self._copy = stage.new_path()
        self._first = events(0, stores.NAMES, agents=stores.NAMES)  # every name once
        self._batches = [events(stores.NAMES + at, BATCH, agents=stores.NAMES) for at in range(0, APPENDED, BATCH)]
        _command_time("ls", self._small)  # load its modules before the measurement
        _command_time("info", self._small, stores.EXP_ID)

    def ours(self) -> Values:
        return asyncio.run(self._append(self._large)) | _query_times(self._large)

    def theirs(self) -> Values:
        found = _query_times(self._small)
        shutil.copyfile(self._small, self._copy)  # so that the small store stays small
        with open(self._copy, "rb+") as file:
            os.fsync(file.fileno())
        found |= asyncio.run(self._append(self._copy))
        remove(self._copy)
        return found

    async def _append(self, path: Path) -> dict[str, float]:
        async with EventLog.open(str(path)) as log:
            exp_id = f"appended-{time.time_ns()}"
            of = await log.create_experiment(exp_id)
            writer = await log.register(of, role="tap")
            await log.append(writer, self._first)
            began = time.perf_counter()
            for batch in self._batches:
                await log.append(writer, batch)
            return {"append": APPENDED / (time.perf_counter() - began)}


def _query_times(path: Path) -> dict[str, float]:
    """Return the time (s) of each kind of query."""
    opened, page = zip(*(asyncio.run(_page_times(path)) for _ in range(RUNS)), strict=True)
    return {
        "open": statistics.median(opened),
        "page": statistics.median(page),
        "ls": statistics.median(_command_time("ls", path) for _ in range(RUNS)),
        "info": statistics.median(_command_time("info", path, stores.EXP_ID) for _ in range(RUNS)),
    }


async def _page_times(path: Path) -> tuple[float, float]:
    """Return the times (s) of opening the store, and of reading a page of one channel."""
    began = time.perf_counter()
    async with EventLog.open(str(path), create=False) as log:
        opened = time.perf_counter()
        found = [entry async for entry in log.read(stores.EXP_ID, channels=[channel(stores.NAMES // 2)], limit=100)]
        took = time.perf_counter() - opened
    if len(found) != 100:
        raise RuntimeError(f"{len(found)} of 100 events were found")
    return opened - began, took


def _command_time(*words: str | Path) -> float:
    """Return the time (s) of a command: its name, the store, and other arguments."""
    verb, store, *rest = map(str, words)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        began = time.perf_counter()
        cli.main([verb, *rest, "--store", store], prog_name="messager", standalone_mode=False)
        return time.perf_counter() - began
