"""SIGKILL during the creation, upgrade or downgrade of a store, and several at once in one process."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from messager_store import EventLog, NewEvent
from messager_store.db import migrations
from messager_store.db.schema import HEAD_REVISION
from messager_store.testing import Databases, execute, postgres_server
from tests.support import sql, until
from tests.support.next_revision import FIRST, NEXT, Rows, fill, known, migrate, rows_of

from .evidence import OTHERS, UNCLEAN, count_disorder, events, findings
from .process import Worker
from .row import Row, Run, fault

EXP = "e1"
EVENTS = 5
"""Events per batch."""


@fault("kill-creation", "SIGKILL while a store is made", short=2, long=40)
async def creation(run: Run, row: Row) -> None:
    """The next open creates the store, and it works."""
    place = run.place("whole")
    whole = await _duration(place, "head", str(place / "log.db"))
    for number in range(run.tries):
        folder = run.place(f"kill-{number}")
        store = folder / "log.db"
        await _killed_within(run, folder, str(store), "head", whole)
        row.add("created before the kill", revision(store) == HEAD_REVISION)
        written = await _filled(store, recorders=1, batches=2)
        row.offered += written
        await _judge(row, store, written)
        shutil.rmtree(folder)


@fault("kill-migration", "SIGKILL while a store is migrated, up and down", short=2, long=80)
async def migration(run: Run, row: Row) -> None:
    """The store has completely the one revision or the other, with every row; it can be migrated further."""

    def copied(template: str) -> str:
        made = run.place(f"copy-{len(list(run.folder.iterdir()))}") / "log.db"
        if template:
            shutil.copy(template, made)
        return str(made)

    await _kills(run, row, copied)


@fault("postgres-kill-migration", "PostgreSQL: SIGKILL while a store is migrated", short=2, long=80)
async def postgres_migration(run: Run, row: Row) -> None:
    """The same on PostgreSQL, after the backend of the killed process has ended."""
    with postgres_server(durable=True) as server:
        databases = Databases(server.url("postgres"))
        await _kills(run, row, lambda template: databases.create(template or "template1"))


@fault("stores-at-once", "Eight stores are made and upgraded at once in one process", short=1, long=15)
async def at_once(run: Run, row: Row) -> None:
    """Each of them, new or old, on SQLite or PostgreSQL, in this event loop or that of a thread, is whole."""
    with postgres_server() as server:
        databases = Databases(server.url("postgres"))
        old = [str(run.folder / "old.db"), databases.create()]
        for store in old:
            await fill(store)
        alone = [shutil.copy(old[0], run.folder / "alone.db"), databases.create(old[1])]
        for store in map(str, alone):
            await migrate(store, NEXT)
        expected = [await rows_of(str(store)) for store in alone]
        for number in range(run.tries):
            folder = run.place(f"try-{number}")
            upgraded = [shutil.copy(old[0], folder / f"{name}.db") for name in ("a", "b")]
            upgraded = [*map(str, upgraded), *(databases.create(old[1]) for _ in range(2))]
            made = [*(str(folder / f"{name}.db") for name in ("c", "d")), *(databases.create() for _ in range(2))]
            stores = run.dice.sample(upgraded + made, 8)
            in_thread = asyncio.to_thread(asyncio.run, _open_all(stores[:4], upgraded))
            with known():
                done = await asyncio.gather(in_thread, _open_all(stores[4:], upgraded), return_exceptions=True)
            for error in done:
                if error is not None:
                    row.problem(repr(error))
            for store in stores:
                row.tried += 1
                if store in upgraded:
                    _compare(row, expected["://" in store], await rows_of(store), f"{store}, upgraded")
                await migrate(store, FIRST)
                if store not in upgraded:
                    await _filled(store, recorders=1, batches=2)
                await _check(row, store)


async def _open_all(stores: list[str], upgraded: list[str]) -> None:
    await asyncio.gather(*(migrate(store, NEXT) if store in upgraded else _open(store) for store in stores))


async def _open(store: str) -> None:
    async with EventLog.open(store):
        pass


async def _kills(run: Run, row: Row, copied: Callable[[str], str]) -> None:
    """Kill migrations. `copied` returns a copy of a store, or an empty store."""
    path = await _Path.prepared(run.place("whole"), copied)
    for number in range(run.tries):
        target, origin = ((NEXT, FIRST), (FIRST, NEXT))[number % 2]
        store = copied(path.stores[origin])
        folder = run.place(f"kill-{number}")
        await _killed_within(run, folder, store, target, path.durations[target])
        if "://" in store:  # its backend may still commit
            await until(lambda store=store: not execute(store, f"SELECT 1 {OTHERS}"), 30)  # type: ignore[misc]
        await _judge_migrated(row, path, store, target)


@dataclass(frozen=True, slots=True)
class _Path:
    """The way between the two revisions: stores at both, their rows, and durations."""

    stores: dict[str, str]
    """Stores by revision, never changed."""
    rows: dict[str, Rows]
    durations: dict[str, float]
    """Duration of a migration to the revision without a kill, s."""

    @classmethod
    async def prepared(cls, folder: Path, copied: Callable[[str], str]) -> _Path:
        """Return the way, after it was gone once in each direction."""
        stores = {FIRST: copied("")}
        await fill(stores[FIRST])
        stores[NEXT] = copied(stores[FIRST])
        await migrate(stores[NEXT], NEXT)
        rows = {revision: await rows_of(store) for revision, store in stores.items()}
        durations = {
            target: await _duration(folder, target, copied(stores[origin]))
            for target, origin in ((FIRST, NEXT), (NEXT, FIRST))
        }
        return cls(stores, rows, durations)


async def _judge_migrated(row: Row, path: _Path, store: str, target: str) -> None:
    row.tried += 1
    reached = sql(store, "SELECT version_num FROM alembic_version")[0][0]
    row.add("complete before the kill", reached == target)
    if reached not in path.rows:
        row.problem(f"a store is at revision {reached} after a kill on the way to {target}")
        return
    for end in (reached, NEXT, FIRST):
        await migrate(store, end)
        _compare(row, path.rows[end], await rows_of(store), f"{end} after a kill on the way to {target}")
        if end == FIRST:
            await _check(row, store)


def _compare(row: Row, expected: Rows, found: Rows, when: str) -> None:
    """Count rows that are missing, and report others."""
    for table, rows in expected.items():
        row.offered += len(rows)
        if table not in found:
            row.problem(f"the table {table} is missing at {when}")
            continue
        row.lost += sum(1 for each in rows if each not in found[table])
        if len(found[table]) != len(rows):
            row.problem(f"{len(found[table])} rows of {table} instead of {len(rows)} at {when}")


async def _check(row: Row, store: str) -> None:
    for problem in await findings(store):
        if UNCLEAN not in problem:
            row.problem(problem)
    async with EventLog.open(store) as log, log.database.reading() as connection:
        for difference in await connection.run_sync(migrations.differences):
            row.problem(difference)


async def _duration(folder: Path, target: str, store: str) -> float:
    """Return the duration of a worker without a kill, s."""
    worker = await Worker.start("migrate", folder, store=store, target=target)
    await worker.heard("ready")
    started = time.monotonic()
    await worker.heard("done")
    duration = time.monotonic() - started
    await worker.ended()
    return duration


async def _killed_within(run: Run, folder: Path, store: str, target: str, duration: float) -> None:
    worker = await Worker.start("migrate", folder, store=store, target=target)
    await worker.heard("ready")
    await asyncio.sleep(run.dice.uniform(0, duration))
    await worker.kill()


async def _filled(store: Path | str, recorders: int, batches: int) -> int:
    """Put an experiment into a store; return the number of its events."""
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
    """Return the revision of a store; None without tables."""
    if not store.exists():
        return None
    with closing(sqlite3.connect(store)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
            return None
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if found is None else str(found[0])
