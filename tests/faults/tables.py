"""Tables that a driver with an SQLite of its own reads, beside recorders in this process and another one."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections import defaultdict
from contextlib import aclosing
from pathlib import Path
from unittest import mock

from messager import MessageRecord
from messager_store import EventLog, Recorder
from messager_store.arrow import batches, driver

from .evidence import count_disorder, events, findings, recorders
from .process import Worker
from .row import Row, Run, fault

EXP = "e1"
MESSAGES = 3000
"""Events of each recorder."""
BURST = 15
FEWEST = 3
"""Minimum of tables of a try."""
SMALL_PAGE = 100
"""Events per page of the driver."""
_BEGIN = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute('BEGIN IMMEDIATE')"


@fault("tables-beside", "Tables are read by a driver while two processes write", short=1, long=15)
async def tables_beside(run: Run, row: Row) -> None:
    """A table is a snapshot; reading it takes no lock of this process away, and no recorder loses an event."""
    for number in range(run.tries):
        folder = run.place(f"tables-{number}")
        store = folder / "log.db"
        async with EventLog.open(str(store)) as log:
            options = {"store": str(store), "exp": EXP, "messages": MESSAGES, "burst": BURST}
            worker = await Worker.start("write", folder, **options)
            await worker.heard("ready")
            async with Recorder(log, EXP) as recorder:
                tables = 0
                recording = asyncio.create_task(_record(recorder))
                with mock.patch.multiple(driver, PAGE=SMALL_PAGE), mock.patch.multiple(batches, MANY=0):
                    while not recording.done() or tables < FEWEST:
                        await _table(log, row, store)
                        tables += 1
                await recording
            await worker.ended()
        row.tried += 1
        row.offered += 2 * MESSAGES
        logged = events(store, EXP)
        row.lost += 2 * MESSAGES - len(logged)
        count_disorder(row, logged, "sent")
        for problem in await findings(store):
            row.problem(problem)
        shutil.rmtree(folder)


async def _record(recorder: Recorder) -> None:
    """Record numbered events, until their number is `MESSAGES`."""
    for number in range(1, MESSAGES + 1):
        recorder.after(MessageRecord("sent", time.time_ns(), f"c{number % 5}", b'{"n": %d}' % number, number % 7))
        if number % BURST == 0:
            await asyncio.sleep(0.005)


async def _table(log: EventLog, row: Row, store: Path) -> None:
    """Read a table. Its driver closes the store while this process is in a transaction, which must keep its lock."""
    before = {recorder.ordinal: recorder.last_seq for recorder in recorders(store, EXP)}
    seqs: dict[int, list[int]] = defaultdict(list)
    async with aclosing(batches.batches(log, await log.experiment(EXP), events=True)) as made:
        async for batch in made:
            for ordinal, seq in zip(batch["recorder"].to_pylist(), batch["seq"].to_pylist(), strict=True):
                seqs[ordinal].append(seq)
            break
        async with log.database.writing() as connection:
            await connection.exec_driver_sql("UPDATE experiment SET name = name")
            async for batch in made:
                for ordinal, seq in zip(batch["recorder"].to_pylist(), batch["seq"].to_pylist(), strict=True):
                    seqs[ordinal].append(seq)
            row.unnoticed += await _may_begin(store)
    row.add("tables meanwhile", 1)
    for ordinal, last in before.items():
        found = sorted(seqs[ordinal])
        row.doubled += len(found) - len(set(found))
        row.lost += len(set(range(1, max([last, *found]) + 1)) - set(found))


async def _may_begin(store: Path) -> bool:
    """Return whether another process can begin to write."""
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _BEGIN, str(store), stderr=quiet)
    return await process.wait() == 0
