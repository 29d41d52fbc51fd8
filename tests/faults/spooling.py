"""Stores that are moved away, locked or full while processes record; kills, and drains of the spools."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from messager.testing import redis_server
from messager_store import EventLog

from .evidence import Store, count_disorder, count_repeats, drained, events, findings
from .killing import EXP, judge_killed, judge_unclean
from .process import Worker
from .row import Row, Run, fault
from .witness import Witness

DURABILITIES = ("buffered", "strict")
THREADS = 4
APART = 10_000_000
"""Distance of the numbers of two threads."""
LOCKED = 6.0
"""Duration of a lock, s: longer than the 4 s for which a writer waits for another."""
BEFORE = 0.3
"""Maximum time of recording before the store becomes unreachable, and after it is back, s."""


@fault("store-locked", "Store locked for longer than the busy timeout", short=1, long=8)
async def locked(run: Run, row: Row) -> None:
    """No event is lost, and no gap is logged."""
    await _away(run, row, _lock, LOCKED)


@fault("store-moved", "Store moved away while it is recorded into, and back", short=1, long=12)
async def moved(run: Run, row: Row) -> None:
    """No event is lost, and no file is created in the old place."""
    await _away(run, row, _move, 3.0)


@fault("store-unsearchable", "Folder of the store made unsearchable (EACCES), and searchable again", short=1, long=12)
async def unsearchable(run: Run, row: Row) -> None:
    """Permission denied is an outage like any other."""
    await _away(run, row, _shut, 3.0, denied=True)


@fault("store-full", "Store full (SQLITE_FULL)", short=1, long=12)
async def full(run: Run, row: Row) -> None:
    """Events that the store refuses go to the spool."""
    await _away(run, row, _fill, 3.0, full=True)


@fault("disk-full", "Disk full, for store and spool (EFBIG)", short=1, long=12)
async def disk_full(run: Run, row: Row) -> None:
    """Logged events are in order; messages that strict could not log are not published."""
    await _away(run, row, _limit, 6.5)


async def _away(run: Run, row: Row, break_: Any, seconds: float, **options: Any) -> None:
    """Make the store unreachable for a buffered and a strict recorder for a while, then stop both by SIGTERM."""
    with redis_server() as server:
        for number in range(run.tries):
            folder = run.place(f"away-{number}")
            (folder / "store").mkdir()
            store = folder / "store" / "log.db"
            async with EventLog.open(str(store)):
                pass
            async with Witness.watching(server.port) as witness:
                workers = [
                    await Worker.start(
                        "send",
                        folder,
                        store=str(store),
                        exp=durability,
                        broker=server.url,
                        first=1 + at * 10_000_000,
                        pause=0.01 if run.short else 0.002,
                        recorder={"durability": durability, "spool": str(folder / "spool")},
                        **options,
                    )
                    for at, durability in enumerate(DURABILITIES)
                ]
                for worker in workers:
                    await worker.heard("ready")
                await asyncio.sleep(run.dice.uniform(0.05, BEFORE))
                with break_(store, workers):
                    await asyncio.sleep(seconds * run.dice.uniform(0.8, 1.2))
                    for worker in workers:  # a busy machine takes longer until both have noticed
                        await worker.heard("away")
                await asyncio.sleep(run.dice.uniform(0, BEFORE))
                for worker in workers:
                    await worker.stop()
                await witness.caught_up()
            row.tried += 1
            for durability, worker in zip(DURABILITIES, workers, strict=True):
                await judge_away(row, store, durability, worker, witness.saw)
            if (folder / "spool").exists():
                row.problem(f"away-{number}: a spool was left: {[path.name for path in (folder / 'spool').iterdir()]}")
            for problem in await findings(store):
                row.problem(f"away-{number}: {problem}")
            shutil.rmtree(folder)


async def judge_away(row: Row, store: Store, durability: str, worker: Worker, saw: list[int]) -> None:
    """Each sent message is in the log once, and no refused message was published."""
    sent = worker.said.get("sent", [])
    row.offered += len(sent)
    logged = events(store, durability)
    row.add("spooled", worker.last("spooled") > 0)
    row.add("refused by strict", len(worker.said.get("refused", [])))
    kept = {entry.n for entry in logged if entry.kind == "sent"}
    lost = [n for n in sent if n not in kept]
    counted = sum(entry.meta["count"] or 0 for entry in logged if entry.kind == "gap")
    if durability == "strict":
        row.lost += len(lost)
    else:  # buffered may drop events, but a gap counts them
        row.unnoticed += max(len(lost) - counted, 0)
        row.add("dropped, as the gap says", min(len(lost), counted))
    count_disorder(row, logged, "sent")
    mine = set(sent)
    count_repeats(row, [n for n in saw if n in mine])
    row.unnoticed += len(set(worker.said.get("refused", [])) & set(saw))


@contextlib.contextmanager
def _lock(store: Path, workers: list[Worker]) -> Iterator[None]:
    with closing(sqlite3.connect(store, isolation_level=None, timeout=30)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            holder.execute("ROLLBACK")


@contextlib.contextmanager
def _move(store: Path, workers: list[Worker]) -> Iterator[None]:
    elsewhere = store.parent.with_name("elsewhere")
    store.parent.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(store.parent)


@contextlib.contextmanager
def _shut(store: Path, workers: list[Worker]) -> Iterator[None]:
    store.parent.chmod(0)
    try:
        yield
    finally:
        store.parent.chmod(0o700)


@contextlib.contextmanager
def _fill(store: Path, workers: list[Worker]) -> Iterator[None]:
    for worker in workers:
        os.kill(worker.pid, signal.SIGUSR1)
    try:
        yield
    finally:
        for worker in workers:
            os.kill(worker.pid, signal.SIGUSR1)


@contextlib.contextmanager
def _limit(store: Path, workers: list[Worker]) -> Iterator[None]:
    """Prevent all files of these processes from growing, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for worker in workers:
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        yield
    finally:
        for worker in workers:
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, before)


@fault("sigkill-spooling", "SIGKILL while the store is locked, then drain", short=2, long=40, seconds=500)
async def killed_while_spooling(run: Run, row: Row) -> None:
    """Each event in the spool is in the log once after a drain."""
    with redis_server() as server:
        for number in range(run.tries):
            folder = run.place(f"kill-{number}")
            durability = DURABILITIES[number % 2]
            worker, saw = await _spooled(folder, server.port, durability, run.dice.uniform(0, 1.5))
            row.tried += 1
            row.offered += worker.last("accepted")
            await drained(row, folder / "log.db", folder / "log.db-spool")
            await judge_killed(row, folder / "log.db", worker, saw, durability)
            shutil.rmtree(folder)


@fault("kill-drain", "SIGKILL while a spool is drained, again and again", short=1, long=20)
async def killed_while_draining(run: Run, row: Row) -> None:
    """The next drain continues, and each event is in the log once in the end."""
    with redis_server() as server:
        made = run.place("made")
        worker, saw = await _spooled(made, server.port, "buffered", 1.0, pause=0.002)
    ready = made.rename(run.folder / "ready")  # the path of the spool in the row is wrong then
    whole = 0.0
    for number in range(run.tries + 1):
        folder = run.place(f"kill-{number}")
        store, spool = folder / "log.db", folder / "log.db-spool"
        for path in ready.iterdir():
            (shutil.copytree if path.is_dir() else shutil.copy)(path, folder / path.name)
        if not number:  # the first run is only measured
            whole = await _drain_within(run, folder, None)
            continue
        for _ in range(3):
            await _drain_within(run, folder, whole)
            row.tried += 1
            if not spool.exists():
                row.add("complete before the kill", 1)
                break
        row.offered += worker.last("durable")
        await drained(row, folder / "log.db", folder / "log.db-spool")
        await judge_killed(row, store, worker, saw, "buffered")
        shutil.rmtree(folder)


@fault("threads", "Store locked while threads record, and back; then SIGKILL or the end", short=2, long=40)
async def threads(run: Run, row: Row) -> None:
    """The log has the first events of each thread, without holes: all that were durable, and at the end all."""
    for number in range(run.tries):
        folder = run.place(f"threads-{number}")
        store, spool = folder / "log.db", folder / "spool"
        async with EventLog.open(str(store)):
            pass
        worker = await Worker.start(
            "threads",
            folder,
            store=str(store),
            exp=EXP,
            threads=THREADS,
            apart=APART,
            pause=0.001,
            recorder={"spool": str(spool)},
        )
        await worker.heard("durable", 50)
        with _lock(store, []):
            await worker.heard("spooled")
        await asyncio.sleep(run.dice.uniform(0, BEFORE))
        killed = number % 2 == 0
        await (worker.kill() if killed else worker.stop())
        row.tried += 1
        row.offered += len(worker.said["recorded"])
        if spool.exists():
            await drained(row, store, spool)
        logged = [entry for entry in events(store, EXP) if entry.n is not None]
        seqs = {entry.seq for entry in logged}
        row.lost += len(set(range(1, max(worker.last("durable"), len(logged)) + 1)) - seqs)
        for thread in range(THREADS):
            own = [entry.n - thread * APART for entry in logged if entry.n is not None and entry.n // APART == thread]
            count_repeats(row, own)
            recorded = sum(n // APART == thread for n in worker.said["recorded"])
            row.lost += len(set(range(1, (max(own, default=0) if killed else recorded) + 1)) - set(own))
        row.add("lost after the last commit, as allowed", max(0, len(worker.said["recorded"]) - len(logged)))
        if killed:
            await judge_unclean(row, store)
        else:
            for problem in await findings(store):
                row.problem(f"{store}: {problem}")
        shutil.rmtree(folder)


async def _spooled(
    folder: Path, port: int, durability: str, seconds: float, pause: float = 0.0
) -> tuple[Worker, list[int]]:
    """Create a store and the spool of a process that was killed while the store was locked."""
    store = folder / "log.db"
    async with Witness.watching(port) as witness:
        worker = await Worker.start(
            "send",
            folder,
            store=str(store),
            exp=EXP,
            broker=f"redis://127.0.0.1:{port}/0",
            listen=True,
            pause=pause,
            recorder={"durability": durability, "spool": str(folder / "log.db-spool")},
        )
        await worker.heard("durable", 50)
        with _lock(store, []):
            await worker.heard("spooled")
            await asyncio.sleep(seconds)
            await worker.kill()
        await witness.caught_up()
    return worker, witness.saw


async def _drain_within(run: Run, folder: Path, duration: float | None) -> float:
    """Drain in a process that is killed within `duration` seconds, or never; return its run time (s)."""
    worker = await Worker.start("drain", folder, store=str(folder / "log.db"), spool=str(folder / "log.db-spool"))
    await worker.heard("ready")
    started = asyncio.get_running_loop().time()
    if duration is None:
        await worker.heard("done")
    else:
        await asyncio.sleep(run.dice.uniform(0, duration))
    took = asyncio.get_running_loop().time() - started
    await worker.kill()
    return took
