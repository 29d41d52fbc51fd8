"""Rows about the comparison of runs that are not equal."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from messager_store import EventLog, NewEvent
from messager_store.maintenance.verify import verify
from messager_store.queries.comparison.compare import compare

from .measure import Stage, Values
from .walking import events

MESSAGES = 200_000
BATCH = 1000


def altered(messages: list[NewEvent]) -> list[NewEvent]:
    """Return the messages with one in a hundred changed, left out, added or moved, at the times of the originals."""
    chance = random.Random(17)
    found = list(messages)
    for number in range(len(messages) // 100):
        at = chance.randrange(len(found))
        match number % 4:
            case 0:
                found[at] = found[at]._replace(payload=found[at].payload.replace(b'"text": "', b'"text": "well '))
            case 1:
                del found[at]
            case 2:
                found.insert(at, found[at]._replace(payload=b'{"text": "new %d"}' % number))
            case _:
                one = found.pop(at)
                found.insert(chance.randrange(len(found)), one)
    last = len(messages) - 1
    return [one._replace(ts=messages[min(at, last)].ts) for at, one in enumerate(found)]


async def record(path: Path, exp_id: str, messages: list[NewEvent]) -> None:
    """Create an experiment with these messages."""
    async with EventLog.open(str(path)) as log:
        writer = await log.register(await log.create_experiment(exp_id), role="tap")
        for at in range(0, len(messages), BATCH):
            await log.append(writer, messages[at : at + BATCH])
        await log.touch(writer, ended_at=time.time_ns())


class Unlike:
    """`compare` of a run with its altered copy, and `verify` of both."""

    def __init__(self, stage: Stage) -> None:
        self._store = stage.new_path()
        messages = list(events(MESSAGES))
        asyncio.run(record(self._store, "a", messages))
        asyncio.run(record(self._store, "b", altered(messages)))

    def ours(self) -> Values:
        return self._timed(_compared)

    def theirs(self) -> Values:
        return self._timed(_verified)

    def _timed(self, work: Callable[[EventLog], Awaitable[None]]) -> Values:
        async def run() -> float:
            async with EventLog.open(str(self._store), create=False) as log:
                began = time.perf_counter()
                await work(log)
                return time.perf_counter() - began

        return {"time": asyncio.run(run())}


async def _compared(log: EventLog) -> None:
    found = await compare(log, "a", "b")
    if not MESSAGES // 200 < found.messages.differing < MESSAGES // 50:
        raise RuntimeError(str(found))


async def _verified(log: EventLog) -> None:
    for exp_id in ("a", "b"):
        verdict = await verify(log, await log.experiment(exp_id))
        if not verdict.ok:
            raise RuntimeError(verdict.problems[0])
