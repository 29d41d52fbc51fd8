"""Check of a projection against one that is made anew from the log."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from ..db import derived_files
from ..experiments.records import Experiment
from ..log.event_log import EventLog
from ..text import plural
from .layout import EVENTS, MANIFEST, Manifest, digest
from .query import Files, Progress, brought_up
from .update import Updater


async def check(log: EventLog, of: Experiment, progress: Progress | None = None) -> list[str]:
    """Return what is wrong with the projection of an experiment, in sentences; empty if nothing is.

    It is brought up to date first. Raises `StoreError` if DuckDB or pyarrow is not installed.
    """
    here = await brought_up(log, of)
    problems: list[str] = []
    for folder in derived_files.folders(log.database, of.id):
        if (folder / MANIFEST).exists():
            problems += await asyncio.to_thread(_changed, folder)
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name, "anew")
        updater = Updater(log.database, of, folder, progress)
        tail = await updater.update()
        parts = updater.manifest.parts
        anew = Files([folder / f"{part.name}.{EVENTS}" for part in parts], [part.place for part in parts], tail)
        different = await asyncio.to_thread(_difference, here, anew)
    if different:
        problems.append(f"{plural(different, 'row')} of the projection differ from the log")
    return [
        f"{problem}: `messager cache --clear` deletes it, and the next question makes it anew" for problem in problems
    ]


def _changed(folder: Path) -> list[str]:
    """Return the files of parts that are not as they were written."""
    found = []
    for part in Manifest.read(folder).parts:
        for ending, expected in part.sha256.items():
            path = folder / f"{part.name}.{ending}"
            if not path.exists() or digest(path) != expected:
                found.append(f"{path} was changed")
    return found


def _difference(one: Files, other: Files) -> int:
    """Return the number of rows that only one of two projections has."""
    import duckdb

    with duckdb.connect(config={"temp_directory": ""}) as connection:
        for name, files in (("one", one), ("other", other)):
            connection.register(f"{name}_tail", files.tail)
            paths = ", ".join("'" + str(path).replace("'", "''") + "'" for path in files.paths)
            parts = f"SELECT * FROM read_parquet([{paths}]) UNION ALL " if paths else ""
            connection.execute(f"CREATE VIEW {name} AS {parts}SELECT * FROM {name}_tail")
        only = "SELECT count(*) FROM (FROM {} EXCEPT ALL FROM {})"
        numbers = [connection.execute(only.format(*names)).fetchone() for names in (("one", "other"), ("other", "one"))]
    return sum(int(row[0]) for row in numbers if row is not None)
