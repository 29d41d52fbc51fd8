"""Questions to a projection, in SQL of DuckDB.

The views, one row for each event, message, delivery, mark and gap, have the parts and the tail: all events that the log
had. `VIEWS` makes them of the table `event`, which has the columns of `schema`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from messager.record import is_own

from ..db import derived_files
from ..db.codes import FROM_DERIVED, TO_DERIVED
from ..errors import StoreError
from ..experiments.records import Experiment
from ..json_text import dump, load_object
from ..log.event_log import EventLog
from ..log.gap import gap_of
from ..log.mark_labels import MarkLabels
from ..log.names import as_utf_8
from . import schema
from .cache import used
from .layout import EVENTS, Manifest, Place
from .update import Updater

BATCH = 5000
"""Rows of a batch, at most."""
TRIES = 5
"""Times that a projection is begun anew if its folder is deleted meanwhile: a redaction does so twice."""
Progress = Callable[[int, int], None]
"""Is called with the number of events that were read, and the total."""

TIME = "make_timestamptz({0} // 1000 - ({0} % 1000 < 0)::BIGINT)"
"""ns UTC as microseconds, rounded down."""
_FIELDS = (
    *("recorder", "seq", "kind", "channel", "from_id", "from_type", "to_id", "to_type", "derived", "msg_id", "text"),
    *("payload", "redacted"),
)
_DERIVED = {"derived": f"(e.flags & {FROM_DERIVED | TO_DERIVED})::TINYINT AS derived"}
_MORE = ("mark", "messager", "heard", "arrival", "cause", "receivers", "duration_ns", "meta", "origin")
COLUMNS = ("ts", "time", *_FIELDS, "received_at", "copies", *_MORE)
"""The columns of events and messages; docs/analysis.md describes them."""


def events_of(received: str = "true") -> str:
    """Return the SELECT of `events`, from `event e`. `received` is a condition on the receptions that are looked at."""
    return f"""
        SELECT e.ts, {TIME.format("e.ts")} AS time, {", ".join(_DERIVED.get(name, f"e.{name}") for name in _FIELDS)},
            {TIME.format("CASE e.kind WHEN 'received' THEN e.ts WHEN 'sent' THEN d.first END")} AS received_at,
            CASE e.kind WHEN 'sent' THEN coalesce(d.copies, 0) END AS copies,
            {", ".join(f"e.{name}" for name in _MORE)}, e.folded, e.size, e.flags, e.id, e.message_id, e.is_copy
        FROM event e
        LEFT JOIN (SELECT message_id, min(ts) AS first, count(*) AS copies FROM event
            WHERE message_id <> id AND NOT is_copy AND {received} GROUP BY 1) d ON d.message_id = e.id"""


VIEWS = {
    "events": events_of(),
    "messages": "SELECT * FROM events WHERE message_id = id",
    "deliveries": f"""
        SELECT {TIME.format("m.ts")} AS time, m.channel, m.from_id, m.to_id, m.text, m.ts,
            {TIME.format("r.ts")} AS received_at, (r.ts - m.ts) / 1e6 AS delay_ms, r.messager, r.recorder, r.seq,
            m.id AS message_id, r.id
        FROM event r JOIN event m ON r.message_id = m.id AND r.id <> m.id WHERE NOT r.is_copy""",
    "marks": f"SELECT {TIME.format('ts')} AS time, name, fields, label, ts, recorder, seq, id FROM mark",
    "gaps": f"SELECT {TIME.format('ts')} AS time, reason, since, until, ts, recorder, seq, id FROM gap",
}
"""The views that a statement sees."""


@dataclass(frozen=True, slots=True)
class Files:
    """A projection that is up to date."""

    paths: list[Path]
    """Files of the table `event`."""
    places: list[Place]
    """The end of the time of each."""
    tail: Any
    """The events behind them, as a `pyarrow.Table`."""
    hurried: int = 0
    """Messages that were decided early, because too many were undecided (`MessageRule.hurried`)."""
    recorders: dict[str, tuple[int, str]] = field(default_factory=dict)
    """What it covers, as in `Manifest`."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A projection that questions can be asked."""

    files: Files
    connection: Any
    """A DuckDB connection with the table `event`, and the views `events`, `messages` and `deliveries`."""

    def add_marks(self) -> None:
        """Add the tables `mark` and `gap`, which take a look at every event."""
        for name, table in small_tables(self.files).items():
            self.connection.register(name, table)

    def windows(self) -> list[tuple[Place | None, Place | None]]:
        """Return the times of the parts and of the tail: behind the first place, up to the second one."""
        return list(pairwise([None, *self.files.places, None]))

    def table(self, statement: str, values: Mapping[str, Any] | None = None) -> Any:
        """Return the rows of a statement as a `pyarrow.Table`. Values that it does not use are left out."""
        return self._run(statement, values).to_arrow_table()

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a statement as tuples."""
        found: list[tuple[Any, ...]] = self._run(statement, values).fetchall()
        return found

    def batches(self, statement: str, values: Mapping[str, Any] | None = None) -> Generator[Any, None, None]:
        """Yield the rows of a statement as record batches. The connection answers nothing else until it is closed."""
        reader = self._run(statement, values).to_arrow_reader(BATCH)
        try:
            yield from reader
        finally:
            reader.close()

    def _run(self, statement: str, values: Mapping[str, Any] | None) -> Any:
        used = {name: value for name, value in (values or {}).items() if f"${name}" in statement}
        return self.connection.sql(statement, params=used or None)


@asynccontextmanager
async def projected(log: EventLog, of: Experiment, progress: Progress | None = None) -> AsyncIterator[Projection]:
    """Bring the projection of an experiment up to date, and open it.

    Raises `StoreError` if DuckDB or pyarrow is not installed, or no folder can be written.
    """
    files = await brought_up(log, of, progress)
    with reading(files), contextlib.closing(await asyncio.to_thread(_opened, files)) as connection:
        yield Projection(files, connection)


@contextmanager
def reading(files: Files) -> Iterator[None]:
    """Raise `StoreError` in the place of any error if files of a projection are deleted while they are read."""
    try:
        yield
    except Exception as error:
        gone = [path for path in files.paths if not path.exists()]
        if not gone:
            raise
        raise StoreError(f"{gone[0]} was deleted while it was read, as by a redaction. Ask again.") from error


async def brought_up(log: EventLog, of: Experiment, progress: Progress | None = None) -> Files:
    """Bring the projection of an experiment up to date. Raises as `projected` does."""
    schema.pyarrow()
    reasons = []
    for folder in derived_files.folders(log.database, of.id):
        try:
            updater, tail = await _updated(log, of, folder, progress)
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror or error}")
            continue
        await asyncio.to_thread(used, folder)
        return files_of(folder, updater.manifest, tail)
    raise StoreError(
        f"no folder for the projection of {of.exp_id} can be written ({'; '.join(reasons)}). "
        "Free some space there, or name another one with MESSAGER_CACHE."
    )


def files_of(folder: Path, manifest: Manifest, tail: Any) -> Files:
    """Return the files of a folder."""
    parts = manifest.parts
    paths = [folder / f"{part.name}.{EVENTS}" for part in parts]
    hurried = manifest.hurried + sum(part.hurried for part in parts)
    return Files(paths, [part.place for part in parts], tail, hurried, manifest.recorders)


async def _updated(log: EventLog, of: Experiment, folder: Path, progress: Progress | None) -> tuple[Updater, Any]:
    """Return an updater that has finished, and the tail. If the folder is deleted meanwhile, begin anew."""
    for left in reversed(range(TRIES)):
        updater = Updater(log.database, of, folder, progress)
        try:
            return updater, await updater.update()
        except FileNotFoundError:
            if not left:
                raise
    raise AssertionError


def views() -> dict[str, list[str]]:
    """Return the columns of each view."""
    here = Files([], [], schema.schema().empty_table())
    connection = _opened(here)
    try:
        Projection(here, connection).add_marks()
        return {view: list(connection.sql(f"SELECT * FROM ({VIEWS[view]}) LIMIT 0").columns) for view in VIEWS}
    finally:
        connection.close()


def _opened(here: Files) -> Any:
    import duckdb

    connection = duckdb.connect(config={"python_enable_replacements": "false", "temp_directory": ""})
    connection.execute("SET TimeZone = 'UTC'")
    add_events(connection, here)
    for view in ("events", "messages", "deliveries"):
        connection.execute(f"CREATE VIEW {view} AS {VIEWS[view]}")
    return connection


def add_events(connection: Any, here: Files, name: str = "event") -> None:
    """Make the table of events in a DuckDB connection."""
    connection.register(f"tail_of_{name}", here.tail)
    paths = ", ".join("'" + str(path).replace("'", "''") + "'" for path in here.paths)
    parts = f"SELECT * FROM read_parquet([{paths}]) UNION ALL " if paths else ""
    connection.execute(f"CREATE VIEW {name} AS {parts}SELECT * FROM tail_of_{name}")


def statements() -> list[str]:
    """Return the statements that make the views of the tables `event`, `mark` and `gap`."""
    return [f"CREATE VIEW {view} AS {statement}" for view, statement in VIEWS.items()]


def small_tables(here: Files) -> dict[str, Any]:
    """Return the tables `mark` and `gap`, of what the meta of these events says."""
    pa = schema.pyarrow()
    columns = ["id", "ts", "recorder", "seq", "kind", "meta"]
    wanted = pa.compute.field("kind").isin(["mark", "gap"])
    found = [pa.parquet.read_table(path, columns=columns, filters=wanted) for path in here.paths]
    found.append(here.tail.select(columns).filter(wanted))
    rows = pa.concat_tables(found).sort_by([("ts", "ascending"), ("id", "ascending")])
    labels = MarkLabels()
    marks: list[tuple[Any, ...]] = []
    gaps: list[tuple[Any, ...]] = []
    for row in rows.to_pylist():
        meta, place = load_object(row["meta"] or "{}"), (row["id"], row["ts"], row["recorder"], row["seq"])
        if row["kind"] == "gap":
            gap = gap_of(meta)
            gaps.append((*place, gap.reason, gap.since, gap.until))
        else:
            name, fields = meta.get("name"), meta.get("fields")
            name = as_utf_8(name) if isinstance(name, str) else None
            label = None if name is None or is_own(name) else labels.next(name)
            marks.append((*place, name, None if fields is None else dump(fields), label))
    place_of = [("id", pa.int64()), ("ts", pa.int64()), ("recorder", pa.int32()), ("seq", pa.int64())]
    words = pa.string()
    return {
        "mark": _table([*place_of, ("name", words), ("fields", words), ("label", words)], marks),
        "gap": _table([*place_of, ("reason", words), ("since", pa.int64()), ("until", pa.int64())], gaps),
    }


def _table(columns: list[tuple[str, Any]], rows: list[tuple[Any, ...]]) -> Any:
    pa = schema.pyarrow()
    of = pa.schema(columns)
    return pa.Table.from_arrays([pa.array([row[at] for row in rows], one.type) for at, one in enumerate(of)], schema=of)
