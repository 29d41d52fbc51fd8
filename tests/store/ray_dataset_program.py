"""Program of test_ray_dataset.py: reads an experiment in parallel from two stores. Prints the results as JSON.

python ray_dataset_program.py POSTGRESQL_URL SQLITE_FILE
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from typing import Any

import ray
import ray.data

from messager_store.ray import dataset


def rows(found: Any) -> list[Any]:
    """Return the rows of a Dataset in replay order, with the fields that the test compares."""
    fields = ("ts", "recorder", "seq", "kind", "channel", "from_id", "from_type")
    return sorted(([*(row[name] for name in fields), row["payload"].hex()] for row in found.take_all()), key=_place)


def _place(row: list[Any]) -> Any:
    return row[:3]


def refused(store: str) -> str:
    """Return the reason why a task on another host does not read a SQLite file."""
    socket.gethostname = lambda: "another-host"
    try:
        dataset(store, "e1").count()
    except Exception as error:
        return str(error)
    return ""


async def in_a_loop(store: str) -> Any:
    """Return a Dataset that was made where an event loop runs, as in a notebook."""
    return dataset(store, "e1", events=True, parts=3)


def main(postgres: str, sqlite: str) -> None:
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        divided = asyncio.run(in_a_loop(postgres)).materialize()
        nothing = dataset(postgres, "e1", channels="none").materialize()
        seen = {
            "events": rows(divided),
            "blocks": sorted(ray.get(block).num_rows for block in divided.get_internal_block_refs()),
            "selected": rows(dataset(postgres, "e1", parts=2, channels="c1", since="2s", until="20s")),
            "nothing": [nothing.count(), nothing.schema().names],
            "sqlite": rows(dataset(sqlite, "e1", parts=2)),
            "refused": refused(sqlite),
        }
    finally:
        ray.shutdown()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
