"""Time to read one experiment of PostgreSQL: by one process, by tasks of Ray, and from partitioned Parquet by DuckDB.

    python -m bench.parallel [--events N] [--tasks N]

Figures of one run, for docs/scaling.md. Requires the extras `arrow`, `postgres` and `ray`, and DuckDB.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from messager_store import EventLog
from messager_store.formats.tables import write
from messager_store.projection.query import brought_up
from messager_store.projection.tables import batches
from messager_store.ray import dataset
from messager_store.testing import Databases, postgres_server

from .workload import fill

EXP_ID = "bench"


@contextmanager
def measured(name: str, events: int) -> Iterator[None]:
    """Print the duration of a block, and the events per second."""
    begun = time.perf_counter()
    yield
    took = time.perf_counter() - begun
    print(f"{name:50} {took:7.2f} s  {events / took:9,.0f} events per second", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.parallel", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--tasks", type=int, default=2, help="tasks of Ray at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, postgres_server() as server:
        store = Databases(server.url("postgres")).create()
        asyncio.run(_read(store, options.events, Path(folder) / "lake"))
        _read_files(Path(folder) / "lake", options.events)
        _read_by_tasks(store, options.events, options.tasks)


async def _read(store: str, events: int, lake: Path) -> None:
    async with EventLog.open(store) as log:
        await fill(log, EXP_ID, events)
        of = await log.experiment(EXP_ID)
        with measured("index", events):
            await brought_up(log, of)
        with measured("record batches, one process", events):
            count = sum([batch.num_rows async for batch in batches(log, of, events=True)])
        with measured("export --partition-by hour", events):
            exported = await write(log, EXP_ID, lake, by="hour")
    assert count == exported == events


def _read_files(lake: Path, events: int) -> None:
    duckdb = import_module("duckdb")
    with measured("DuckDB: messages by pair, from the files", events):
        rows = duckdb.sql(f"SELECT from_id, to_id, count(*) AS n FROM '{lake}/**/*.parquet' GROUP BY ALL").fetchall()
    assert sum(row[2] for row in rows) == events


def _read_by_tasks(store: str, events: int, tasks: int) -> None:
    ray, data = import_module("ray"), import_module("ray.data")
    ray.init(num_cpus=tasks, include_dashboard=False, logging_level="error", log_to_driver=False)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    data.DataContext.get_current().enable_progress_bars = False
    try:
        with measured(f"Ray Dataset, {tasks} tasks at once", events):
            count = dataset(store, EXP_ID, events=True).materialize().count()
    finally:
        ray.shutdown()
    assert count == events


if __name__ == "__main__":
    main()
