"""Gathering: any division of recorders into stores, any order, repetition and interruption gives the same."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager_store import EventLog, NewEvent
from messager_store.formats import chain_loader
from messager_store.formats.gather import GatheredExperiment, gather
from messager_store.log.chain import head_of
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify
from messager_store.recording.closing import close
from tests.support import Stores
from tests.support.examples import WITH_STORE
from tests.support.parts import Killed, commits_limited

STORES = 3
NOW = 1_790_000_000_000_000_000

batches = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), max_size=4)
"""The times of the events of a recorder, by batch."""
recorders = st.lists(st.tuples(st.integers(0, STORES - 1), batches), min_size=1, max_size=5)
"""For each recorder the store that it records into."""
steps = st.lists(
    st.tuples(st.permutations(range(STORES)), st.integers(1, STORES), st.none() | st.integers(1, 12)), max_size=4
)
"""For each gather the order of the stores, how many of them, and the transaction at which it ends."""


@pytest.fixture
async def parts(stores: Stores) -> AsyncIterator[list[EventLog]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(EventLog.open(stores.fresh())) for _ in range(STORES)]


async def events(log: EventLog, exp_id: str) -> list[Any]:
    """Return the events with uuids in the place of ordinals."""
    uuids = {row.ordinal: row.uuid for row in await log.recorders(await log.experiment(exp_id))}
    return sorted((uuids[e.recorder], e.seq, e.ts, e.payload, e.from_id) for e in [e async for e in log.read(exp_id)])


async def gather_all(log: EventLog, exp_id: str, stores: list[str]) -> GatheredExperiment | None:
    """Gather an experiment from stores, those that have it."""
    done = [each async for each in gather(log, stores) if isinstance(each, GatheredExperiment)]
    return next((each for each in done if each.exp_id == exp_id), None)


@WITH_STORE
@given(recorders, steps, st.sampled_from([1, 3, 5000]))
async def test_any_way_of_gathering_gives_the_same(
    log: EventLog, stores: Stores, parts: list[EventLog], recorded: Any, steps: Any, flush: int
) -> None:
    exp_id = uuid4().hex
    urls = stores.made[-STORES:]
    holding = sorted({at for at, _ in recorded})
    made = {at: await parts[at].create_experiment(exp_id) for at in holding}
    for number, (at, times) in enumerate(recorded):
        writer = await parts[at].register(made[at], role="messager", row={"started_at": NOW})
        for part in times:
            same = [NewEvent("sent", NOW + ts, f"c{ts % 3}", b"%d" % ts, number % 2) for ts in part]
            await parts[at].append(writer, same)
        await parts[at].touch(writer, ended_at=NOW + 60, heartbeat_at=NOW + 60)
    for at, of in made.items():
        await close(parts[at], of)
    pairs = [row for at in holding for row in await parts[at].recorders(made[at])]
    expected = sorted([each for at in holding for each in await events(parts[at], exp_id)])
    with mock.patch.object(chain_loader, "FLUSH_EVENTS", flush):
        for order, count, limit in steps:
            with commits_limited(log, limit), contextlib.suppress(Killed):
                await gather_all(log, exp_id, [urls[at] for at in order[:count]])
        while (done := await gather_all(log, exp_id, urls)) is None:
            pass  # on a busy machine, a store may not have answered in time
    of = await log.experiment(exp_id)
    assert done.head == head_of(pairs) == head_of(await log.recorders(of))
    assert await events(log, exp_id) == expected
    assert (await verify(log, of)).problems == []
    assert (of.status, of.recorders) == ("closed", len(recorded))
    for at in range(STORES):  # earlier examples would be gathered with the next ones
        for each in await parts[at].experiments():
            await remove(parts[at], each)
