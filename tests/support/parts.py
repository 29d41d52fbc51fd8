"""Parts of an experiment in several stores, for the tests of gathering."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest import mock

from messager_store import EventLog, Experiment, NewEvent
from messager_store.formats.gather import GatheredExperiment, gather
from messager_store.log.chain import head_of
from messager_store.maintenance.verify import verify_all
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.recording.closing import close
from tests.support import sql
from tests.support.logs import sent

NOW = 1_790_000_000_000_000_000
"""A time at which no test runs: the recorders of these tests say when they were alive."""
SECOND = 1_000_000_000
TABLES = ("experiment", "tag", "recorder", "name", "batch", "event", "redaction")


async def recorder_of(
    log: EventLog, of: Experiment, batches: list[list[NewEvent]], *, ended: bool = True, at: int = NOW, **more: Any
) -> str:
    """Add a recorder that was alive for ten seconds; return its uuid."""
    row = {"started_at": at, "host": "elsewhere", "pid": 7, "boot_id": "b", **more}
    writer = await log.register(of, role="messager", row=row, spool="/nowhere/spool")
    for events in batches:
        await log.append(writer, events)
    columns = {"heartbeat_at": at + 10 * SECOND, "complete_until": at}
    await log.touch(writer, **columns, **({"ended_at": at + 10 * SECOND} if ended else {}))
    return writer.uuid


def batches_of(number: int, count: int = 3, size: int = 4) -> list[list[NewEvent]]:
    """Return batches of messages that name the recorder, of failures with their causes, and of receptions."""
    found = []
    for part in range(count):
        at = NOW + part * SECOND + number
        events = [
            sent(at + n, b'{"content": "%d.%d.%d"}' % (number, part, n), f"c{n % 2}", from_id=number, to_id=str(n))
            for n in range(size - 2)
        ]
        events.append(NewEvent("failed", at + 8, "c0", b"", cause=(0, part * size + 1), meta={"outcome": "unknown"}))
        events.append(NewEvent("received", at + 50, "c0", b'{"content": "%d.%d.0"}' % (number - 1, part)))
        found.append(events)
    return found


async def recorded(log: EventLog, *numbers: int, exp_id: str = "e1", closed: bool = True, **more: Any) -> Experiment:
    """Record an experiment with a recorder for each number."""
    meta = {"seed": 7, "host": f"h{numbers}"}
    of = await log.create_experiment(exp_id, name="n", tags=[f"t{numbers[0]}"], meta=meta)
    for number in numbers:
        await recorder_of(log, of, batches_of(number), **more)
    if closed:
        await close(log, of)
    return await log.experiment(exp_id)


async def gathered(log: EventLog, *stores: str, **options: Any) -> GatheredExperiment:
    """Gather into a log; return the result of the only experiment."""
    [done] = [each async for each in gather(log, stores, **options)]
    assert isinstance(done, GatheredExperiment)
    return done


async def refused(log: EventLog, *stores: str, **options: Any) -> list[str]:
    """Gather into a log; return the reasons why parts were refused."""
    reasons = []
    async for done in gather(log, stores, **options):
        for part in done.parts if isinstance(done, GatheredExperiment) else [done]:
            assert part.failed == (part.reason is not None and not part.skipped)
            reasons += [part.reason] if part.reason is not None else []
    return reasons


async def content(log: EventLog, exp_id: str = "e1") -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the events by recorder uuid and seq, with causes that name uuids."""
    of = await log.experiment(exp_id)
    uuids = {row.ordinal: row.uuid for row in await log.recorders(of)}
    found = {}
    async for e in log.read(of):
        cause = None if e.cause is None else (uuids[e.cause[0]], e.cause[1])
        fields = (e.ts, e.kind, e.channel, e.payload, e.from_id, e.to_id, e.flags, e.msg_id, e.duration_ns)
        found[uuids[e.recorder], e.seq] = (*fields, e.receivers, cause, e.meta, e.messager, e.arrival, e.origin)
    return found


async def head(log: EventLog, exp_id: str = "e1") -> str:
    of = await log.experiment(exp_id)
    return head_of(await log.recorders(of))


def rows(store: str) -> dict[str, list[Any]]:
    """Return every row of a store."""
    return {table: sorted(sql(store, f"SELECT * FROM {table}"), key=repr) for table in TABLES}


async def problems(log: EventLog) -> list[str]:
    return [problem for verdict in [v async for v in verify_all(log)] for problem in verdict.problems]


async def erased(log: EventLog, text: str, exp_id: str = "e1") -> None:
    done = await redact(log, exp_id, RedactionFilter(contains=(text,)), who="me", why="asked")
    assert done.events > 0


class Killed(Exception):
    """The process ended at this point."""


@contextlib.contextmanager
def commits_limited(log: EventLog, limit: int | None) -> Iterator[Callable[[], int]]:
    """Context in which the transaction of this number is rolled back and raises `Killed`; yields their number."""
    whole, made = log.database.writing, 0

    @contextlib.asynccontextmanager
    async def writing(**options: Any) -> AsyncIterator[Any]:
        nonlocal made
        async with whole(**options) as connection:
            yield connection
            made += 1
            if made == limit:
                raise Killed

    with mock.patch.object(log.database, "writing", writing):
        yield lambda: made
