"""Programs that use Ray, run for tests, and the experiment that they read."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from messager_store import Event, EventLog
from tests.support import ROOT
from tests.support.logs import listed, sent

SECOND = 1_000_000_000
EVENTS = 60


def run(folder: Path, *words: str) -> Any:
    """Run a program that uses Ray, with the files of Ray in that folder.

    Ray gives itself 30 s to start, which no setting changes: on a busy machine it is started again.
    """
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env={**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT), "MESSAGER_STORE": "runs.db"},
            capture_output=True,
            text=True,
            timeout=250,
        )
        if "timed out during startup" not in done.stderr:
            break
    return done


def once(name: str, tmp_path_factory: pytest.TempPathFactory, worker_id: str, *words: str) -> Any:
    """Return the result of a program of this folder, which runs once for all test processes."""
    shared = tmp_path_factory.getbasetemp()
    folder = (shared if worker_id == "master" else shared.parent) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        seen = folder / "seen.json"
        if not seen.exists():
            done = run(folder, str(ROOT / "tests" / "store" / f"{name}.py"), *words)
            assert done.returncode == 0, done.stderr
            seen.write_text(done.stdout.splitlines()[-1])
    return types.SimpleNamespace(store=str(folder / "runs.db"), seen=json.loads(seen.read_text()))


async def fill(store: str) -> list[Event]:
    """Record an experiment with two recorders and equal times, and return its events."""
    async with EventLog.open(store) as log:
        of = await log.create_experiment("e1")
        for number in range(2):
            writer = await log.register(of, role="messager")
            events = [
                sent(at // 2 * SECOND, f'{{"n": {at}}}'.encode(), f"c{at % 3}", from_id=[7, "7", None][at % 3])
                for at in range(number, EVENTS, 2)
            ]
            await log.append(writer, events)
        return await listed(log.read("e1"))


def row(event: Event) -> list[Any]:
    kind = {int: "number", str: "string", type(None): None}[type(event.from_id)]
    text = None if event.from_id is None else str(event.from_id)
    return [event.ts, event.recorder, event.seq, event.kind, event.channel, text, kind, event.payload.hex()]
