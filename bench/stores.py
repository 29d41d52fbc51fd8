"""The stores of the rows about size: a large and a small one, created once per run."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from messager_store import EventLog

from .measure import Stage, Unavailable
from .workload import BATCH, batches, make_store, remove

SMALL = 100_000
NAMES = 1000
"""Number of channels, and of agents."""
EXP_ID = "bench"
EVENT_BYTES = 450
"""Upper bound on disk."""


def small(stage: Stage) -> Path:
    """Return a store with `SMALL` events of `NAMES` channels and agents."""
    if "small" not in stage.shared:
        path = stage.new_path()
        asyncio.run(make_store(path, EXP_ID, SMALL, agents=NAMES))
        stage.shared["small"] = path
    found: Path = stage.shared["small"]
    return found


def large(stage: Stage) -> Path:
    """Return a store with the number of events of this run. Raises `Unavailable` if the disk has too little space."""
    if "large" not in stage.shared:
        stage.shared["large"] = _large_store(stage)
    found: Path = stage.shared["large"]
    return found


def check_space(folder: Path, events: int, event_bytes: int = EVENT_BYTES) -> None:
    """Raise `Unavailable` if the disk of the folder has too little space for these events."""
    free, needed = shutil.disk_usage(folder).free, events * event_bytes + 500_000_000
    if free < needed:
        raise Unavailable(
            f"{events:,} events need {needed / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} GB free: "
            "set TMPDIR to a larger disk, or use fewer with --events"
        )


def _large_store(stage: Stage) -> Path:
    folder = stage.keep or stage.folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events-{stage.events}.db"
    if path.exists():
        return path
    check_space(folder, stage.events)
    making = path.with_suffix(".making.db")
    remove(making)
    try:
        asyncio.run(_fill(making, stage))
    except BaseException:
        remove(making)
        raise
    return making.rename(path)


async def _fill(path: Path, stage: Stage) -> None:
    async with EventLog.open(str(path)) as log:
        of = await log.create_experiment(EXP_ID)
        writer = await log.register(of, role="tap")
        began = told = time.monotonic()
        for number, batch in enumerate(batches(stage.events, agents=NAMES), 1):
            await log.append(writer, batch)
            if time.monotonic() - told > 5:
                told = time.monotonic()
                stage.say(f"creating the large store: {number * BATCH:,} of {stage.events:,} events")
        took = time.monotonic() - began
        stage.say(
            f"created the large store: {stage.events:,} events in {took:.0f} s, {stage.events / took:,.0f} per second"
        )
