"""Check of a projection against one that is made anew from the log."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from ..db import derived_files
from ..errors import StoreError
from ..experiments.records import Experiment
from ..log.event_log import EventLog
from ..text import plural
from .layout import MANIFEST, Manifest, digest
from .query import Files, Progress, add_events, brought_up, files_of
from .update import Updater

TRIES = 10
"""Times that both are brought up to date, until they cover the same of a log that is being recorded."""


async def check(log: EventLog, of: Experiment, progress: Progress | None = None) -> list[str]:
    """Return what is wrong with the projection of an experiment, in sentences; empty if nothing is.

    It is brought up to date first. Raises `StoreError` if DuckDB or pyarrow is not installed, and if the log grows too
    fast.
    """
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder_name:
        for _ in range(TRIES):
            updater = Updater(log.database, of, Path(folder_name), progress)
            tail = await updater.update()
            here, anew = await brought_up(log, of), files_of(Path(folder_name), updater.manifest, tail)
            if here.recorders == anew.recorders:
                break
        else:
            raise StoreError(f"{of.exp_id} is being recorded faster than its projection can be checked: check it later")
        for folder in derived_files.folders(log.database, of.id):
            if (folder / MANIFEST).exists():
                problems += await asyncio.to_thread(_changed, folder)
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
            add_events(connection, files, name)
        only = "SELECT count(*) FROM (FROM {} EXCEPT ALL FROM {})"
        numbers = [connection.execute(only.format(*names)).fetchone() for names in (("one", "other"), ("other", "one"))]
    return sum(int(row[0]) for row in numbers if row is not None)
