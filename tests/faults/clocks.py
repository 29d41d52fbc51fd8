"""Steps of the wall clock, back and forward, by up to an hour, between sessions and during them."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from messager.testing import redis_server
from messager_store import EventLog
from messager_store.recording.repair import repair, unclean

from .evidence import UNCLEAN, count_disorder, drained, events, findings, gaps, within
from .process import Worker
from .row import Row, Run, fault

EXP = "e1"
SESSIONS = 3
LONGEST = 0.6
"""Maximum duration of a session, s."""
AHEAD = (-3600.0, 0.0, 3600.0)
"""Error of the clock at the start of a session, s."""


@fault("clock-stepped", "Wall clock stepped back and forward", short=1, long=20)
async def stepped(run: Run, row: Row) -> None:
    """Order and pace within a recorder are kept. Events lost by the kill of the last session lie in a gap."""
    with redis_server() as server:
        for number in range(run.tries):
            folder = run.place(f"steps-{number}")
            store = folder / "log.db"
            for session in range(SESSIONS):
                began = time.monotonic_ns()
                worker = await Worker.start(
                    "send",
                    folder,
                    store=str(store),
                    exp=EXP,
                    broker=server.url,
                    stepping=run.dice.randrange(1 << 30),
                    ahead=AHEAD[(session + number) % len(AHEAD)],
                )
                await worker.heard("sent", 50)
                await worker.heard(
                    "durable", 1
                )  # until then, only `started_at`, of another clock, tells what is missing
                await asyncio.sleep(run.dice.uniform(0, LONGEST))
                await (worker.kill() if session == SESSIONS - 1 else worker.stop())
                await drained(row, store, folder / "log.db-spool")  # a busy machine may make a recorder spool
                lasted = time.monotonic_ns() - began
                logged = [entry for entry in events(store, EXP) if entry.recorder == session + 1]
                row.offered += len(logged)
                row.lost += sum(1 for n in worker.said["durable"][-1:] if n > len(logged))
                stretch = max(entry.ts for entry in logged) - min(entry.ts for entry in logged)
                row.out_of_order += stretch > lasted
            row.tried += 1
            count_disorder(row, events(store, EXP), "sent")
            kept = sum(1 for entry in logged if entry.kind == "sent")
            await _judge_unclean(row, store, worker.said["sent_at"][kept:])
            shutil.rmtree(folder)


async def _judge_unclean(row: Row, store: Path, lost: list[int]) -> None:
    """The killed session counts as ended uncleanly, and its lost events lie in the gap of the repair."""
    found = await findings(store)
    row.unnoticed += not any(UNCLEAN in problem for problem in found)
    async with EventLog.open(str(store)) as log:
        for of in await unclean(log):
            await repair(log, of)
    for problem in await findings(store):
        row.problem(f"{store.parent.name}: {problem}")
    known = gaps(events(store, EXP))
    row.add("lost after the last commit, as allowed", len(lost))
    row.unnoticed += sum(1 for ts in lost if not within(ts, known))
