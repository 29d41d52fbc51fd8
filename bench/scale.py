"""Size: what people do every day, in a store of 10 million events and in one of 100 thousand."""

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
from messager_store.experiments import registry

from . import stores
from .measure import Stage, Values
from .workload import BATCH, channel, events, remove

APPENDED = 50_000
RUNS = 5
"""Of everything but the append; the median counts."""


class Sizes:
    """The large store and the small one: appended events a second, and the time (s) of the rest.

    Appended is to another experiment of the store, so that the large one stays as it is. `ls` and `info` run in this
    process, as their start-up would hide what they do.
    """

    def __init__(self, stage: Stage) -> None:
        self._large, self._small = stores.large(stage), stores.small(stage)
        self._copy = stage.fresh()
        self._first = events(0, stores.NAMES, agents=stores.NAMES)  # in which every name comes once
        self._batches = [events(stores.NAMES + at, BATCH, agents=stores.NAMES) for at in range(0, APPENDED, BATCH)]
        _verb("ls", self._small)  # its modules are loaded before the clock starts
        _verb("info", self._small, stores.EXP_ID)

    def ours(self) -> Values:
        return asyncio.run(self._append(self._large)) | _looks(self._large)

    def theirs(self) -> Values:
        found = _looks(self._small)
        shutil.copyfile(self._small, self._copy)  # what is appended to stays small
        with open(self._copy, "rb+") as file:
            os.fsync(file.fileno())
        found |= asyncio.run(self._append(self._copy))
        remove(self._copy)
        return found

    async def _append(self, path: Path) -> dict[str, float]:
        async with EventLog.open(str(path)) as log:
            exp_id = f"appended-{time.time_ns()}"
            of = await registry.create(log.database, exp_id, name=None, tags=[], meta={})
            assert of is not None
            writer = await log.register(of, role="tap")
            await log.append(writer, self._first)
            began = time.perf_counter()
            for batch in self._batches:
                await log.append(writer, batch)
            return {"append": APPENDED / (time.perf_counter() - began)}


def _looks(path: Path) -> dict[str, float]:
    """The time (s) that looking at a store takes, in several ways."""
    opened, page = zip(*(asyncio.run(_page(path)) for _ in range(RUNS)), strict=True)
    return {
        "open": statistics.median(opened),
        "page": statistics.median(page),
        "ls": statistics.median(_verb("ls", path) for _ in range(RUNS)),
        "info": statistics.median(_verb("info", path, stores.EXP_ID) for _ in range(RUNS)),
    }


async def _page(path: Path) -> tuple[float, float]:
    """Opening, and reading a page of one channel of a thousand."""
    began = time.perf_counter()
    async with EventLog.open(str(path), create=False) as log:
        opened = time.perf_counter()
        found = [entry async for entry in log.read(stores.EXP_ID, channels=[channel(stores.NAMES // 2)], limit=100)]
        took = time.perf_counter() - opened
    if len(found) != 100:
        raise RuntimeError(f"{len(found)} of 100 events were found")
    return opened - began, took


def _verb(*words: str | Path) -> float:
    """The time (s) of a verb: its name, the store, and what else it takes."""
    verb, store, *rest = map(str, words)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        began = time.perf_counter()
        cli.main([verb, *rest, "--store", store], prog_name="messager", standalone_mode=False)
        return time.perf_counter() - began
