"""Faults with PostgreSQL: killed recorders, ended and cut connections, and shutdowns of the server."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable

from messager.testing import redis_server
from messager_store import EventLog
from messager_store.recording.repair import repair, unclean
from messager_store.testing import Databases, PostgresServer, execute, postgres_server
from tests.support import Proxy, until

from .evidence import OTHERS, drained, findings
from .killing import EXP, LONGEST, judge_killed
from .process import Worker
from .row import Row, Run, fault
from .spooling import BEFORE, DURABILITIES, judge_away
from .witness import Witness

BREAKS = 15
"""Number of broken connections per try."""
BETWEEN = 0.15
"""Maximum time between two of them, s."""
MOST_BYTES = 20_000
"""Maximum number of bytes between two cuts of a connection."""

Break = Callable[[Run, PostgresServer, Proxy, str], Awaitable[None]]


@fault(
    "postgres-sigkill-buffered", "PostgreSQL: SIGKILL of a recording process, buffered", short=1, long=60, seconds=600
)
async def buffered(run: Run, row: Row) -> None:
    """Acknowledged events are in the log; the missing ones are later and lie in a gap."""
    await _kills(run, row, "buffered")


@fault("postgres-sigkill-strict", "PostgreSQL: SIGKILL of a recording process, strict", short=1, long=60)
async def strict(run: Run, row: Row) -> None:
    """Every message that was published is in the log."""
    await _kills(run, row, "strict")


async def _kills(run: Run, row: Row, durability: str) -> None:
    with redis_server() as redis, postgres_server(durable=True) as server:
        databases = Databases(server.url("postgres"))
        for number in range(run.tries):
            folder, store = run.place(f"kill-{number}"), databases.create()
            async with Witness.watching(redis.port) as witness:
                worker = await Worker.start(
                    "send",
                    folder,
                    store=store,
                    exp=EXP,
                    broker=redis.url,
                    listen=True,
                    recorder={"durability": durability, "spool": str(folder / "spool")},
                )
                await worker.heard("accepted", 1)  # so that an event could be lost
                await asyncio.sleep(run.dice.uniform(0, LONGEST))
                await worker.kill()
                await witness.caught_up()
            # Its backend may still commit a batch that was sent before the kill.
            await until(lambda store=store: not execute(store, f"SELECT 1 {OTHERS}"), 30)  # type: ignore[misc]
            row.tried += 1
            row.offered += worker.last("accepted")
            await drained(row, store, folder / "spool")
            await judge_killed(row, store, worker, witness.saw, durability)
            databases.drop(store)
            shutil.rmtree(folder)


@fault("postgres-backends", "PostgreSQL: backends ended while events are appended", short=1, long=20)
async def backends(run: Run, row: Row) -> None:
    """No event is lost, and no gap is logged."""

    async def end(run: Run, server: PostgresServer, proxy: Proxy, store: str) -> None:
        for _ in range(BREAKS if not run.short else BREAKS // 3):
            await asyncio.sleep(run.dice.uniform(0, BETWEEN))
            ended = await asyncio.to_thread(execute, store, f"SELECT pg_terminate_backend(pid) {OTHERS}")
            row.add("connections ended", len(ended))

    await _broken(run, row, end)


@fault("postgres-immediate", "PostgreSQL: immediate shutdown, and a restart", short=1, long=15)
async def immediate(run: Run, row: Row) -> None:
    """The same."""

    async def restart(run: Run, server: PostgresServer, proxy: Proxy, store: str) -> None:
        for _ in range(1 if run.short else 2):
            await asyncio.to_thread(server.stop, "immediate")
            await asyncio.sleep(run.dice.uniform(0, 1.5))
            await asyncio.to_thread(server.start)
            row.add("shutdowns", 1)
            await asyncio.sleep(run.dice.uniform(0, BEFORE))

    await _broken(run, row, restart)


@fault("postgres-cut", "PostgreSQL: connections cut within a batch", short=1, long=20)
async def cut(run: Run, row: Row) -> None:
    """The same, for every point within a batch."""

    async def break_(run: Run, server: PostgresServer, proxy: Proxy, store: str) -> None:
        for _ in range(BREAKS if not run.short else BREAKS // 3):
            proxy.cut_after = run.dice.randrange(1, MOST_BYTES)
            await until(lambda: proxy.cut_after is None, 30)
            row.add("connections cut", 1)
            await asyncio.sleep(run.dice.uniform(0, BETWEEN))

    await _broken(run, row, break_)


async def _broken(run: Run, row: Row, break_: Break) -> None:
    """Break the connections of a buffered and a strict recorder, then stop both by SIGTERM."""
    with redis_server() as redis, postgres_server(durable=True) as server:
        databases = Databases(server.url("postgres"))
        for number in range(run.tries):
            folder, store = run.place(f"broken-{number}"), databases.create()
            async with EventLog.open(store):
                pass
            async with Witness.watching(redis.port) as witness, Proxy(server.port).running() as proxy:
                workers = [
                    await Worker.start(
                        "send",
                        folder,
                        store=server.url(store.rpartition("/")[2], port=proxy.port),
                        exp=durability,
                        broker=redis.url,
                        first=1 + at * 10_000_000,
                        pause=0.01 if run.short else 0.002,
                        recorder={"durability": durability, "spool": str(folder / "spool")},
                    )
                    for at, durability in enumerate(DURABILITIES)
                ]
                for worker in workers:
                    await worker.heard("sent", 20)
                await break_(run, server, proxy, store)
                await asyncio.sleep(run.dice.uniform(0, BEFORE))
                for worker in workers:
                    await worker.stop()
                await witness.caught_up()
            row.tried += 1
            if not any(worker.said["away"] for worker in workers):
                row.problem(f"broken-{number}: no recorder noticed an outage, so the row proves nothing")
            if (folder / "spool").exists():  # the store was not back before the time limit of `stop`
                row.add("spools left for a drain", 1)
                await drained(row, store, folder / "spool")
                async with EventLog.open(store) as log:
                    for of in await unclean(log):
                        await repair(log, of)
            for durability, worker in zip(DURABILITIES, workers, strict=True):
                await judge_away(row, store, durability, worker, witness.saw)
            if (folder / "spool").exists():
                row.problem(f"broken-{number}: a spool was left")
            for problem in await findings(store):
                row.problem(f"broken-{number}: {problem}")
            databases.drop(store)
            shutil.rmtree(folder)
