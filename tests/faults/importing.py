"""SIGKILL during an import."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from messager_store import EventLog
from messager_store.formats.jsonl import import_jsonl

from .evidence import count_disorder, events, findings
from .process import Worker
from .row import Row, Run, fault

SENDINGS = 12_000
BEFORE = 10
"""Messages of the experiment that was imported before, and of the one that is imported afterwards."""


@fault("kill-import", "SIGKILL while a file is imported", short=3, long=40)
async def importing(run: Run, row: Row) -> None:
    """An import is complete or invisible, and the next import removes its remains."""
    ready = run.place("ready")
    large, small = ready / "large.jsonl", ready / "small.jsonl"
    _write(large, SENDINGS)
    _write(small, BEFORE)
    async with EventLog.open(str(ready / "log.db")) as log:
        await import_jsonl(log, small, "before")
    duration = await _whole(run, ready, large)
    for number in range(run.tries):
        folder = run.place(f"kill-{number}")
        store = folder / "log.db"
        shutil.copy(ready / "log.db", store)
        worker = await Worker.start("import", folder, store=str(store), file=str(large), exp="large")
        await worker.heard("ready")
        await asyncio.sleep(run.dice.uniform(0, duration))
        await worker.kill()
        row.tried += 1
        row.offered += 2 * SENDINGS
        visible = set(_column(store, "SELECT exp_id FROM experiment WHERE status IN ('open', 'closed')"))
        whole = "large" in visible
        row.add("complete before the kill", whole)
        if visible - {"before", "large"}:
            row.problem(f"an incomplete import is visible: {visible}")
        logged = events(store, "large")
        row.lost += 2 * SENDINGS - len(logged) if whole else len(logged)
        for kind in ("sent", "received"):
            count_disorder(row, logged, kind)
        async with EventLog.open(str(store)) as log:
            await import_jsonl(log, small, "after")  # removes the remains of the killed one
        rows_left = _column(store, "SELECT count(*) FROM event")[0]
        expected = 2 * 2 * BEFORE + (2 * SENDINGS if whole else 0)
        if rows_left != expected:
            row.problem(f"{rows_left} events are in the store after the next import, not {expected}")
        for problem in await findings(store):
            row.problem(problem)
        shutil.rmtree(folder)


async def _whole(run: Run, ready: Path, large: Path) -> float:
    """Return the duration (s) of an import without a kill."""
    folder = run.place("whole")
    store = folder / "log.db"
    shutil.copy(ready / "log.db", store)
    worker = await Worker.start("import", folder, store=str(store), file=str(large), exp="large")
    await worker.heard("ready")
    started = time.monotonic()
    await worker.heard("done")
    duration = time.monotonic() - started
    await worker.ended()
    return duration


def _write(path: Path, sendings: int) -> None:
    """Write a file of messages sent by one recorder and received by another."""
    with path.open("w") as file:
        for n in range(sendings):
            line: dict[str, Any] = {"ts": 10 * n, "channel": f"c{n % 7}", "payload": {"n": n}, "from_id": n % 5}
            file.write(json.dumps({**line, "recorder": 1}) + "\n")
            file.write(json.dumps({**line, "recorder": 2, "ts": 10 * n + 1, "kind": "received"}) + "\n")


def _column(store: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(store, timeout=30)) as connection:
        return [value for (value,) in connection.execute(query)]
