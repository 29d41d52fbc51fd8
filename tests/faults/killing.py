"""SIGKILL of a recording process at random times."""

from __future__ import annotations

import asyncio
import shutil

from messager_store import EventLog
from messager_store.recording.repair import repair, unclean

from .carriers import REDIS, Carrier
from .evidence import UNCLEAN, Store, count_disorder, count_repeats, events, findings, gaps, recorders, within
from .process import Worker
from .row import Row, Run, fault
from .witness import Witness

EXP = "e1"
LONGEST = 0.5
"""Maximum time for which a process records before the kill, s."""
STARTING = 0.15
"""Fraction of the kills during the start of the process."""
STARTS_WITHIN = 0.3
"""Latest time of those kills after the start, s."""


@fault("sigkill-buffered", "SIGKILL of a recording process, buffered", short=1, long=100)
async def buffered(run: Run, row: Row) -> None:
    """Acknowledged events are in the log; the missing ones are later and lie in a gap."""
    await kills(run, row, durability="buffered", blocked=False)


@fault("sigkill-blocked", "SIGKILL, buffered, its event loop blocked", short=1, long=100)
async def buffered_with_a_blocked_loop(run: Run, row: Row) -> None:
    """The same for a process that blocks its event loop, as an agent does by computing."""
    await kills(run, row, durability="buffered", blocked=True)


@fault("sigkill-strict", "SIGKILL of a recording process, strict", short=1, long=100)
async def strict(run: Run, row: Row) -> None:
    """Every message that was published is in the log."""
    await kills(run, row, durability="strict", blocked=False)


async def kills(run: Run, row: Row, *, durability: str, blocked: bool, carrier: Carrier = REDIS) -> None:
    """Kill a recording process at a random time, and compare its log with what a witness received."""
    with carrier.server() as server:
        for number in range(run.tries):
            store = run.place(f"kill-{number}") / "log.db"
            async with Witness.watching(server.port, carrier) as witness:
                worker = await Worker.start(
                    "send",
                    store.parent,
                    store=str(store),
                    exp=EXP,
                    broker=server.url,
                    listen=True,
                    pause=carrier.pause,
                    blocked=run.dice.randrange(1 << 30) if blocked else None,
                    recorder={"durability": durability},
                )
                if run.dice.random() < STARTING and number:
                    await asyncio.sleep(run.dice.uniform(0, STARTS_WITHIN))
                else:
                    await worker.heard("ready")
                    if not number:
                        await worker.heard("accepted", 1)  # at least once, an event could be lost
                    await asyncio.sleep(run.dice.uniform(0, LONGEST))
                await worker.kill()
                await witness.caught_up()
            row.tried += 1
            row.offered += worker.last("accepted")
            await judge_killed(row, store, worker, witness.saw, durability)
            shutil.rmtree(store.parent)


async def judge_killed(row: Row, store: Store, worker: Worker, saw: list[int], durability: str) -> None:
    """Compare the output of a killed process and the published messages with its log and its gaps."""
    count_repeats(row, saw)
    logged = events(store, EXP)
    there = {entry.seq for entry in logged if entry.recorder == 1}
    row.lost += sum(1 for seq in range(1, worker.last("durable") + 1) if seq not in there)
    for kind in ("sent", "received"):
        count_disorder(row, logged, kind)
    if durability == "strict":
        _judge_intents(row, [entry.n for entry in logged if entry.kind == "sent" and entry.n is not None], saw)
    await judge_unclean(row, store)
    known = gaps(events(store, EXP))
    kinds = ("received",) if durability == "strict" else ("sent", "received")
    missing = 0
    for kind in kinds:
        kept = sum(1 for entry in logged if entry.kind == kind)
        lost = worker.said.get(f"{kind}_at", [])[kept:]
        missing += len(lost)
        row.unnoticed += sum(1 for ts in lost if not within(ts, known))
    row.add("lost after the last commit, as allowed", missing)
    row.most("most in one kill", missing)


def _judge_intents(row: Row, intents: list[int], saw: list[int]) -> None:
    """Strict: all published messages are logged. Only the last logged ones may be unpublished."""
    row.lost += len(set(saw) - set(intents))
    never_left = set(intents) - set(saw)
    row.add("intents that never left", len(never_left))
    row.unnoticed += sum(1 for n in never_left if saw and n < max(saw))


async def judge_unclean(row: Row, store: Store, *, ended: int = 0) -> None:
    """Each recorder but `ended` ones counts as ended uncleanly; after a repair there are no problems."""
    there = recorders(store, EXP)
    found = await findings(store)
    row.unnoticed += max(len(there) - ended - sum(UNCLEAN in problem for problem in found), 0)
    for problem in found:
        if UNCLEAN not in problem:
            row.problem(f"{store}: {problem}")
    async with EventLog.open(str(store)) as log:
        for of in await unclean(log):
            await repair(log, of)
    for problem in await findings(store):
        row.problem(f"{store}, repaired: {problem}")
