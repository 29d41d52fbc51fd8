"""Gathering that ends anywhere, and beside others, copies every batch once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from messager_store import EventLog
from messager_store.formats import chain_loader
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify_all
from messager_store.projection.tables import table
from messager_store.recording.closing import close
from tests.support import Stores, sql
from tests.support.parts import (
    Killed,
    commits_limited,
    content,
    erased,
    gathered,
    head,
    problems,
    recorded,
    refused,
)


@contextlib.contextmanager
def before_commits(log: EventLog, act: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Context in which `act` runs before every transaction, except those of its own."""
    whole, acting = log.database.writing, False

    @contextlib.asynccontextmanager
    async def writing(**options: Any) -> AsyncIterator[Any]:
        nonlocal acting
        if not acting:
            acting = True
            await act()
            acting = False
        async with whole(**options) as connection:
            yield connection

    with mock.patch.object(log.database, "writing", writing):
        yield


async def arrivals(log: EventLog) -> list[Any]:
    """Return the payload of every message, and how many received it."""
    rows = (await table(log, await log.experiment("e1"))).to_pylist()
    return sorted((row["payload"], row["copies"]) for row in rows)


async def test_a_gather_that_ends_anywhere_is_completed_by_the_next_one(
    log: EventLog,
    stores: Stores,
    parts: list[EventLog],
    urls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    nightly: bool,
) -> None:
    for number, part in enumerate(parts):
        await recorded(part, 2 * number, 2 * number + 1)
    await erased(parts[1], "2.1.0")
    monkeypatch.setattr(chain_loader, "FLUSH_EVENTS", 1)
    await gathered(log, *urls)
    for limit in itertools.count(1) if nightly else (2, 9, 17):
        async with EventLog.open(stores.fresh()) as other:
            with commits_limited(other, limit) as made, contextlib.suppress(Killed):
                await gathered(other, *urls)
            for verdict in [v async for v in verify_all(other)]:
                assert [p for p in verdict.problems if "no redaction record matches it" not in p] == []
            await gathered(other, *urls)
            assert (await head(other), await problems(other)) == (await head(log), [])
            assert await content(other) == await content(log)
            assert await arrivals(other) == await arrivals(log)
        if made() < limit:
            break
    assert limit == 17 or limit > 20


async def test_two_gathers_at_once_copy_every_batch_once(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, part in enumerate(parts):
        await recorded(part, 2 * number, 2 * number + 1)
    monkeypatch.setattr(chain_loader, "FLUSH_EVENTS", 1)
    async with EventLog.open(store) as other:
        await asyncio.gather(gathered(log, *urls), gathered(other, *reversed(urls)))
    done = await gathered(log, *urls)
    assert done.status == "closed" and sum(e.events for part in done.parts for e in part.recorders) == 0
    assert (len(await content(log)), await problems(log)) == (72, [])


@pytest.mark.parametrize("other", ["remove", pytest.param("close", marks=pytest.mark.nightly)])
async def test_what_others_do_to_the_experiment_meanwhile_stops_it(
    log: EventLog, parts: list[EventLog], urls: list[str], monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    await recorded(parts[0], 1, 2)
    monkeypatch.setattr(chain_loader, "FLUSH_EVENTS", 1)
    turns = 0

    async def meddle() -> None:
        nonlocal turns
        turns += 1
        if turns == 4:
            of = await log.experiment("e1")
            await (close(log, of, force=True) if other == "close" else remove(log, of))

    with before_commits(log, meddle):
        done = await gathered(log, urls[0])
    assert turns > 4
    assert (done.status, len(await content(log)), await problems(log)) == ("closed", 24, [])


async def test_nothing_is_added_to_an_experiment_that_is_being_removed(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(parts[0], 1, 2)
    monkeypatch.setattr(chain_loader, "FLUSH_EVENTS", 1)
    events: list[int] = []

    async def begin_to_remove() -> None:
        events.append(sql(store, "SELECT count(*) FROM event")[0][0])
        if len(events) == 4:  # the first transaction of a removal
            sql(store, "UPDATE experiment SET status = 'removing'", "UPDATE recorder SET epoch = epoch + 1")

    with before_commits(log, begin_to_remove):
        [reason] = await refused(log, urls[0])
    assert "messager compact" in reason
    assert sql(store, "SELECT count(*) FROM event") == [(events[3],)]
