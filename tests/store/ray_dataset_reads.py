"""Part of ray_program.py: an experiment is read in parallel from two stores."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import ray
import ray.data

from messager_store.ray import dataset
from tests.store.ray_runs import fill, row


def rows(found: Any) -> list[Any]:
    """Return the rows of a Dataset in replay order, with the fields that the test compares."""
    fields = ("ts", "recorder", "seq", "kind", "channel", "from_id", "from_type")
    return sorted(([*(each[name] for name in fields), each["payload"].hex()] for each in found.take_all()), key=_place)


def _place(event: list[Any]) -> Any:
    return event[:3]


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


def seen(postgres: str, sqlite: str) -> dict[str, Any]:
    """Return what is read of an experiment that is in both stores, inside Ray."""
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    events = asyncio.run(fill(postgres))
    divided = asyncio.run(in_a_loop(postgres)).materialize()
    nothing = dataset(postgres, "e1", channels="none").materialize()
    return {
        "recorded": [row(event) for event in events],
        "recorded twice": [row(event) for event in asyncio.run(fill(sqlite))],
        "events": rows(divided),
        "blocks": sorted(ray.get(block).num_rows for block in divided.get_internal_block_refs()),
        "selected": rows(dataset(postgres, "e1", parts=2, channels="c1", since="2s", until="20s")),
        "nothing": [nothing.count(), nothing.schema().names],
        "sqlite": rows(dataset(sqlite, "e1", parts=2)),
        "refused": refused(sqlite),
    }
