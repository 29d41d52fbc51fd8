"""The walk of a chain reads every event once, whatever the sizes of batches, pages and payloads are."""

from __future__ import annotations

import pytest

from messager_store import EventLog
from messager_store.log import chain_walk
from messager_store.maintenance.verify import verify
from tests.support import sql
from tests.support.logs import sent

SIZES = (1, 9, 1, 1, 23, 2, 2, 2, 40, 5)
"""Events of the batches."""


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PAGE", 8), ("BATCHES", 3), ("MAX_FETCHED", 100), ("HELD", 500), ("LOOKUP", 3)):
        monkeypatch.setattr(chain_walk, name, value)


async def batches(log: EventLog) -> None:
    of = await log.create_experiment("e1")
    for role in ("tap", "messager"):
        writer = await log.register(of, role=role)
        ts = 0
        for size in SIZES:
            events = []
            for _ in range(size):
                ts += 1
                payload = b"x" * (ts * 4000 if ts % 5 == 0 else ts)
                events.append(sent(ts, payload, f"c{ts % 7}", from_id=ts, to_id=ts // 2, messager=f"m{ts % 3}"))
            await log.append(writer, events)
        await log.touch(writer, ended_at=1)


async def test_every_event_is_read_and_found(log: EventLog, store: str) -> None:
    await batches(log)
    of = await log.experiment("e1")
    verdict = await verify(log, of)
    assert (verdict.problems, verdict.events, verdict.batches) == ([], 2 * sum(SIZES), 2 * len(SIZES))
    for seq in (1, 10, 11, 35, sum(SIZES)):
        here = f"id & 1099511627775 = {seq} AND id >> 40 = 1 RETURNING 1"
        sql(store, f"UPDATE event SET attributes = '{{\"r\":7}}' WHERE {here}")
        problems = (await verify(log, of)).problems
        assert any(f"the event of seq {seq} was changed" in problem for problem in problems)
        sql(store, f"UPDATE event SET attributes = NULL WHERE {here}")
    sql(store, "DELETE FROM event WHERE id & 1099511627775 IN (14, 15) AND id >> 40 = 1 RETURNING 1")
    assert any("2 events are missing, the first is seq 14" in each for each in (await verify(log, of)).problems)


async def test_batches_that_overlap_are_read_each(log: EventLog, store: str) -> None:
    await batches(log)
    of = await log.experiment("e1")
    sql(store, "UPDATE batch SET count = 11 WHERE first_seq = 2 AND recorder_id = 1 RETURNING 1")
    problems = (await verify(log, of)).problems
    assert any("11 events" in each or "for 11 events" in each for each in problems)
    assert any("the batch after seq 12 starts at 11" in each for each in problems)


async def test_a_batch_that_begins_before_what_was_read_ahead_is_read_again(log: EventLog, store: str) -> None:
    await batches(log)
    sql(store, "UPDATE batch SET count = 80 WHERE first_seq = 2 AND recorder_id = 1 RETURNING 1")  # several pages
    problems = (await verify(log, await log.experiment("e1"))).problems
    assert any("the batch after seq 81 starts at 11" in each for each in problems)
    assert not [each for each in problems if "missing" in each or "batch at seq 13" in each]


async def test_names_of_another_kind_are_found_on_any_page(log: EventLog, store: str) -> None:
    await batches(log)
    of = await log.experiment("e1")
    sql(
        store,
        "UPDATE event SET from_id = (SELECT min(channel_id) FROM event) "
        f"WHERE id & 1099511627775 = {sum(SIZES)} AND id >> 40 = 1 RETURNING 1",
    )
    problems = (await verify(log, of)).problems
    assert any(f"the event of seq {sum(SIZES)} has names of another kind" in problem for problem in problems)
