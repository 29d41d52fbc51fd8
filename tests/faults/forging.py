"""Forged stores: changes that readers show, which `verify --head` must find."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from messager import MemoryBroker
from messager_store import EventLog
from messager_store.db.schema import LOG_TABLES, tag
from messager_store.errors import StoreError
from messager_store.formats.jsonl import export_jsonl
from messager_store.maintenance.verify import verify
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.queries.overview import overview
from messager_store.replay import Replay
from tests.support import forgeries, sql

from .row import Row, Run, fault
from .tampering import NOT_PROMISED, PART_PROMISED, other_values, small_log

EXPERIMENTS = ("e1", "e2")
COLUMNS = {
    table.name: [name for name in [*table.c.keys()] if f"{table.name}.{name}" not in NOT_PROMISED | PART_PROMISED]
    for table in LOG_TABLES
    if table is not tag
}
"""The columns that are forged, by table."""
FEW, MANY = 60, 400
"""Forgeries of a try."""
IDS = (0, 1 << 40, 1 << 40 | 13, 2 << 40 | 13, 3 << 40 | 13, 77 << 40, 77 << 40 | 1, -1, 2**63 - 1)
"""Ids of events that are none of the log."""
PREDICATES = ("id <> {id}", "ts <> {ts}", "kind <> 3", "id % 3", "experiment_id = 1")
KEYS = ("(-ts), id", "(ts / 7), id", "(ts + id % 5), id", "(CASE id WHEN {id} THEN 99 ELSE ts END), id", "id, ts")


@fault("forgeries", "Random and known forgeries of rows and indexes", short=1, long=10, seconds=1800)
async def forged(run: Run, row: Row) -> None:
    """What changes the output of a reader makes `verify --head` fail; so does each known forgery."""
    store, copy = run.folder / "log.db", run.folder / "forged.db"
    await small_log(store)
    async with EventLog.open(str(store)) as log:
        await redact(log, "e2", RedactionFilter(kinds=("blocked",)), who="me", why="asked to")
    before = {exp_id: await _Reading.of(store, exp_id) for exp_id in EXPERIMENTS}
    for exp_id, reading in before.items():
        if not await _is_ok(row, store, exp_id, reading.head):
            row.problem(f"{exp_id} cannot be read before it is forged: {reading.shown[-1]}")
            return
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    known = [*forgeries.ROWS.items(), *forgeries.OF_SQLITE.items()]
    for name, (statements, _) in known:
        shutil.copy(store, copy)
        sql(str(copy), *statements)
        row.tried += 1
        row.offered += 1
        if await _is_ok(row, copy, "e1", before["e1"].head):
            row.unnoticed += 1
            row.problem(name)
    for _ in range(run.tries * (FEW if run.short else MANY)):
        shutil.copy(store, copy)
        made = _forge(run, copy)
        row.tried += bool(made)
        for exp_id in EXPERIMENTS if made else ():
            after = await _Reading.of(copy, exp_id)
            if after.shown == before[exp_id].shown:
                continue
            row.offered += 1
            if await _is_ok(row, copy, exp_id, before[exp_id].head):
                row.unnoticed += 1
                row.problem(f"{exp_id}, unnoticed: {'; '.join(made)}")


@dataclass(frozen=True, slots=True)
class _Reading:
    """Output of readers for an experiment, and its head."""

    shown: list[str]
    head: str

    @classmethod
    async def of(cls, store: Path, exp_id: str) -> _Reading:
        """Read an experiment: its events, export, recorders, and a dry run of its replay. Errors are shown, too."""
        file = store.with_suffix(".jsonl")
        shown: list[str] = []
        head = ""
        try:
            async with EventLog.open(str(store)) as log:
                shown += [repr(entry) async for entry in log.read(exp_id)]
                await export_jsonl(log, exp_id, file)
                shown.append(file.read_text())
                replay = Replay(log, exp_id, MemoryBroker(), speed="max", dry_run=True)
                report = (await replay.run()).to_dict()
                shown.append(repr([report[key] for key in ("planned", "published", "failures", "channels")]))
                found = await overview(log, await log.experiment(exp_id))
                shown.append(repr(found["recorders"]))
                head = found["head"]
        except Exception as error:  # of any kind: a reader may stop at a forged value
            shown.append(repr(error))
        return cls(shown, head)


async def _is_ok(row: Row, store: Path, exp_id: str, head: str) -> bool:
    """Return whether `verify --head` finds nothing."""
    try:
        async with EventLog.open(str(store)) as log:
            return (await verify(log, await log.experiment(exp_id), head)).ok
    except StoreError:
        return False
    except Exception as error:
        row.problem(f"verify stopped with {error!r}")
        return False


def _forge(run: Run, store: Path) -> list[str]:
    """Make one to three changes; return their statements, without those that the database refused."""
    made: list[str] = []
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        for _ in range(run.dice.choice((1, 1, 2, 3))):
            for statement in run.dice.choice((_update, _update, _delete, _insert, _insert, _swap, _index))(
                run, connection
            ):
                with suppress(sqlite3.IntegrityError):
                    if connection.execute(*statement).rowcount:
                        made.append(str(statement))
    return made


_Statement = tuple[str, tuple[Any, ...]]


def _some(run: Run, connection: sqlite3.Connection, table: str, number: int = 1) -> list[int]:
    """Return rowids of a table, as many as there are up to this number."""
    rowids = [rowid for (rowid,) in connection.execute(f"SELECT rowid FROM {table}")]
    return run.dice.sample(rowids, min(number, len(rowids)))


def _update(run: Run, connection: sqlite3.Connection) -> Iterator[_Statement]:
    table = run.dice.choice([*COLUMNS])
    column = run.dice.choice(COLUMNS[table])
    for rowid in _some(run, connection, table):
        [old] = connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
        others = connection.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT ?", (old,)).fetchall()
        values = [*other_values(old), *(value for (value,) in others)]
        yield f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (run.dice.choice(values), rowid)


def _delete(run: Run, connection: sqlite3.Connection) -> Iterator[_Statement]:
    table = run.dice.choice([*COLUMNS])
    for rowid in _some(run, connection, table):
        yield f"DELETE FROM {table} WHERE rowid = ?", (rowid,)


def _insert(run: Run, connection: sqlite3.Connection) -> Iterator[_Statement]:
    """A copy of a row, with other values where they must be unique."""
    table = run.dice.choice([*COLUMNS, "event", "event"])
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    for rowid in _some(run, connection, table):
        values = dict(
            zip(columns, connection.execute(f"SELECT * FROM {table} WHERE rowid = ?", (rowid,)).fetchone(), strict=True)
        )
        if table == "event":
            values["id"] = run.dice.choice(IDS)
            values["experiment_id"] = run.dice.choice((1, 1, 2))
        else:
            values |= {
                key: values[key] + run.dice.choice((1, 7)) for key in ("id", "ordinal", "first_seq") if key in values
            }
            values |= {key: f"{values[key]}2" for key in ("exp_id", "uuid") if key in values}
            values |= {key: values[key][::-1] for key in ("hash",) if key in values}
        marks = ", ".join("?" * len(values))
        yield f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())


def _swap(run: Run, connection: sqlite3.Connection) -> Iterator[_Statement]:
    table = run.dice.choice([*COLUMNS, "event"])
    column = run.dice.choice(COLUMNS[table])
    rowids = _some(run, connection, table, 2)
    if len(rowids) < 2 or column == "id":
        return
    one, other = (
        connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (rowid,)).fetchone()[0] for rowid in rowids
    )
    aside = b"aside" if isinstance(one, bytes) else -5
    for value, rowid in ((aside, rowids[0]), (one, rowids[1]), (other, rowids[0])):
        yield f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, rowid)


def _index(run: Run, connection: sqlite3.Connection) -> Iterator[_Statement]:
    """The replay index, made anew so that it is another one, under its old definition."""
    number = _some(run, connection, "event")[0]
    [ts] = connection.execute("SELECT ts FROM event WHERE id = ?", (number,)).fetchone()
    if run.dice.random() < 0.5:
        keys, where = "ts, id", f" WHERE {run.dice.choice(PREDICATES)}"
    else:
        keys, where = run.dice.choice(KEYS), ""
    definition = f"CREATE INDEX ix_event_replay ON event (experiment_id, {keys}){where}".format(id=number, ts=ts)
    for statement in forgeries.index_of_sqlite(definition):
        yield statement, ()
