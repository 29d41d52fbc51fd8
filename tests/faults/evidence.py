"""Contents of a store, read with plain SQL, and the findings of `verify`."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from messager_store import EventLog
from messager_store.db.codes import KINDS, SEQ_BITS
from messager_store.log.attributes import decode
from messager_store.maintenance.verify import verify_all
from messager_store.recording.draining import drain
from messager_store.testing import execute

from .row import Row

Store = Path | str
"""SQLite file, or URL of a PostgreSQL database."""

OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
"""Other backends of the same PostgreSQL database."""

UNCLEAN = "ended uncleanly"
"""Text of the finding of `verify` for a recorder that was killed."""


@dataclass(frozen=True, slots=True)
class Logged:
    """Row of an event."""

    recorder: int
    """Ordinal of its recorder."""
    seq: int
    kind: str
    ts: int
    n: int | None
    """Number of the message, if the harness sent it."""
    meta: dict[str, Any]
    cause: int | None
    channel: int | None
    """Number of its channel in the store."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Row of a recorder."""

    ordinal: int
    role: str
    last_seq: int
    ended: bool


def number_of(payload: bytes) -> int | None:
    """Return the number in the payload of a worker, or None."""
    try:
        found = json.loads(payload)
    except ValueError:
        return None
    return found.get("n") if isinstance(found, dict) else None


def _meta_and_cause(attributes: str | None) -> tuple[dict[str, Any], int | None]:
    found = decode(attributes)
    return found.get("meta", {}), found.get("cause")


def events(store: Store, exp_id: str) -> list[Logged]:
    """Return the events of an experiment by recorder and seq; an empty list without the experiment."""
    query = (
        f"SELECT r.ordinal, e.id & {(1 << SEQ_BITS) - 1}, e.kind, e.ts, e.payload, e.attributes, e.channel_id "
        f"FROM event e JOIN recorder r ON r.id = e.id >> {SEQ_BITS} JOIN experiment x ON x.id = r.experiment_id "
        "WHERE x.exp_id = ? ORDER BY r.ordinal, e.id"
    )
    return [
        Logged(ordinal, seq, KINDS[kind - 1], ts, number_of(payload), *_meta_and_cause(attributes), channel)
        for ordinal, seq, kind, ts, payload, attributes, channel in _asked(store, query, exp_id)
    ]


def recorders(store: Store, exp_id: str) -> list[Recorded]:
    """Return the recorders of an experiment in order; an empty list without the experiment."""
    query = (
        "SELECT r.ordinal, r.role, r.last_seq, r.ended_at FROM recorder r "
        "JOIN experiment x ON x.id = r.experiment_id WHERE x.exp_id = ? ORDER BY r.ordinal"
    )
    return [Recorded(ordinal, role, last, at is not None) for ordinal, role, last, at in _asked(store, query, exp_id)]


def _asked(store: Store, query: str, exp_id: str) -> list[Any]:
    if isinstance(store, str):
        made = execute(store, "SELECT 1 FROM pg_tables WHERE tablename = 'experiment'")
        return execute(store, query.replace("?", f"'{exp_id}'")) if made else []
    if not store.exists():
        return []
    with closing(sqlite3.connect(store, timeout=30)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return connection.execute(query, (exp_id,)).fetchall() if "experiment" in tables else []


async def findings(store: Store) -> list[str]:
    """Return the problems of `verify --all`, as `exp_id: problem`."""
    async with EventLog.open(str(store)) as log:
        verdicts = [verdict async for verdict in verify_all(log)]
    return [f"{verdict.exp_id}: {problem}" for verdict in verdicts for problem in verdict.problems]


def gaps(logged: Iterable[Logged]) -> list[tuple[int, int]]:
    """Return the start and end of each gap, ns UTC."""
    return [(entry.meta["since"], entry.meta["until"]) for entry in logged if entry.kind == "gap"]


def within(ts: int, stretches: Iterable[tuple[int, int]]) -> bool:
    """Return True if the time lies in one of the intervals."""
    return any(since <= ts <= until for since, until in stretches)


def count_repeats(row: Row, numbers: Sequence[int]) -> None:
    """Count repeated numbers as doubled, and numbers before a smaller one as out of order."""
    row.doubled += sum(times - 1 for times in Counter(numbers).values())
    row.out_of_order += sum(1 for one, next_ in pairwise(numbers) if next_ < one)


def count_disorder(row: Row, logged: Sequence[Logged], kind: str) -> None:
    """Compare the order of the events of one kind, by recorder, with the order of their messages."""
    for ordinal in {entry.recorder for entry in logged}:
        mine = [entry for entry in logged if entry.recorder == ordinal and entry.kind == kind and entry.n is not None]
        count_repeats(row, [entry.n for entry in mine if entry.n is not None])
        row.out_of_order += sum(1 for one, next_ in pairwise(mine) if next_.ts < one.ts)


async def drained(row: Row, store: Store, spool: Path) -> None:
    """Drain the spools in a folder completely, if there are any."""
    async with EventLog.open(str(store)) as log:
        async for done in drain(log, spool):
            row.add("drained", done.events)
            if done.reason is not None:
                row.problem(f"{spool}: a spool is kept: {done.reason}")
    if spool.exists():
        row.problem(f"{spool} is still there after a drain")
