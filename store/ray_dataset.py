"""An experiment as a Ray Dataset: tasks on any node read parts of it directly from the database."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from copy import copy
from importlib import import_module
from itertools import pairwise
from typing import Any, TypeVar

from sqlalchemy import and_, func, select, tuple_

from .db.codes import SEQ_BITS, SEQ_MASK
from .db.database import Database
from .db.databases import for_store, in_memory
from .db.schema import event, replay_place
from .errors import StoreError
from .experiments.records import Experiment
from .log.event import Cursor
from .log.event_log import EventLog
from .log.event_query import EventQuery, parameter, recorders_now
from .log.reading import BEFORE_ALL, within
from .log.selection import Selection
from .log.span import Span
from .projection.query import brought_up
from .projection.schema import pyarrow
from .projection.tables import batches, columns

PART_EVENTS = 100_000
"""Events in a part, unless the caller asks for a number of parts."""
MOST_PARTS = 1000
T = TypeVar("T")


def read(store: str, exp_id: str, selection: Selection, parts: int | None, events: bool) -> Any:
    """Return the Dataset; `messager_store.ray.dataset` describes it."""
    try:
        ray, data = import_module("ray"), import_module("ray.data")
    except ImportError:
        raise StoreError("datasets need Ray, which is not installed: `pip install 'ray[data]'`") from None
    for name, given in (("limit", selection.limit), ("last_per", selection.last_per), ("context", selection.context)):
        if given:
            raise StoreError(f"a part cannot know what {name} takes from the others. Apply it to the Dataset instead.")
    if in_memory(store):
        raise StoreError("a store in memory is visible to one process only. Use a file or PostgreSQL with Ray.")
    path, here = for_store(store).one_host_file, socket.gethostname()
    if path is not None and ray.is_initialized():
        others = {node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]} - {here}
        if others:
            raise StoreError(f"Ray also runs on {', '.join(sorted(others))}: {_refusal(path, here)}")
    divided = _run_apart(_divided(store, exp_id, selection, parts))
    of = {"store": path or store, "exp_id": exp_id, "events": events, "host": None if path is None else here}
    of["parts"] = divided
    numbers = data.from_items([{"part": number} for number in range(len(divided))], override_num_blocks=len(divided))
    return numbers.map_batches(_tables, fn_kwargs=of, batch_size=1, batch_format="pyarrow")


async def _divided(store: str, exp_id: str, selection: Selection, parts: int | None) -> list[Selection]:
    """Return selections of about equal size that together have the events of the given one, in replay order."""
    async with EventLog.open(store, create=False) as log:
        of = await log.experiment(exp_id)
        await brought_up(log, of)  # once, and not in every task
        span = await selection.span(log.database, of)
        if parts is None:
            events = sum(row.last_seq for row in await log.recorders(of))
            parts = min(MOST_PARTS, -(-events // PART_EVENTS))
        bounds = [span.start, *await cuts(log.database, of, selection, span, max(1, parts)), span.end]
    return [_between(selection, since, until) for since, until in pairwise(bounds)]


def _between(selection: Selection, since: Cursor | None, until: Cursor | None) -> Selection:
    part = copy(selection)
    part.since, part.until, part.around = since, until, None
    return part


def _tables(
    batch: Any, *, store: str, exp_id: str, events: bool, host: str | None, parts: list[Selection]
) -> Iterator[Any]:
    """Yield the events of a part as tables of pyarrow. This runs in a task of Ray."""
    if host is not None and host != socket.gethostname():
        raise StoreError(f"this task runs on {socket.gethostname()}: {_refusal(store, host)}")
    with asyncio.Runner() as runner:
        for number in batch.column("part").to_pylist():
            found = _read(store, exp_id, parts[number], events)
            try:
                while (table := runner.run(_next(found))) is not None:
                    yield table
            finally:
                runner.run(found.aclose())


async def _next(found: AsyncGenerator[Any, None]) -> Any:
    return await anext(found, None)


async def _read(store: str, exp_id: str, part: Selection, events: bool) -> AsyncGenerator[Any, None]:
    """Yield the tables of a part; an empty one first, so that the columns are known if there are no events."""
    pa = pyarrow()
    yield columns().empty_table()
    async with EventLog.open(store, create=False) as log:
        of = await log.experiment(exp_id)
        async with aclosing(batches(log, of, part, events=events)) as found:
            async for batch in found:
                yield pa.Table.from_batches([batch])


def _refusal(path: str, host: str) -> str:
    """Return the reason why tasks on other hosts cannot read a file, and what to do."""
    return (
        f"{path} is a SQLite file on {host}, which other hosts cannot read. Copy the experiment into PostgreSQL "
        "(`messager pack`, `messager unpack`), or export it to partitioned Parquet and read that with ray.data"
    )


def _run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread, as this one may have a running event loop, in a notebook for example."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


async def cuts(database: Database, of: Experiment, chosen: Selection, span: Span, parts: int) -> list[Cursor]:
    """Return the places that divide the selected events into at most this many parts of about equal size.

    Each is the first event of a part, in replay order; the first part has none. `limit` and `last_seqs` of the span do
    not count, nor do conditions on the content.
    """
    recorders = await recorders_now(database, of)
    conditions = await within(database, of, chosen, span, recorders.ids)
    place = BEFORE_ALL
    conditions.append(replay_place > tuple_(parameter("ts"), parameter("number")))
    async with database.reading() as connection:
        total = select(func.count()).select_from(event).where(and_(*conditions))
        length = -(-int((await connection.execute(total, {"ts": place[0], "number": place[1]})).scalar_one()) // parts)
    query = EventQuery(
        select(event.c.ts, event.c.id)
        .where(and_(*conditions))
        .order_by(event.c.ts, event.c.id)
        .offset(parameter("skipped"))
        .limit(1)
    )
    found: list[Cursor] = []
    while rows := await query.rows(database, ts=place[0], number=place[1], skipped=length - bool(found)):
        place = ts, number = rows[0]
        found.append(Cursor(ts, recorders.ordinals[number >> SEQ_BITS], number & SEQ_MASK))
    return found
