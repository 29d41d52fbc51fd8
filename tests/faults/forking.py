"""Kills of a process that forks an experiment."""

from __future__ import annotations

from collections.abc import Callable

from messager import MemoryBroker
from messager_store import Event, EventLog, Fork, Recorder
from messager_store.lockstep.recording import Recording
from messager_store.lockstep.schedule import key
from messager_store.maintenance.verify import verify
from tests.support.forking import Society, check_fork, recorded
from tests.support.logs import listed

from .process import Worker
from .row import Row, Run, fault

AT = "mark:phase#3"
PARENT = "e1"
PAUSE = 0.02


async def fork(say: Callable[..., None], store: str, into: str, strict: bool = True) -> None:
    """Fork the society; write the number of events that are done whenever it grows."""
    async with EventLog.open(store) as log:
        forked: Fork

        def tell(_: object) -> None:
            say("done", forked.done)

        recorder = {"durability": "strict" if strict else "buffered"}
        forked = Fork(log, PARENT, into, MemoryBroker(), at=AT, on_cursor=tell, recorder=recorder)
        async with forked:
            await forked.play(Society("abXY", pause=PAUSE).agents)
    say("complete")


@fault("kill-fork", "SIGKILL of a process that forks an experiment", short=2, long=60)
async def killed_while_forking(run: Run, row: Row) -> None:
    """The part already forked is whole: each event once, with all that it depends on. The next fork succeeds."""
    store = run.folder / "log.db"
    async with EventLog.open(str(store)) as log:
        async with Recorder(log, PARENT, close_experiment=True) as recorder:
            await recorded(MemoryBroker(), recorder, PARENT, Society("abcd", pause=PAUSE, seed=1).agents)
        prefix = await listed(log.read(PARENT, until=AT))
    for number in range(run.tries):
        into = f"killed-{number}"
        worker = await Worker.start("fork", run.folder, store=str(store), into=into)
        await worker.heard("done", run.dice.randint(1, len(prefix)))
        await worker.kill()
        row.tried += 1
        async with EventLog.open(str(store)) as log:
            await judge_fork(row, log, into, worker.last("done"))
    worker = await Worker.start("fork", run.folder, store=str(store), into="whole")
    await worker.heard("complete")
    await worker.kill()
    async with EventLog.open(str(store)) as log:
        await check_fork(log, PARENT, "whole", AT)


async def judge_fork(row: Row, log: EventLog, into: str, done: int) -> None:
    """Count what is doubled in the prefix of a fork, what is not part of it, and what is missing of the rest."""
    uuids = {each.ordinal: each.uuid for each in await log.recorders(await log.experiment(PARENT))}
    recording = Recording.of_events(PARENT, await listed(log.read(PARENT)))
    by_origin = {(uuids[entry.recorder], entry.seq): entry for entry in recording.events}
    origins = [entry.origin for entry in await listed(log.read(into)) if entry.origin is not None]
    row.offered += len(origins)
    row.doubled += len(origins) - len(set(origins))
    there = [by_origin[origin] for origin in origins if origin in by_origin]
    row.unnoticed += len(origins) - len(there)
    row.lost += _missing(recording, there)
    row.most("events of the prefix in a killed fork", len(origins))
    row.add("events done and not yet in the log", max(0, done - len(origins)))
    fork_ = await log.experiment(into)
    for problem in (await verify(log, fork_)).problems:
        if "ended uncleanly" not in problem:
            row.problem(problem)
    if fork_.meta.get("prefix") == "complete" and len(origins) < done:
        row.problem(f"{into} is said to be complete")


def _missing(recording: Recording, there: list[Event]) -> int:
    """Return the number of events that others depend on and that are missing."""
    keys = set(map(key, there))
    sources = recording.sources
    missing = set()
    for entry in there:
        if entry.kind == "received":
            needed = [sources[key(entry)]] if key(entry) in sources else []
            arrivals = (entry.arrival or 0) - 1
        else:
            needed, arrivals = [], entry.arrival or 0
        needed += [
            key(one)
            for one in recording.events
            if one.messager == entry.messager and one.kind == "received" and (one.arrival or 0) <= arrivals
        ]
        missing.update(one for one in needed if one not in keys)
    return len(missing)
