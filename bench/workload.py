"""The messages of the bench: a chat between agents, as it is on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from messager_store import EventLog, NewEvent

PAYLOAD = {"from": 12, "content": json.dumps({"content": "x" * 160}), "type": "social", "day": 1, "t": 3600}
"""The payload: JSON inside JSON, as in AgentSociety."""
WIRE = json.dumps(PAYLOAD).encode()
"""The payload on the wire, about 240 bytes."""
BEGIN = 1_700_000_000_000_000_000
"""Start of generated recordings, ns UTC."""
STEP = 1_000_000
"""Time between two generated messages, ns."""
BATCH = 5000


def channel(number: int) -> str:
    """Return the channel of an agent."""
    return f"exps:bench:agents:{number}:agent-chat"


def events(first: int, count: int, *, agents: int = 10) -> list[NewEvent]:
    """Return `count` sendings from agent to agent, one per `STEP`, starting with number `first`."""
    from messager_store import NewEvent

    return [
        NewEvent("sent", BEGIN + at * STEP, channel(at % agents), WIRE, at * 7 % agents, at % agents)
        for at in range(first, first + count)
    ]


def batches(count: int, *, agents: int = 10) -> Iterator[list[NewEvent]]:
    """Yield `count` events, `BATCH` at a time."""
    for first in range(0, count, BATCH):
        yield events(first, min(BATCH, count - first), agents=agents)


async def fill(log: EventLog, exp_id: str, count: int, *, agents: int = 10) -> None:
    """Create an experiment with `count` events."""

    of = await log.create_experiment(exp_id)
    writer = await log.register(of, role="tap")
    for batch in batches(count, agents=agents):
        await log.append(writer, batch)


async def make_store(path: Path, exp_id: str, count: int, *, agents: int = 10) -> None:
    """Create a store with an experiment of `count` events."""
    from messager_store import EventLog

    async with EventLog.open(str(path)) as log:
        await fill(log, exp_id, count, agents=agents)


def remove(path: Path) -> None:
    """Remove a store and its WAL files."""
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
