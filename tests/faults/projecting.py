"""Projections: on a full disk, of processes that write at once and are killed, and of events that are redacted."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import resource
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from messager_store import EventLog, NewEvent, StoreError
from messager_store.db import derived_files
from messager_store.db.codes import SEQ_BITS
from messager_store.experiments.records import Experiment
from messager_store.log.writer import Writer
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.projection import update
from messager_store.projection.layout import LOCK, MANIFEST, Manifest
from messager_store.projection.query import projected

from .evidence import number_of
from .process import Worker
from .row import Row, Run, fault

EXP = "e1"
START = 1_700_000_000_000_000_000
STEP = 10_000_000
"""Time between two messages of a recorder, ns."""
PART = 100
"""Events of a part."""
EVENTS = 1000
"""Messages in the log before a disk is full, or a redaction begins."""
WRITERS = 3
BURST = 10
PAUSE = 0.1
"""Messages of a recorder that are committed together, and the time until the next ones, s."""
LATE = 2_000_000_000
"""Time by which the events of the last writer are older than those of the others, ns."""
ASKING = 3
"""Processes that ask at once."""
KILLS = 6
BETWEEN = 0.4
"""Maximum time between two kills, s."""
SLICES = 4
"""Redactions of a try."""

Answer = set[tuple[int, int | None, bytes]]
"""id of each event, that of its message, and payload."""


@fault("projection-full", "Projection: disk full while it is written (EFBIG)", short=2, long=40)
async def full(run: Run, row: Row) -> None:
    """The question fails in one line, leaves nothing, and the next one with space is answered from the whole log."""
    folder = run.place("full")
    store = folder / "log.db"
    async with EventLog.open(str(store)) as log:
        of = await log.create_experiment(EXP)
        one, other = [await log.register(of, role="messager") for _ in range(2)]
        await _said(log, one, EVENTS, START)
        await _answered(folder, store, row)
        for _ in range(run.tries):
            late = run.dice.random() < 0.5  # parts are made again, or the tail only
            at = START + run.dice.randrange(EVENTS * STEP) if late else START + (EVENTS + other.last_seq) * STEP
            await _said(log, other, run.dice.randint(1, PART), at)
            before = {name for path in _folders(store) for name in os.listdir(path)}  # also parts that were replaced
            worker = await _asking(folder, store)
            with _limited(worker, run.dice.randint(16, _size(store) - 1)):
                await worker.heard("refused", 2)
                await worker.stop()
            row.tried += 1
            _judge(row, worker)
            for path in _folders(store):
                left = set(os.listdir(path)) - {MANIFEST, LOCK} - Manifest.read(path).files - before
                if left:
                    row.problem(f"left on the full disk: {sorted(left)}")
            await _answered(folder, store, row)


@fault("projection-shared", "Projection: processes write it at once, SIGKILL, late events", short=1, long=20)
async def shared(run: Run, row: Row) -> None:
    """Every answer has the log as it was when the question began, or later, and is equal to it."""
    for number in range(run.tries):
        folder = run.place(f"shared-{number}")
        store = folder / "log.db"
        async with EventLog.open(str(store)) as log:
            await log.create_experiment(EXP)
        writers = [
            await Worker.start(
                "project", folder, store=str(store), first=1 + at * 1_000_000, late=LATE * (at == WRITERS - 1)
            )
            for at in range(WRITERS)
        ]
        for writer in writers:
            await writer.heard("recorded", PART)
        workers = [await _asking(folder, store) for _ in range(ASKING)]
        for _ in range(KILLS):
            await asyncio.sleep(run.dice.uniform(0, BETWEEN))
            at = run.dice.randrange(ASKING)
            await workers[at].kill()
            row.tried += 1
            _judge(row, workers[at])
            workers[at] = await _asking(folder, store)
        for writer in writers:
            await writer.stop()
        await _asked_again(workers)
        for worker in workers:
            await worker.stop()
            _judge(row, worker)
        _judge_refusals(row, workers)


@fault("projection-redacted", "Projection: events are redacted while a process writes it", short=1, long=20)
async def redacted(run: Run, row: Row) -> None:
    """No file of the projection and no answer holds what was erased, not even of a process that knew it before."""
    for number in range(run.tries):
        folder = run.place(f"redacted-{number}")
        store = folder / "log.db"
        async with EventLog.open(str(store)) as log:
            of = await log.create_experiment(EXP)
            writer = await log.register(of, role="messager")
            await _said(log, writer, EVENTS, START)
            await log.touch(writer, ended_at=START + EVENTS * STEP)
            for secret in range(SLICES):
                word = f"secret-{secret}-"
                derived_files.delete(log.database, of.id)
                stopped = await Worker.start("ask", folder, **_options(folder, store), stop_at=run.dice.randrange(9))
                await stopped.heard("stopped")
                await redact(log, of, RedactionFilter(contains=[word]), who="harness", why="test")
                row.tried += 1
                await _answered(folder, store, row)
                stopped.send(signal.SIGCONT)
                await _asked_again([stopped])
                await stopped.stop()
                _judge(row, stopped)
                row.unnoticed += _holding(store, word.encode())


async def ask(
    say: Callable[..., None], ending: asyncio.Event, store: str, cache: str, stop_at: int | None = None
) -> None:
    """Ask for the whole log until `ending`, and compare each answer with the log.

    Writes `asked` with the number of questions, `events` with that of the events of an answer, `wrong` with the number
    of wrong rows, `refused` with the number of questions that failed, and `unclear` if the reason is not one line.
    Stops itself, and writes `stopped`, before it writes the part of the number `stop_at`.
    """
    os.environ["MESSAGER_CACHE"] = cache
    update.PAGE = update.PART = PART
    update.TAIL = PART // 2
    if stop_at is not None:
        write, parts = update.write_part, count()

        def write_part(*arguments: Any) -> Any:
            if next(parts) == stop_at:
                say("stopped")
                signal.raise_signal(signal.SIGSTOP)  # before anything else of this thread
            return write(*arguments)

        update.write_part = write_part
    path = Path(store)
    asked = refused = 0
    async with EventLog.open(store) as log:
        of = await log.experiment(EXP)
        say("ready")
        while not ending.is_set():
            least, begun = _recorded(path), _redactions(path)
            try:
                covered, answer = await _answer(log, of)
            except StoreError as error:
                refused += 1
                say("refused", refused)
                say("unclear", "\n" in str(error) or f"{store}-projection" not in str(error))
                say("unclear", not any(remedy in str(error) for remedy in ("MESSAGER_CACHE", "Ask again")))
                continue
            asked += 1
            if begun == _redactions(path):
                say("wrong", len(answer ^ _expected(path, covered)))
                say("wrong", sum(covered.get(uuid, 0) < seq for uuid, seq in least.items()))
                say("events", len(answer))
            say("asked", asked)


async def _answer(log: EventLog, of: Experiment) -> tuple[dict[str, int], Answer]:
    async with projected(log, of) as here:
        rows = here.rows("SELECT id, CASE WHEN NOT redacted THEN message_id END, payload FROM events")
        return {uuid: seq for uuid, (seq, _) in here.files.recorders.items()}, set(rows)


def _expected(store: Path, covered: dict[str, int]) -> Answer:
    """Return the answer about the first events of each recorder: a reception belongs to the sending of its number."""
    query = f"SELECT e.id, payload, uuid FROM event e JOIN recorder r ON r.id = e.id >> {SEQ_BITS} ORDER BY e.id"
    rows = [
        (number, bytes(payload), number_of(payload))
        for number, payload, uuid in _rows(store, query)
        if number & ((1 << SEQ_BITS) - 1) <= covered.get(uuid, 0)
    ]
    messages: dict[int | None, int] = {}
    for number, _, n in rows:
        messages.setdefault(n, number)  # the sending: its recorder has recorded it first
    return {(number, None if n is None else messages[n], payload) for number, payload, n in rows}


def _recorded(store: Path) -> dict[str, int]:
    return dict(_rows(store, "SELECT uuid, last_seq FROM recorder"))


def _redactions(store: Path) -> int:
    return int(_rows(store, "SELECT count(*) FROM redaction")[0][0])


def _rows(store: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(store, timeout=30)) as connection:
        return connection.execute(query).fetchall()


async def record(say: Callable[..., None], ending: asyncio.Event, store: str, first: int, late: int) -> None:
    """Record messages until `ending`. Writes `recorded` with their number."""
    async with EventLog.open(store) as log:
        writer = await log.register(await log.experiment(EXP), role="messager")
        number = 0
        while not ending.is_set():
            await _said(log, writer, BURST, START - late + number * STEP, first + number)
            number += BURST
            say("recorded", number)
            await asyncio.sleep(PAUSE)


async def _said(log: EventLog, writer: Writer, messages: int, since: int, first: int | None = None) -> None:
    """Append messages, each sent and received, of which some say a secret."""
    events = []
    first = writer.ordinal * 1_000_000 + writer.last_seq if first is None else first
    for at in range(messages):
        ts, n = since + at * STEP, first + at
        payload = json.dumps({"n": n, "content": f"secret-{n % SLICES}-{os.urandom(60).hex()}"}).encode()
        events += [NewEvent("sent", ts, "c", payload), NewEvent("received", ts + STEP // 2, "c", payload)]
    await log.append(writer, events)


def _options(folder: Path, store: Path) -> dict[str, str]:
    return {"store": str(store), "cache": str(folder / "cache")}


async def _asking(folder: Path, store: Path) -> Worker:
    worker = await Worker.start("ask", folder, **_options(folder, store))
    await worker.heard("ready")
    return worker


async def _asked_again(workers: list[Worker]) -> None:
    """Wait until each has been answered a question that it asked from now on."""
    for worker in workers:
        await worker.heard("asked", worker.last("asked") + 2)


async def _answered(folder: Path, store: Path, row: Row) -> None:
    """Ask once, with space on the disk."""
    worker = await _asking(folder, store)
    await worker.heard("asked", 1)
    await worker.stop()
    _judge(row, worker)
    _judge_refusals(row, [worker])


def _judge(row: Row, worker: Worker) -> None:
    row.offered += sum(worker.said["events"])
    row.lost += sum(worker.said["wrong"])
    row.unnoticed += sum(worker.said["unclear"])
    row.add("questions", worker.last("asked"))
    row.add("refused", worker.last("refused"))


def _judge_refusals(row: Row, workers: list[Worker]) -> None:
    for worker in workers:
        if worker.last("refused"):
            row.problem(f"a question was not answered: {worker.last('refused')} times")


@contextlib.contextmanager
def _limited(worker: Worker, size: int) -> Iterator[None]:
    """Prevent files of a process from growing, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (size, before[1]))
    yield


def _folders(store: Path) -> list[Path]:
    """Return the folders with files of a projection: beside the store, and in the cache."""
    files = (path for top in (f"{store}-projection", store.parent / "cache") for path in Path(top).rglob("*"))
    return sorted({path.parent for path in files if path.is_file()})


def _size(store: Path) -> int:
    """Return the size of the manifest, which every update writes."""
    return max((folder / MANIFEST).stat().st_size for folder in _folders(store) if (folder / MANIFEST).exists())


def _holding(store: Path, word: bytes) -> int:
    """Return the number of files of the projection that hold a word."""
    found = 0
    for folder in _folders(store):
        for path in folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                found += word in _content(path)
    return found


def _content(path: Path) -> bytes:
    """Return the bytes of a file, and those that it has compressed."""
    data = path.read_bytes()
    with contextlib.suppress(OSError, EOFError):
        data += gzip.decompress(data)
    with contextlib.suppress(OSError, ValueError):  # a file that is being written, or of another kind
        rows = pq.read_table(path, columns=["payload", "text", "folded", "meta"]).to_pylist()
        data += repr(rows).encode()
    return data
