"""Time and memory of `messager index`, of the queries on its tables, and of a redaction that empties them.

    python -m bench.indexing [--events N] [--store FILE or URL]

A million events of 1,000 agents in 20 recorders: each message is sent once and received once. Figures of one run, for
docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from messager_store import EventLog, Experiment, NewEvent
from messager_store.db.codes import SEQ_BITS
from messager_store.log.text import normalised
from messager_store.log.writer import Writer
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter

from .workload import BATCH, BEGIN, STEP, channel

EXP_ID = "society"
AGENTS = 1000
RECORDERS = 20
CALLS = 5
"""Runs of each query; the fastest counts."""


def message(number: int) -> bytes:
    """Return the payload of a message: JSON in JSON, with escapes, as AgentSociety writes it."""
    content = json.dumps({"content": f"Gr\u00fc\u00dfe {number} von {number % AGENTS}: " + "x" * 140})
    return json.dumps({"from": number % AGENTS, "content": content, "type": "social", "day": 1, "t": number}).encode()


def events(first: int, count: int) -> dict[int, list[NewEvent]]:
    """Return the events of `count` messages, by the number of their recorder."""
    found: dict[int, list[NewEvent]] = {number: [] for number in range(RECORDERS)}
    for number in range(first, first + count):
        sender, recipient = number % AGENTS, (number * 7 + number // AGENTS) % AGENTS
        where, payload, ts = channel(recipient), message(number), BEGIN + number * STEP
        found[sender % RECORDERS].append(NewEvent("sent", ts, where, payload, sender, recipient))
        found[recipient % RECORDERS].append(NewEvent("received", ts + STEP // 2, where, payload, sender, recipient))
    return found


async def record(log: EventLog, writers: Sequence[Writer], first: int, count: int) -> None:
    """Append messages."""
    for at in range(first, first + count, BATCH):
        for number, batch in events(at, min(BATCH, first + count - at)).items():
            if batch:
                await log.append(writers[number], batch)


_PROGRAM = """
import sys
from pathlib import Path
from messager_store.cli import main
try:
    main()
finally:
    [peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    print(peak.split()[1], file=sys.stderr)
"""


def measured(store: str, *words: str) -> tuple[float, int, str]:
    """Run a verb as a process; return seconds, peak memory in MB, and its output. Raises if its exit code is 2 or 3."""
    begun = time.perf_counter()
    line = [sys.executable, "-c", _PROGRAM, "--store", store, *words]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return time.perf_counter() - begun, int(done.stderr.splitlines()[-1]) // 1024, done.stdout.strip()


async def queries(log: EventLog, of: Experiment, count: int) -> dict[str, float]:
    """Return the time of each query on the side tables, in seconds."""
    recorders = f"(SELECT id FROM recorder WHERE experiment_id = {of.id})"
    low = min(row.id for row in await log.recorders(of)) << SEQ_BITS
    needle = normalised(f"Gr\u00fc\u00dfe {count // 3} von")
    statements = {
        "received_at of a page of 1,000 sendings": "SELECT e.id, (SELECT min(d.received_at) FROM delivery d WHERE "
        f"d.sending_id = e.id) FROM event e WHERE e.experiment_id = {of.id} AND e.kind = 1 AND "
        f"e.ts >= {BEGIN + count // 2 * STEP} ORDER BY e.ts, e.id LIMIT 1000",
        "messages by sender and recipient": "SELECT from_id, to_id, sum(messages) FROM activity WHERE recorder_id IN "
        f"{recorders} AND kind = 1 GROUP BY from_id, to_id",
        "messages by minute": f"SELECT bucket, sum(messages) FROM activity WHERE recorder_id IN {recorders} AND "
        "kind = 1 GROUP BY bucket ORDER BY bucket",
        "substring of folded": f"SELECT event_id FROM said WHERE event_id > {low} AND folded LIKE '%{needle}%'",
    }
    found = {}
    for name, statement in statements.items():
        times = []
        for _ in range(CALLS):
            async with log.database.reading() as connection:
                begun = time.perf_counter()
                rows: Any = (await connection.exec_driver_sql(statement)).all()
                times.append(time.perf_counter() - begun)
        found[f"{name} ({len(rows):,} rows)"] = min(times)
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.indexing", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--store", help="file or URL of a store that does not exist yet (default: a temporary file)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        await measure(options.store or f"{folder}/log.db", options.events // 2)


def show(name: str, value: str) -> None:
    print(f"{name:60} {value}", flush=True)


async def measure(store: str, count: int) -> None:
    """Measure with so many messages; each is two events."""
    async with EventLog.open(store) as log:
        of = await log.create_experiment(EXP_ID)
        begun = time.perf_counter()
        writers = [await log.register(of, role="messager") for _ in range(RECORDERS)]
        await record(log, writers, 0, count)
        show(f"recording of {count * 2:,} events", f"{time.perf_counter() - begun:.2f} s")
        before = await _size(log)
        for name in ("messager index", "again, with nothing new"):
            seconds, peak, output = measured(store, "index", EXP_ID)
            show(name, f"{seconds:.2f} s, peak {peak} MB  ({output})")
        after = await _size(log)
        show("size of the store", f"{before / 1e6:.0f} MB before, {after / 1e6:.0f} MB indexed")
        await record(log, writers, count, 500)
        seconds, peak, output = measured(store, "index", EXP_ID)
        show("increment of 1,000 events", f"{seconds:.2f} s, peak {peak} MB  ({output})")
        for name, seconds in (await queries(log, of, count)).items():
            show(name, f"{seconds * 1000:.1f} ms")
        for writer in writers:
            await log.touch(writer, ended_at=time.time_ns())
        agent, text = 777, f" von 777: {'x' * 100}"
        if "://" not in store:
            show("bytes of the agent's text in the file", f"{_occurrences(store, text):,}")
        begun = time.perf_counter()
        chosen = RedactionFilter(senders=((agent,),))
        done = await redact(log, of, chosen, who="bench", why="measured")
        show(f"redaction of one agent, {done.events:,} events", f"{time.perf_counter() - begun:.2f} s")
        if "://" not in store:
            show("the same bytes afterwards", f"{_occurrences(store, text):,}")
        seconds, peak, output = measured(store, "index", EXP_ID)
        show("index after the redaction", f"{seconds:.2f} s, peak {peak} MB  ({output})")
        if "://" not in store:
            show("the same bytes afterwards", f"{_occurrences(store, text):,}")


async def _size(log: EventLog) -> int:
    async with log.database.reading() as connection:
        return await log.database.dialect.size(connection)


def _occurrences(store: str, text: str) -> int:
    """Return how often a text is in the file and its journals."""
    found = 0
    for path in (store, f"{store}-wal"):
        if Path(path).exists():
            found += Path(path).read_bytes().count(text.encode())
    return found


if __name__ == "__main__":
    asyncio.run(main())
