"""A recorded society for the rows about analysis: agents that talk with their neighbours, and several recorders.

Each message is two events, sent and received. Two words appear in the texts at known rates.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from messager_store import EventLog, NewEvent
from messager_store.queries.index import index

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
"""Upper bound on disk, side tables included."""


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


def society(stage: Stage) -> Path:
    """Return a store with an indexed society of the number of events of this run."""
    if "society" not in stage.shared:
        folder = stage.keep or stage.folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"society-{stage.events}.db"
        if not path.exists():
            check_space(folder, stage.events, EVENT_BYTES)
            making = path.with_suffix(".making.db")
            remove(making)
            try:
                asyncio.run(_fill(making, stage))
            except BaseException:
                remove(making)
                raise
            making.rename(path)
            stage.say(f"its store has {path.stat().st_size / 1e9:.1f} GB")
        stage.shared["society"] = path
    found: Path = stage.shared["society"]
    return found


async def _fill(path: Path, stage: Stage) -> None:
    async with EventLog.open(str(path)) as log:
        of = await log.create_experiment(EXP_ID)
        writers = [await log.register(of, role="messager") for _ in range(RECORDERS)]
        messages, began = stage.events // 2, time.monotonic()
        told = began
        for first in range(0, messages, BATCH * 10):
            batches: list[list[NewEvent]] = [[] for _ in writers]
            for number in range(first, min(first + BATCH * 10, messages)):
                sender, recipient, ts = sender_of(number), recipient_of(number), BEGIN + number * STEP
                where, data = channel(recipient), payload(number)
                batches[sender % RECORDERS].append(NewEvent("sent", ts, where, data, sender, recipient))
                heard = NewEvent("received", ts + STEP // 2, where, data, sender, recipient)
                batches[recipient % RECORDERS].append(heard)
            for writer, batch in zip(writers, batches, strict=True):
                if batch:
                    await log.append(writer, batch)
            if time.monotonic() - told > 5:
                told = time.monotonic()
                stage.say(f"creating the society: {2 * first:,} of {stage.events:,} events")
        recorded = time.monotonic()
        await index(log, of)
        for writer in writers:
            await log.touch(writer, ended_at=time.time_ns())
        stage.say(
            f"created the society: {stage.events:,} events recorded in {recorded - began:.0f} s, "
            f"indexed in {time.monotonic() - recorded:.0f} s"
        )
