"""Rows about the verbs that walk a whole log. Each is compared with a plain loop of the same work (`loops`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from messager_store import EventLog, Experiment, NewEvent
from messager_store.cli import cli
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.formats.pack import pack, unpack
from messager_store.maintenance.verify import verify
from messager_store.queries.comparison.compare import compare

from . import loops
from .measure import Stage, Values
from .workload import BEGIN, remove

EVENTS = 100_000
EXP_ID = "chat"
BATCH = 1000
"""Events of a batch: that of a busy recorder. `VerifySmall` has batches of `SMALL`."""
SMALL = 20
_MINUTE = 60_000_000_000
_WORDS = ("how", "do", "i", "mount", "the", "drive", "it", "says", "permission", "denied", "when", "i", "try", "that")


def events(count: int) -> Iterator[NewEvent]:
    """Yield the messages of a chat room: thousands of names, few of them busy, one channel, times in whole minutes."""
    chance = random.Random(15)
    names = max(count // 8, 10)
    for number in range(count):
        text = " ".join(chance.choices(_WORDS, k=chance.randrange(3, 18)))
        if not number % 20:
            text += " – “ok”"
        payload = {"kind": "msg", "clock": "12:18", "text": text, "src": "dev/2004-11-15_03", "n": number}
        name = f"nick{int(names * chance.random() ** 4)}"
        ts = BEGIN + number // 12 * _MINUTE
        yield NewEvent("sent", ts, "irc:#ubuntu", json.dumps(payload).encode(), name)


async def record(path: Path, count: int, batch: int) -> None:
    """Create a store with these messages, closed."""
    waiting: list[NewEvent] = []
    async with EventLog.open(str(path)) as log:
        of = await log.create_experiment(EXP_ID)
        writer = await log.register(of, role="tap")
        for entry in events(count):
            waiting.append(entry)
            if len(waiting) == batch:
                await log.append(writer, waiting)
                waiting = []
        await log.append(writer, waiting)
        await log.touch(writer, ended_at=time.time_ns())
    connection = sqlite3.connect(path)  # so that no side has to read the log of the other
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


class _Walk:
    """A verb and a plain loop over the same store or file, in events per second."""

    batch = BATCH

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.store = self._store(self.batch)

    def ours(self) -> Values:
        return self._timed(lambda: asyncio.run(self._ours()))

    def theirs(self) -> Values:
        return self._timed(self._theirs)

    async def _ours(self) -> int:
        raise NotImplementedError

    def _theirs(self) -> int:
        raise NotImplementedError

    def _timed(self, work: Callable[[], int]) -> Values:
        began = time.perf_counter()
        count = work()
        took = time.perf_counter() - began
        if count % EVENTS or not count:
            raise RuntimeError(f"{count} events instead of {EVENTS}")
        return {"rate": count / took}

    def _store(self, batch: int) -> Path:
        key = f"walking-{batch}"
        if key not in self.stage.shared:
            self.stage.shared[key] = self.stage.new_path()
            asyncio.run(record(self.stage.shared[key], EVENTS, batch))
        found: Path = self.stage.shared[key]
        return found

    async def _reading(self, work: Callable[[EventLog], Awaitable[int]]) -> int:
        async with EventLog.open(str(self.store), create=False) as log:
            return await work(log)

    async def _writing(self, work: Callable[[EventLog], Awaitable[Experiment]]) -> int:
        path = self.stage.new_path()
        async with EventLog.open(str(path)) as log:
            count = sum(row.last_seq for row in await log.recorders(await work(log)))
        remove(path)
        return count

    def _loading(self, loop: Callable[[Path, Path], int], source: Path) -> int:
        path = self.stage.new_path()
        count = loop(source, path)
        remove(path)
        return count

    def _saving(self, loop: Callable[[Path, Path], int]) -> int:
        path = self.stage.new_path(".out")
        count = loop(self.store, path)
        path.unlink()
        return count


class Verify(_Walk):
    """`verify`, and a loop that reads the rows and hashes them."""

    async def _ours(self) -> int:
        async def work(log: EventLog) -> int:
            verdict = await verify(log, await log.experiment(EXP_ID))
            if not verdict.ok:
                raise RuntimeError(verdict.problems[0])
            return verdict.events

        return await self._reading(work)

    def _theirs(self) -> int:
        return loops.hash_rows(self.store)


class VerifySmall(Verify):
    """The same for a recording with small batches."""

    batch = SMALL


class Diff(_Walk):
    """`compare` of two equal experiments, and a loop that reads both. The rate counts the messages of both."""

    async def _ours(self) -> int:
        async def work(log: EventLog) -> int:
            async with EventLog.open(str(self.store), create=False) as other:
                found = await compare(log, EXP_ID, EXP_ID, log_b=other)
            if not found.equal:
                raise RuntimeError(str(found))
            return found.messages_a + found.messages_b

        return await self._reading(work)

    def _theirs(self) -> int:
        return loops.compare(self.store, self.store)


class Pack(_Walk):
    """`pack`, and a loop that hashes the rows, writes them as lines, and hashes the lines."""

    async def _ours(self) -> int:
        path = self.stage.new_path(".pack")

        async def work(log: EventLog) -> int:
            return (await pack(log, EXP_ID, path)).events

        count = await self._reading(work)
        path.unlink()
        return count

    def _theirs(self) -> int:
        return self._saving(loops.write_pack)


class Unpack(_Walk):
    """`unpack`, and a loop that parses, hashes and inserts the lines of a file."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._pack, self._lines = stage.new_path(".pack"), stage.new_path(".lines")
        asyncio.run(self._reading(lambda log: _packed(log, self._pack)))
        loops.write_pack(self.store, self._lines)

    async def _ours(self) -> int:
        return await self._writing(lambda log: unpack(log, self._pack))

    def _theirs(self) -> int:
        return self._loading(loops.read_pack, self._lines)


async def _packed(log: EventLog, path: Path) -> int:
    return (await pack(log, EXP_ID, path)).events


class Import(_Walk):
    """`import_jsonl`, and a loop that parses the lines and inserts them."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._file = stage.new_path(".jsonl")
        loops.write_lines(self.store, self._file)

    async def _ours(self) -> int:
        return await self._writing(lambda log: import_jsonl(log, self._file, EXP_ID))

    def _theirs(self) -> int:
        return self._loading(loops.read_lines, self._file)


class Export(_Walk):
    """`export_jsonl`, and a loop that reads the rows and writes them as lines."""

    async def _ours(self) -> int:
        path = self.stage.new_path(".jsonl")
        count = await self._reading(lambda log: export_jsonl(log, EXP_ID, path))
        path.unlink()
        return count

    def _theirs(self) -> int:
        return self._saving(loops.write_lines)


class Events(_Walk):
    """`messager events --json` without the start of Python, and a loop that reads the rows and writes them as lines."""

    def ours(self) -> Values:
        return self._timed(self._command)

    def _command(self) -> int:
        path = self.stage.new_path(".jsonl")
        with path.open("w") as file, contextlib.redirect_stdout(file), open(os.devnull, "w") as errors:
            with contextlib.redirect_stderr(errors):
                words = ["events", EXP_ID, "--json", "--store", str(self.store)]
                cli.main(words, prog_name="messager", standalone_mode=False)
        with path.open("rb") as file_read:
            count = sum(1 for _ in file_read)
        path.unlink()
        return count

    def _theirs(self) -> int:
        return self._saving(loops.write_lines)
