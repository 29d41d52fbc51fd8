"""Faults around streams that are recorded from outside: kill, cut, trim, delete, flood.

The writer is the harness itself, on a connection that shares no code with the tested package.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

from messager.testing import RedisServer, redis_server
from tests.support import Proxy

from .carriers import RedisLine
from .evidence import Logged, count_repeats, events, findings, gaps
from .killing import judge_unclean
from .process import Worker
from .row import Row, Run, fault

EXP = "e1"
PATTERN = "s:*"
STREAMS = 5
BETWEEN = 0.3
"""Maximum time between two faults, s."""
ROUND = 1.5
"""Time of writing in one try of a fault that the writer makes itself, s."""
FLOOD = 500
"""Entries that are added at once in a flood."""

Words = tuple[bytes, ...]
Commands = Callable[[bytes, bytes], list[Words]]
"""Commands for a stream and the value of its next entry. The first is its XADD."""


@dataclass(slots=True)
class Writer:
    """Adds numbered entries to a few streams, and to new ones."""

    line: RedisLine
    dice: Random
    commands: Commands
    together: int = 1
    added: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By number of an entry, the times before and after it was added, ns UTC."""
    numbers: count[int] = field(default_factory=lambda: count(1))
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    async def write(self) -> None:
        """Add entries until `ending` is set."""
        while not self.ending.is_set():
            for _ in range(self.dice.randrange(1, 20)):
                await self.once()
            await asyncio.sleep(self.dice.uniform(0, 0.004))

    async def once(self) -> None:
        """Add an entry, or as many as `together` says, to one stream."""
        some = self.dice.randrange(STREAMS)
        name = b"s:%d" % (some if some or not self.added else 100 + len(self.added) // 50)
        words, mine = [], []
        for _ in range(self.together):
            mine.append(next(self.numbers))
            words += self.commands(name, json.dumps({"n": mine[-1]}).encode())
        before = time.time_ns()
        await self.line.commands(words)
        after = time.time_ns()
        self.added |= dict.fromkeys(mine, (before, after))


def add(name: bytes, value: bytes) -> list[Words]:
    """Return the command that adds an entry."""
    return [(b"XADD", name, b"*", b"data", value)]


@asynccontextmanager
async def writing(server: RedisServer, dice: Random, commands: Commands, together: int = 1) -> AsyncIterator[Writer]:
    """Context in which entries are added; all of them are, behind it."""
    async with RedisLine.to(server.port) as line:
        writer = Writer(line, dice, commands, together)
        task = asyncio.create_task(writer.write())
        try:
            yield writer
        finally:
            writer.ending.set()
            await task


async def tap(folder: Path, url: str, blocked: int | None = None) -> Worker:
    """Return an active tap of the streams."""
    store = str(folder / "log.db")
    worker = await Worker.start("tap", folder, store=store, exp=EXP, broker=url, streams=[PATTERN], blocked=blocked)
    await worker.heard("ready")
    return worker


@fault("streams-killed", "SIGKILL of a tap of streams, and a new one", short=2, long=40)
async def killed(run: Run, row: Row) -> None:
    """Entries that neither tap recorded lie in a gap, also those that were trimmed shortly before the kill."""

    def commands(name: bytes, value: bytes) -> list[Words]:
        return add(name, value) + ([(b"XTRIM", name, b"MAXLEN", b"0")] if run.dice.random() < 0.02 else [])

    for number in range(run.tries):
        with redis_server() as server:
            folder = run.place(f"kill-{number}")
            first = await tap(folder, server.url)
            async with writing(server, run.dice, commands) as writer:
                await asyncio.sleep(run.dice.uniform(0.1, 2))
                await first.kill()
                await asyncio.sleep(run.dice.uniform(0, BETWEEN))
                second = await tap(folder, server.url)
                await asyncio.sleep(run.dice.uniform(0, BETWEEN))
            await second.stop()
            row.tried += 1
            await judge_unclean(row, folder / "log.db", ended=1)
            judge(row, folder / "log.db", writer)
            shutil.rmtree(folder)


@fault("streams-cut", "Connections of a tap of streams cut", short=4, long=60)
async def cut(run: Run, row: Row) -> None:
    """Nothing is missed, and no gap says so: reading continues where it stopped."""
    with redis_server() as server:
        folder = run.place("cut")
        async with Proxy(server.port).running() as proxy:
            worker = await tap(folder, f"redis://127.0.0.1:{proxy.port}")
            async with writing(server, run.dice, add) as writer:
                for _ in range(run.tries):
                    await asyncio.sleep(run.dice.uniform(0, BETWEEN))
                    proxy.cut()
                    row.tried += 1
            await asyncio.sleep(BETWEEN)
            await worker.stop()
        logged = judge(row, folder / "log.db", writer)
        row.lost += len(gaps(logged))
        row.lost += len(writer.added) - len({entry.n for entry in logged if entry.kind == "received"})
        await judge_found(row, folder)


@fault("streams-trimmed", "Streams trimmed faster than a tap reads", short=2, long=30)
async def trimmed(run: Run, row: Row) -> None:
    """Entries that were trimmed before they were read are counted in gaps, exactly."""

    def commands(name: bytes, value: bytes) -> list[Words]:
        if run.dice.random() < 0.5:
            return [(b"XADD", name, b"MAXLEN", b"2", b"*", b"data", value)]
        trim = [(b"XTRIM", name, b"MAXLEN", b"1")] if run.dice.random() < 0.1 else []
        return add(name, value) + trim

    await written(run, row, commands, exact=True)


@fault("streams-deleted", "Entries and streams deleted before a tap reads them", short=3, long=30)
async def deleted(run: Run, row: Row) -> None:
    """Entries that were deleted with XDEL or DEL before they were read lie in gaps."""
    numbers = count(1)

    def queue(name: bytes, value: bytes) -> list[Words]:
        """Return commands with, at times, those of a reader that is faster than the tap."""
        entry_id = b"%d-%d" % (time.time_ns() // 1_000_000 + 1000, next(numbers))
        read = [(b"XDEL", name, entry_id)] if run.dice.random() < 0.05 else []
        return [(b"XADD", name, entry_id, b"data", value), *read]

    def stream(name: bytes, value: bytes) -> list[Words]:
        """Return commands that now and then delete the whole stream, with what was added last."""
        return add(name, value) + ([(b"DEL", name)] if run.dice.random() < 0.003 else [])

    def short(name: bytes, value: bytes) -> list[Words]:
        """Return commands that now and then make a stream which nobody ever sees."""
        own = b"s:short:%d" % next(numbers)
        return [*add(own, value), (b"UNLINK", own)] if run.dice.random() < 0.003 else add(name, value)

    for number in range(run.tries):
        await written(run, row, (queue, stream, short)[number % 3], exact=False, tries=[number])


@fault("streams-flooded", "A flood of entries, with trimming", short=2, long=20)
async def flooded(run: Run, row: Row) -> None:
    """The same as for trimming; the tap reads as fast as it can, and the server keeps a thousand entries."""

    def commands(name: bytes, value: bytes) -> list[Words]:
        return [(b"XADD", name, b"MAXLEN", b"1000", b"*", b"data", value)]

    await written(run, row, commands, exact=True, together=FLOOD)


async def written(
    run: Run, row: Row, commands: Commands, *, exact: bool, together: int = 1, tries: Iterable[int] = ()
) -> None:
    """Write for a while in each try, to a tap whose event loop is blocked now and then."""
    for number in tries or range(run.tries):
        with redis_server() as server:
            folder = run.place(f"written-{number}")
            worker = await tap(folder, server.url, blocked=run.dice.randrange(1 << 30))
            async with writing(server, run.dice, commands, together) as writer:
                await asyncio.sleep(ROUND)
            await worker.stop()
            row.tried += 1
            logged = judge(row, folder / "log.db", writer)
            if exact:
                counts = [entry.meta["count"] for entry in logged if entry.kind == "gap"]
                missed = len(writer.added) - len({entry.n for entry in logged if entry.kind == "received"})
                if None in counts or sum(counts) != missed:
                    row.problem(f"{missed} entries were missed, and the gaps count {counts[:20]}")
            await judge_found(row, folder)
            shutil.rmtree(folder)


def judge(row: Row, store: Path, writer: Writer) -> list[Logged]:
    """Each entry is in the log once, or was added in the time of a gap; those of one stream are in order."""
    logged = events(store, EXP)
    known = gaps(logged)
    received = [entry for entry in logged if entry.kind == "received"]
    row.offered += len(writer.added)
    row.doubled += len(received) - len({entry.n for entry in received})
    for stream in {entry.channel for entry in received}:
        count_repeats(row, [entry.n for entry in received if entry.channel == stream and entry.n is not None])
    there = {entry.n for entry in received}
    missed = [times for n, times in writer.added.items() if n not in there]
    outside = [times for times in missed if not any(since <= times[1] and times[0] <= until for since, until in known)]
    row.unnoticed += len(outside)
    row.add("missed, inside a gap", len(missed) - len(outside))
    row.add("gaps", len(known))
    return logged


async def judge_found(row: Row, folder: Path) -> None:
    for problem in await findings(folder / "log.db"):
        row.problem(f"{folder.name}: {problem}")
