"""A recorded society for the rows about analysis: agents that talk with their neighbours, and several recorders.

Each message is two events, sent and received. Two words appear in the texts at known rates.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from messager_store import EventLog, NewEvent
from messager_store.projection.query import brought_up

from .measure import Stage
from .stores import check_space
from .workload import BATCH, BEGIN, STEP, channel, remove

EXP_ID = "society"
AGENTS = 1000
NEIGHBOURS = 20
RECORDERS = 20
FREQUENT, FREQUENT_EVERY = "breakfast", 10
RARE, RARE_EVERY = "zeppelin", 100_000
EVENT_BYTES = 950
"""Upper bound on disk, the projection included."""


def sender_of(number: int) -> int:
    """Return the sender of a message."""
    return number % AGENTS


def recipient_of(number: int) -> int:
    """Return the recipient of a message: one of the `NEIGHBOURS` next agents."""
    return (number + 1 + number // AGENTS % NEIGHBOURS) % AGENTS


def payload(number: int) -> bytes:
    """Return a message: JSON in JSON, as AgentSociety writes it."""
    words = f"Gr\u00fc\u00dfe {number}: " + "we met at the market and spoke about the weather, " * 2
    if number % FREQUENT_EVERY == 0:
        words += f"after {FREQUENT} "
    if number % RARE_EVERY == RARE_EVERY // 2:
        words += f"under a {RARE} "
    content = json.dumps({"content": words})
    return json.dumps({"from": sender_of(number), "content": content, "type": "social", "t": number}).encode()


def society(stage: Stage, events: int | None = None) -> Path:
    """Return a store with a society of so many events, `stage.society` by default."""
    events = events or stage.society
    key = f"society-{events}"
    if key not in stage.shared:
        folder = stage.keep or stage.folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{key}.db"
        if not path.exists():
            check_space(folder, events, EVENT_BYTES)
            making = path.with_suffix(".making.db")
            remove(making)
            try:
                asyncio.run(make(making, events, stage.say))
            except BaseException:
                remove(making)
                raise
            making.rename(path)
            began = time.monotonic()
            asyncio.run(project(path))
            stage.say(f"its projection was made in {time.monotonic() - began:.1f} s")
            stage.say(f"its store has {path.stat().st_size / 1e9:.1f} GB")
        stage.shared[key] = path
    found: Path = stage.shared[key]
    return found


async def make(path: Path, events: int, say: Callable[[str], None]) -> None:
    """Create a store with a society of so many events."""
    async with EventLog.open(str(path)) as log:
        of = await log.create_experiment(EXP_ID)
        writers = [await log.register(of, role="messager") for _ in range(RECORDERS)]
        began = told = time.monotonic()
        for first in range(0, events // 2, BATCH * 10):
            for writer, batch in zip(writers, batches(first, min(BATCH * 10, events // 2 - first)), strict=True):
                if batch:
                    await log.append(writer, batch)
            if time.monotonic() - told > 5:
                told = time.monotonic()
                say(f"creating the society: {2 * first:,} of {events:,} events")
        for writer in writers:
            await log.touch(writer, ended_at=time.time_ns())
        say(f"created the society: {events:,} events recorded in {time.monotonic() - began:.0f} s")


async def project(path: Path) -> None:
    """Make the projection of the society."""
    async with EventLog.open(str(path), create=False) as log:
        await brought_up(log, await log.experiment(EXP_ID))


def batches(first: int, count: int) -> list[list[NewEvent]]:
    """Return the events of `count` messages, a list for each recorder."""
    found: list[list[NewEvent]] = [[] for _ in range(RECORDERS)]
    for number in range(first, first + count):
        sender, recipient, ts = sender_of(number), recipient_of(number), BEGIN + number * STEP
        where, data = channel(recipient), payload(number)
        found[sender % RECORDERS].append(NewEvent("sent", ts, where, data, sender, recipient))
        heard = NewEvent("received", ts + STEP // 2, where, data, sender, recipient)
        found[recipient % RECORDERS].append(heard)
    return found
