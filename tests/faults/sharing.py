"""Four processes that write into one experiment, with concurrent tails and readers."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from unittest import mock

from messager_store import EventLog
from messager_store.log import reading

from .evidence import count_disorder, events, findings, recorders
from .process import Worker
from .row import Row, Run, fault

EXP = "e1"
WRITERS = 4
MESSAGES = 6000
BURST = 15
"""Events that a writer records before it yields to its event loop."""
TAILS = 3
SMALL_PAGE = 50
"""Events per page of the readers."""
NEWEST_NS = 60_000_000
"""Time range of the reads of the newest events, ns."""
STAYS = 0.3
"""Maximum duration of a tail before it is cancelled and restarted, s."""


@fault("four-writers", "Four processes write while tails come and go", short=1, long=15)
async def four_writers(run: Run, row: Row) -> None:
    """Each tail yields each event once, and a reader yields the log as of its start."""
    for number in range(run.tries):
        folder = run.place(f"shared-{number}")
        store = folder / "log.db"
        async with EventLog.open(str(store)) as log:
            workers = [
                await Worker.start("write", folder, store=str(store), exp=EXP, messages=MESSAGES, burst=BURST)
                for _ in range(WRITERS)
            ]
            for worker in workers:
                await worker.heard("ready")
            seeds = [run.dice.randrange(1 << 30) for _ in range(TAILS + 1)]
            done = asyncio.Event()
            tails = [asyncio.create_task(_tail(log, row, random.Random(seed))) for seed in seeds[:TAILS]]
            reading = asyncio.create_task(_read(log, row, store, done))
            for worker in workers:
                await worker.ended()
            done.set()
            for found in await asyncio.gather(*tails):
                _judge_tail(row, found)
            await reading
        row.tried += 1
        row.offered += WRITERS * MESSAGES
        logged = events(store, EXP)
        row.lost += WRITERS * MESSAGES - len(logged)
        count_disorder(row, logged, "sent")
        for problem in await findings(store):
            row.problem(problem)
        shutil.rmtree(folder)


async def _tail(log: EventLog, row: Row, dice: random.Random) -> list[tuple[int, int]]:
    """Follow the recording with many tails, each from the position of the one before it."""
    seen: list[tuple[int, int]] = []
    position: dict[int, int] = {}

    async def follow() -> None:
        async for entry in log.tail(EXP, position, poll=0.01):
            seen.append((entry.recorder, entry.seq))
            position[entry.recorder] = entry.seq
            if len(seen) == WRITERS * MESSAGES:
                return

    while len(seen) < WRITERS * MESSAGES:
        tail = asyncio.create_task(follow())
        await asyncio.wait([tail], timeout=dice.uniform(0, STAYS))
        if not tail.done():
            tail.cancel()
        await asyncio.gather(tail, return_exceptions=True)
        row.add("tails", 1)
        if not tail.cancelled() and tail.exception() is not None:
            raise tail.exception() or AssertionError
    return seen


def _judge_tail(row: Row, seen: list[tuple[int, int]]) -> None:
    row.doubled += sum(times - 1 for times in Counter(seen).values())
    for ordinal in range(1, WRITERS + 1):
        seqs = [seq for recorder, seq in seen if recorder == ordinal]
        row.lost += len(set(range(1, MESSAGES + 1)) - set(seqs))
        row.out_of_order += sum(1 for one, next_ in pairwise(seqs) if next_ < one)


async def _read(log: EventLog, row: Row, store: Path, done: asyncio.Event) -> None:
    """Read repeatedly in replay order: each read is a snapshot without holes, as of its start or later.

    Most reads are of the newest events only, during commits, in small pages.
    """
    with mock.patch.object(reading, "PAGE", SMALL_PAGE):
        while not done.is_set():
            whole = int(row.notes.get("reads meanwhile", 0)) % 10 == 9
            before = {recorder.ordinal: recorder.last_seq for recorder in recorders(store, EXP)}
            entries = [entry async for entry in log.read(EXP, since=None if whole else time.time_ns() - NEWEST_NS)]
            row.add("reads meanwhile", 1)
            cursors = [entry.cursor for entry in entries]
            row.out_of_order += sum(1 for one, next_ in pairwise(cursors) if next_ <= one)
            for ordinal, last in before.items():
                seqs = [entry.seq for entry in entries if entry.recorder == ordinal]
                row.doubled += len(seqs) - len(set(seqs))
                if seqs or whole:
                    first = 1 if whole else min(seqs)
                    row.lost += len(set(range(first, max([last, *seqs]) + 1)) - set(seqs))
