"""SIGKILL of a process that records, at random instants."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from messager.testing import redis_server

from .evidence import UNCLEAN, count_disorder, count_repeats, events, findings, recorders
from .process import Worker
from .row import Row, Run, fault
from .witness import Witness

LONGEST = 0.5
"""Seconds a process records at the most before it is killed."""
STARTING = 0.15
"""The part of the kills that come while the process still starts."""
STARTS_WITHIN = 0.8
"""Seconds in which those come."""


@fault("sigkill-buffered", "SIGKILL of a recording process, buffered", short=4, long=120, seconds=400)
async def buffered(run: Run, row: Row) -> None:
    """What was acknowledged is there; what is missing came after it, and the recorder shows as unclean."""
    await _buffered(run, row, blocked=False)


@fault("sigkill-blocked", "SIGKILL, buffered, event loop blocked", short=3, long=100, seconds=400)
async def buffered_with_a_blocked_loop(run: Run, row: Row) -> None:
    """The same where the process keeps its event loop from running, as an agent's own work does."""
    await _buffered(run, row, blocked=True)


async def _buffered(run: Run, row: Row, *, blocked: bool) -> None:
    with redis_server() as server:
        for number in range(run.tries):
            store = run.place(f"kill-{number}") / "log.db"
            options: dict[str, Any] = {"listen": True, "blocked": run.dice.randrange(1 << 30) if blocked else None}
            worker, saw = await _one_kill(run, server.port, store, **options)
            count_repeats(row, saw)
            await _judge_buffered(row, store, worker)
            row.tried += 1
            run.progress(row)
            shutil.rmtree(store.parent)


async def _one_kill(run: Run, port: int, store: Path, **options: Any) -> tuple[Worker, list[int]]:
    """Let a process record until it is killed: what it had said, and what was on the wire."""
    async with Witness.watching(port) as witness:
        worker = await Worker.start(
            "send", store.parent, store=str(store), exp="e1", redis=f"redis://127.0.0.1:{port}/0", **options
        )
        if run.dice.random() < STARTING:
            await asyncio.sleep(run.dice.uniform(0, STARTS_WITHIN))
        else:
            await worker.heard("ready")
            await asyncio.sleep(run.dice.uniform(0, LONGEST))
        await worker.kill()
        await witness.caught_up()
    return worker, witness.saw


async def _judge_buffered(row: Row, store: Path, worker: Worker) -> None:
    logged = events(store, "e1")
    accepted, acknowledged = worker.last("accepted"), worker.last("acked")
    row.offered += accepted
    seqs = {entry.seq for entry in logged}
    row.lost += sum(1 for seq in range(1, acknowledged + 1) if seq not in seqs)
    allowed = max(accepted - len(logged), 0)
    row.add("lost after the last commit, as allowed", allowed)
    row.most("most in one kill", allowed)
    for kind in ("sent", "received"):
        count_disorder(row, logged, kind)
    await judge_unclean(row, store)


async def judge_unclean(row: Row, store: Path) -> None:
    """Every recorder of a killed process shows as ended uncleanly, and nothing else is wrong."""
    there = recorders(store, "e1")
    found = await findings(store)
    unclean = sum(UNCLEAN in problem for problem in found)
    row.unnoticed += max(len(there) - unclean, 0)
    for problem in found:
        if UNCLEAN not in problem:
            row.problem(f"{store.parent.name}: {problem}")
