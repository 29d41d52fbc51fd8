"""Changes of one value in each column of a small log, which `verify` must find."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from messager_store import EventLog, NewEvent
from messager_store.db.schema import metadata
from messager_store.errors import StoreError
from messager_store.recording.closing import close

from .evidence import findings
from .row import Row, Run, fault

NOT_PROMISED = {
    "experiment.exp_id": "a label; export and import change it, and the head identifies the content",
    "experiment.name": "a label, which a person may change",
    "experiment.meta": "notes; later recorders add to them",
    "experiment.created_at": "time at which the row was created",
    "experiment.parent_exp_id": "a description of where it comes from; no event depends on it",
    "experiment.parent_head": "a description of where it comes from",
    "experiment.parent_cursor": "a description of where it comes from",
    "tag.tag": "a label, which a person may change",
    "recorder.epoch": "a fence against former writers, not part of the recording",
    "recorder.spool": "a description of the writer",
}
"""Columns outside the chain, with the reason. All columns that are not listed are promised."""
PART_PROMISED = {
    "experiment.closed_at": "its presence is checked, not its value",
}
"""Columns of which only the presence of a value is promised."""
NO_LOG = {
    "redaction": "nothing is redacted yet",
}
"""Tables that are not part of the log."""
FEW = 2
"""Number of values tried per column in a short run."""
UNUSED_PID = 1 << 22 | 1
"""A pid that no process can have."""


@fault("changed-value", "One value changed in every column", short=1, long=3)
async def changed_value(run: Run, row: Row) -> None:
    """Verify reports a problem for each change."""
    store = run.folder / "log.db"
    await small_log(store)
    assert await findings(store) == []
    copy = run.folder / "changed.db"
    for _ in range(run.tries):
        for table in metadata.sorted_tables:
            if table.name in NO_LOG:
                continue
            for column in table.columns:
                where = f"{table.name}.{column.name}"
                if where in NOT_PROMISED:
                    continue
                for key, old in _some_rows(run, store, table.name, column.name):
                    for new in _chosen(run, other_values(old, only_absence=where in PART_PROMISED)):
                        shutil.copy(store, copy)
                        if not _change(copy, table.name, column.name, key, new):
                            continue  # the database refuses the value
                        row.tried += 1
                        row.offered += 1
                        try:
                            found = await findings(copy)
                        except StoreError as error:
                            found = [str(error)]
                        except Exception as error:
                            found = [repr(error)]
                            row.problem(f"{where}: {old!r} made {new!r}: verify stopped with {error!r}")
                        if not found:
                            row.unnoticed += 1
                            row.problem(f"{where}: {old!r} made {new!r}")
    row.notes["columns"] = sum(len(table.columns) for table in metadata.sorted_tables if table.name not in NO_LOG)
    row.notes["not promised"] = len(NOT_PROMISED)


async def small_log(store: Path) -> None:
    """Create a closed and an open experiment, with two recorders each and every kind of event."""
    async with EventLog.open(str(store)) as log:
        for exp_id in ("e1", "e2"):
            of = await log.create_experiment(exp_id, name="n", tags=["t"], meta={"seed": 7})
            for _ in range(2):
                process = {"pid": UNUSED_PID}  # it has ended
                writer = await log.register(of, role="messager", meta={"m": 1}, patterns=["*"], row=process)
                for part in range(2):
                    at = 100 * part
                    heard = {"reason": "r", "since": at, "until": at + 9, "count": None}
                    await log.append(
                        writer,
                        [
                            NewEvent("sent", at, "c", b'{"n": 1}', 1, "b", msg_id="id", duration_ns=7, receivers=3),
                            NewEvent("received", at + 1, "d", b"\xff", 2, "a", 3, cause=(1, 1)),
                            NewEvent("blocked", at + 2, "c", b"{}", "b", 1),
                            NewEvent("failed", at + 3, "c", b"{}", meta={"outcome": "unknown", "error": "e"}),
                            NewEvent("gap", at + 4, None, b"", meta=heard),
                            NewEvent("mark", at + 5, None, b"", meta={"name": "m", "fields": {}}),
                        ],
                        unacknowledged_ns=5 + part,
                    )
                await log.touch(writer, ended_at=time.time_ns())
            if exp_id == "e1":
                await close(log, of)


def _some_rows(run: Run, store: Path, table: str, column: str) -> list[tuple[int, Any]]:
    """Return a row with a value in the column and a row with NULL, if they exist."""
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
    full = [found for found in rows if found[1] is not None]
    empty = [found for found in rows if found[1] is None]
    return [run.dice.choice(some) for some in (full, empty) if some]


def _chosen(run: Run, values: Iterator[Any]) -> list[Any]:
    """Return all values in a long run, a few in a short one."""
    every = list(values)
    return every if not run.short else run.dice.sample(every, min(FEW, len(every)))


def other_values(old: Any, *, only_absence: bool = False) -> Iterator[Any]:
    """Yield values other than the old one: similar ones, different ones, other types, NULL."""
    if only_absence:
        yield None if old is not None else 1
        return
    if isinstance(old, int):
        yield from (old + 1, old - 1, -old - 1, old ^ (1 << 33))
    elif isinstance(old, str):
        yield from (old + " ", old[:-1], "other")
    elif isinstance(old, bytes):
        yield from (old + b"\x00", old[:-1], bytes([*old[:-1], old[-1] ^ 1]) if old else b"x")
    else:
        yield from (0, 1, "", b"")
        return
    yield from (None, "text", b"bytes", 2.5)


def _change(store: Path, table: str, column: str, key: int, new: Any) -> bool:
    """Set the value; return True if that changed it."""
    look = f"SELECT typeof({column}), {column} FROM {table} WHERE rowid = ?"
    with closing(sqlite3.connect(store)) as connection, connection:
        before = connection.execute(look, (key,)).fetchone()
        try:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, key))
        except sqlite3.IntegrityError:
            return False
        return bool(connection.execute(look, (key,)).fetchone() != before)
