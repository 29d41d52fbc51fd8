"""SIGKILL while tables are made, brought up or brought back."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from messager_store import EventLog, NewEvent
from messager_store.db import migrations
from messager_store.db.database import Database
from messager_store.db.schema import HEAD_REVISION

from .evidence import count_disorder, events, findings
from .process import Worker
from .row import Row, Run, fault

EXP = "e1"
RECORDERS, BATCHES, EVENTS = 4, 150, 5
"""What the store holds that is migrated: so many recorders, batches of each, and events in a batch."""
OLDEST = "0001"


@fault("kill-creation", "SIGKILL while a store is made", short=2, long=40)
async def creation(run: Run, row: Row) -> None:
    """The next one who opens the store makes it, and it works."""
    whole = await _duration(run.place("whole"), "head", None)
    for number in range(run.tries):
        folder = run.place(f"kill-{number}")
        store = folder / "log.db"
        await _killed_within(run, folder, store, "head", whole)
        row.add("made already when it was killed", revision(store) == HEAD_REVISION)
        written = await _filled(store, recorders=1, batches=2)
        row.offered += written
        await _judge(row, store, written)
        shutil.rmtree(folder)


@fault("kill-migration", "SIGKILL while a store is migrated, up and down", short=2, long=50)
async def migration(run: Run, row: Row) -> None:
    """The store is at one revision or the other, whole; `db upgrade` then works, and verify finds nothing."""
    ready = run.place("ready")
    written = await _filled(ready / "new.db", RECORDERS, BATCHES)
    shutil.copy(ready / "new.db", ready / "old.db")
    await _migrated(ready / "old.db", OLDEST)
    durations = {
        OLDEST: await _duration(run.place("down"), OLDEST, ready / "new.db"),
        "head": await _duration(run.place("up"), "head", ready / "old.db"),
    }
    for number in range(run.tries):
        target, before = ((OLDEST, "new"), ("head", "old"))[number % 2]
        folder = run.place(f"kill-{number}")
        store = folder / "log.db"
        shutil.copy(ready / f"{before}.db", store)
        await _killed_within(run, folder, store, target, durations[target])
        row.offered += written
        found = revision(store)
        row.add("done already when it was killed", found == (HEAD_REVISION if target == "head" else target))
        if found not in (OLDEST, HEAD_REVISION):
            row.problem(f"the store is at revision {found} after a kill on the way to {target}")
            continue
        await _migrated(store, "head")
        await _judge(row, store, written)
        shutil.rmtree(folder)


async def _duration(folder: Path, target: str, template: Path | None) -> float:
    """How long a worker takes that nobody kills, s."""
    store = folder / "log.db"
    if template is not None:
        shutil.copy(template, store)
    worker = await Worker.start("migrate", folder, store=str(store), target=target)
    await worker.heard("ready")
    started = time.monotonic()
    await worker.heard("done")
    duration = time.monotonic() - started
    await worker.ended()
    return duration


async def _killed_within(run: Run, folder: Path, store: Path, target: str, duration: float) -> None:
    worker = await Worker.start("migrate", folder, store=str(store), target=target)
    await worker.heard("ready")
    await asyncio.sleep(run.dice.uniform(0, duration))
    await worker.kill()


async def _filled(store: Path, recorders: int, batches: int) -> int:
    """Put an experiment into a store; how many events it has."""
    async with EventLog.open(str(store)) as log:
        of = await log.create_experiment(EXP, name="kept", tags=["t"], meta={"seed": 7})
        for _ in range(recorders):
            writer = await log.register(of, role="messager")
            for part in range(batches):
                first = part * EVENTS
                entries = [
                    NewEvent("sent", n, f"channel {n % 3}", b'{"n": %d}' % n, n % 5, "all")
                    for n in range(first, first + EVENTS)
                ]
                await log.append(writer, entries, unacknowledged_ns=part)
            await log.touch(writer, ended_at=time.time_ns())
    return recorders * batches * EVENTS


async def _migrated(store: Path, target: str) -> None:
    database = Database(str(store))
    await database.open_engines()
    act = migrations.upgrade if target == "head" else migrations.downgrade
    async with database.writing() as connection:
        await connection.run_sync(act, target)
    await database.close()


async def _judge(row: Row, store: Path, written: int) -> None:
    logged = events(store, EXP)
    row.tried += 1
    row.lost += max(written - len(logged), 0)
    count_disorder(row, logged, "sent")
    for problem in await findings(store):
        row.problem(f"{store.parent.name}: {problem}")
    async with EventLog.open(str(store)) as log, log.database.reading() as connection:
        for difference in await connection.run_sync(migrations.differences):
            row.problem(f"{store.parent.name}: {difference}")


def revision(store: Path) -> str | None:
    """The revision a store says it is at; None where there are no tables yet."""
    if not store.exists():
        return None
    with closing(sqlite3.connect(store)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
            return None
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if found is None else str(found[0])
