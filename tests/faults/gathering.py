"""Gathering the stores of processes that recorded one experiment: kills, damage, repetition, a foreign store."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from messager.testing import redis_server
from messager_store import EventLog, NewEvent
from messager_store.db.codes import SEQ_BITS
from messager_store.formats.gather import GatheredExperiment, GatheredPart, gather
from messager_store.recording.closing import close

from .evidence import count_disorder, count_repeats, events, findings
from .killing import EXP
from .process import Worker
from .row import Row, Run, fault

MOST_STORES = 8
MESSAGES = 200
"""Messages that each process sends; all processes that still run receive each."""
KILLS = 4
"""Kills of one gathering."""
FLUSH = 20
"""Events that a gathering process copies with one commit."""
APART = 1_000_000
"""Distance between the numbers of the first messages of two processes."""

Content = dict[tuple[str, int], tuple[Any, ...]]
"""Events by recorder uuid and seq."""


@fault("kill-gather", "SIGKILL while the stores of several processes are gathered", short=1, long=20)
async def killed_while_gathering(run: Run, row: Row) -> None:
    """The next gather continues, and each event is in the target once in the end, whatever the order of the stores."""
    made = run.place("made")
    parts, sent = await _recorded(run, made, 3 if run.short else MOST_STORES, row)
    whole = await _gather_within(made, made / "whole.db", parts, None)
    heads = set()
    for number in range(run.tries):
        folder = run.place(f"kill-{number}")
        target = folder / "all.db"
        chosen = run.dice.sample(parts, run.dice.randint(2, len(parts)))
        for _ in range(KILLS):
            await _gather_within(folder, target, chosen, run.dice.uniform(0, whole / 2))
            row.tried += 1
        missing = [part for part in parts if part not in chosen]
        run.dice.shuffle(missing)
        await _gather_within(folder, target, chosen, None)
        await _gather_within(folder, target, missing or chosen, None)
        await _judge(row, target, parts, sent)
        heads.add(_head(target))
        shutil.rmtree(folder)
    if len(heads | {_head(made / "whole.db")}) != 1:
        row.problem(f"the head depends on the order of gathering: {heads}")


@fault("odd-parts", "A damaged part, one given twice, one of another experiment", short=3, long=40)
async def odd_parts(run: Run, row: Row) -> None:
    """Each is named, nothing behind the damage is copied, and the intact store completes what is missing."""
    made = run.place("made")
    parts, sent = await _recorded(run, made, 3, row)
    for number in range(run.tries):
        folder = run.place(f"odd-{number}")
        target, copy, foreign = folder / "all.db", folder / "damaged.db", folder / "foreign.db"
        which = run.dice.choice(parts)
        shutil.copy(which, copy)
        uuid, seq = _damage(run, copy)
        await _other_experiment(run, foreign)
        others = [part for part in parts if part != which]
        odd = [copy, run.dice.choice(others), foreign, *others[1:]]
        run.dice.shuffle(odd)
        row.tried += 1
        done = await _gathered(target, [others[0], *odd])
        named = [part.reason or "" for part in done if part.reason is not None]
        damage = [each.damage or "" for part in done for each in part.recorders if each.recorder == uuid]
        for what, found in (
            ("the damage", [text for text in damage if f"seq {seq} " in text]),
            ("the store given twice", [text for text in named if "given twice" in text]),
            ("the other experiment", [text for text in named if "two experiments with one exp_id" in text]),
        ):
            if len(found) != 1:
                row.unnoticed += 1
                row.problem(f"{what} was not named: {named}, {damage}")
        recorded = _content(*parts)
        row.unnoticed += sum(1 for key, value in _content(target).items() if recorded.get(key) != value)
        for problem in await findings(target):
            row.problem(f"beside a damaged part: {problem}")
        await _gathered(target, parts)  # with one of them only, nobody says that the others are closed
        await _judge(row, target, parts, sent)
        shutil.rmtree(folder)


async def _recorded(run: Run, folder: Path, stores: int, row: Row) -> tuple[list[Path], set[int]]:
    """Record an experiment with processes that have a store each, closed in the end, and gather meanwhile.

    Returns the stores, and the numbers that the processes sent.
    """
    parts = [folder / f"part-{number}.db" for number in range(stores)]
    with redis_server() as server:
        workers = [
            await Worker.start(
                "send",
                folder,
                store=str(part),
                exp=EXP,
                broker=f"redis://127.0.0.1:{server.port}/0",
                listen=True,
                first=1 + APART * number,
                messages=MESSAGES,
                pause=0.02,
            )
            for number, part in enumerate(parts)
        ]
        for worker in workers:
            await worker.heard("ready")
        meanwhile = folder / "meanwhile.db"
        for _ in range(KILLS):
            await _gather_within(folder, meanwhile, parts, run.dice.uniform(0, 0.5))
        for worker in workers:
            if await worker.ended():
                row.problem(f"a recording process failed: {worker.complaint()}")
    for part in parts:
        async with EventLog.open(str(part)) as log:
            await close(log, await log.experiment(EXP))
    sent = {number for worker in workers for number in worker.said["sent"]}
    await _gather_within(folder, meanwhile, parts, None)
    row.tried += 1
    await _judge(row, meanwhile, parts, sent)
    return parts, sent


async def _gather_within(folder: Path, target: Path, parts: list[Path], duration: float | None) -> float:
    """Gather in a process that is killed within `duration` seconds, or never; return its run time (s)."""
    worker = await Worker.start("gather", folder, store=str(target), parts=[str(part) for part in parts], flush=FLUSH)
    await worker.heard("ready")
    started = asyncio.get_running_loop().time()
    if duration is None:
        await worker.heard("done")
    else:
        await asyncio.sleep(duration)
    took = asyncio.get_running_loop().time() - started
    await worker.kill()
    return took


async def _gathered(target: Path, parts: list[Path]) -> list[GatheredPart]:
    found: list[GatheredPart] = []
    async with EventLog.open(str(target)) as log:
        async for done in gather(log, [str(part) for part in parts]):
            found += done.parts if isinstance(done, GatheredExperiment) else [done]
    return found


async def _judge(row: Row, target: Path, parts: list[Path], sent: set[int]) -> None:
    """The target has the events of all parts, once and unchanged, and every message that a process reported."""
    there, here = _content(*parts), _content(target)
    row.offered += len(there)
    row.lost += len(there.keys() - here.keys())
    row.unnoticed += sum(1 for key, value in here.items() if there.get(key) != value)
    logged = events(target, EXP)
    numbers = [entry.n for entry in logged if entry.kind == "sent" and entry.n is not None]
    row.lost += len(sent - set(numbers))
    count_repeats(row, sorted(numbers))
    count_disorder(row, logged, "sent")
    received = Counter((entry.recorder, entry.n) for entry in logged if entry.kind == "received")
    row.doubled += sum(times - 1 for times in received.values())
    for problem in await findings(target):
        row.problem(f"{target}: {problem}")
    if _rows(target, "SELECT status FROM experiment") != [("closed",)]:
        row.problem(f"{target}: the experiment is not closed")


def _content(*stores: Path) -> Content:
    """Return the events in some stores, with names and uuids instead of ids."""
    seq = (1 << SEQ_BITS) - 1
    query = (
        f"SELECT r.uuid, e.id & {seq}, e.ts, e.kind, c.value, f.value, t.value, e.flags, "
        f"e.attributes, e.payload, m.value FROM event e JOIN recorder r ON r.id = e.id >> {SEQ_BITS} "
        "LEFT JOIN name c ON c.id = e.channel_id LEFT JOIN name f ON f.id = e.from_id "
        "LEFT JOIN name t ON t.id = e.to_id LEFT JOIN name m ON m.id = e.messager_id"
    )
    return {(uuid, at): tuple(rest) for store in stores for uuid, at, *rest in _rows(store, query)}


def _head(store: Path) -> tuple[Any, ...]:
    return tuple(_rows(store, "SELECT uuid, head_hash FROM recorder ORDER BY uuid"))


def _rows(store: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(store, timeout=30)) as connection:
        return connection.execute(query).fetchall()


def _damage(run: Run, store: Path) -> tuple[str, int]:
    """Change a byte of the payload of some event; return the uuid of its recorder, and its seq."""
    number, payload = run.dice.choice(_rows(store, "SELECT id, payload FROM event WHERE length(payload) > 0"))
    at = run.dice.randrange(len(payload))
    changed = bytes([*payload[:at], payload[at] ^ 1 << run.dice.randrange(8), *payload[at + 1 :]])
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE event SET payload = ? WHERE id = ?", (changed, number))
        query = "SELECT uuid FROM recorder WHERE id = ?"
        return str(connection.execute(query, (number >> SEQ_BITS,)).fetchone()[0]), number & ((1 << SEQ_BITS) - 1)


async def _other_experiment(run: Run, store: Path) -> None:
    """Create another experiment with the same exp_id, recorded on another day."""
    day = run.dice.randint(1, 1000) * 86_400_000_000_000
    async with EventLog.open(str(store)) as log:
        of = await log.create_experiment(EXP)
        writer = await log.register(of, role="messager", row={"started_at": day})
        await log.append(writer, [NewEvent("sent", day, "c", json.dumps({"n": -1}).encode())])
        await log.touch(writer, ended_at=day, heartbeat_at=day)
        await close(log, of)
