"""Verify finds changes and reports their location."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import update

from messager_store import EventLog, Experiment, NewEvent
from messager_store.db.schema import recorder
from messager_store.experiments import seal
from messager_store.log.chain_counters import COUNTED
from messager_store.maintenance.verify import verify, verify_all
from tests.support import Refused, Stores, forgeries, sql
from tests.support.logs import sent


async def small_log(log: EventLog) -> Experiment:
    of = await log.create_experiment("e1", name="n", tags=["t"], meta={})
    for _ in range(2):
        writer = await log.register(of, role="messager")
        for part in range(3):
            await log.append(
                writer,
                [
                    sent(part * 10, b"payload", "c", from_id=1, to_id="b", msg_id="m", duration_ns=5, receivers=2),
                    NewEvent("received", part * 10 + 1, "d", b"other", flags=3, cause=(1, 1)),
                    NewEvent("mark", part * 10 + 2, None, b"", meta={"name": "tick"}),
                ],
            )
        await log.touch(writer, ended_at=1)
    return of


async def problems_after(log: EventLog, store: str, of: Experiment, *statements: str) -> list[str]:
    for statement in statements:
        assert sql(store, f"{statement} RETURNING 1"), statement
    return (await verify(log, of)).problems


Changed = Callable[[str], Awaitable[list[str] | None]]


@pytest.fixture
async def changed(stores: Stores) -> Changed:
    """Function that returns the problems of the small log after a change, or None if the database refuses it."""
    store = stores.fresh()
    async with EventLog.open(store) as log:
        of = await small_log(log)

    async def problems(change: str) -> list[str] | None:
        copy = stores.copy(store)
        if refused(copy, change):
            return None
        async with EventLog.open(copy) as log:
            return await problems_after(log, copy, of, change)

    return problems


WRONG_TYPES = (
    "UPDATE batch SET unacknowledged = 'x'",
    "UPDATE event SET to_id = ''",
    "UPDATE recorder SET last_seq = 'x'",
    "UPDATE experiment SET recorders = 'x'",
    "UPDATE name SET value = 2.5",
    "UPDATE event SET ts = 'abc'",
)
"""Changes that a server refuses: its columns hold values of one type, those of SQLite hold any."""


def refused(store: str, change: str) -> bool:
    """Return True if the database refuses the change, as it should for this column."""
    if "://" not in store or not change.startswith(WRONG_TYPES):
        return False
    with pytest.raises(Refused, match=r"type|syntax"):
        sql(store, change)
    return True


@pytest.mark.databases
async def test_a_log_that_nobody_touched_keeps_every_promise(log: EventLog) -> None:
    of = await small_log(log)
    verdict = await verify(log, of)
    assert (verdict.ok, verdict.events, verdict.batches, verdict.recorders) == (True, 18, 6, 2)
    assert (await verify(log, of, verdict.head)).ok
    assert "the head is" in (await verify(log, of, "0" * 64)).problems[0]
    assert [(v.exp_id, v.ok) async for v in verify_all(log)] == [("e1", True)]


CHANGES = {
    "ts": "ts + 1",
    "kind": "3",
    "channel_id": "channel_id + 1",
    "from_id": "to_id",
    "to_id": "from_id",
    "flags": "flags + 1",
    "messager_id": "from_id",
    "attributes": "replace(attributes, '5', '6')",
    "payload": "x'70'",
    "experiment_id": "99",
}


async def test_a_long_check_tells_how_far_it_is(log: EventLog) -> None:
    of = await log.create_experiment("long")
    for _ in range(2):
        writer = await log.register(of, role="tap")
        for _ in range(3):
            await log.append(writer, [sent(at) for at in range(2500)])
    told: list[tuple[int, int]] = []
    verdicts = [each async for each in verify_all(log, lambda done, total: told.append((done, total)))]
    assert [verdict.events for verdict in verdicts] == [15_000]
    assert told == [(done, 15_000) for done in (2500, 5000, 10_000, 12_500)]


async def test_one_changed_value_of_an_event_is_found_and_located(changed: Changed) -> None:
    for column, value in CHANGES.items():
        problems = await changed(f"UPDATE event SET {column} = {value} WHERE id = (2 << 40 | 4)") or []
        assert any("recorder 2" in problem and "seq 4" in problem for problem in problems), (column, problems)


async def test_a_value_of_the_wrong_type_is_found_too(changed: Changed) -> None:
    for value in ("NULL", "'text'", "1.5", "x'00'"):
        problems = await changed(f"UPDATE event SET attributes = {value} WHERE id = (1 << 40 | 1)")
        assert problems is None or any("seq 1" in problem for problem in problems), (value, problems)


ROWS = [
    ("DELETE FROM event WHERE id = (1 << 40 | 5)", "1 event is missing, the first is seq 5"),
    ("DELETE FROM event WHERE id = (1 << 40 | 9)", "1 event is missing, the first is seq 9"),
    ("DELETE FROM batch WHERE recorder_id = 1 AND first_seq = 4", "the batch after seq 3 starts at 7"),
    ("DELETE FROM batch WHERE recorder_id = 1 AND first_seq = 7", "its batches end at seq 6"),
    ("UPDATE batch SET digest = x'00' WHERE recorder_id = 1 AND first_seq = 4", "do not have the digest"),
    ("UPDATE batch SET chain_hash = x'00' WHERE recorder_id = 2 AND first_seq = 4", "does not continue the chain"),
    ("UPDATE batch SET checks = x'00' WHERE recorder_id = 1 AND first_seq = 4", "bytes of checks"),
    ("UPDATE batch SET count = 2 WHERE recorder_id = 1 AND first_seq = 1", "the batch after seq 2 starts at 4"),
    ("UPDATE batch SET min_ts = 1 WHERE recorder_id = 1 AND first_seq = 1", "times are not the ones"),
    ("UPDATE batch SET max_ts = 1 WHERE recorder_id = 1 AND first_seq = 1", "times are not the ones"),
    ("UPDATE recorder SET last_seq = 8 WHERE id = 1", "its row says 8"),
    ("UPDATE recorder SET head_hash = x'00' WHERE id = 1", "its head is not the hash"),
    ("UPDATE recorder SET uuid = 'x' WHERE id = 1", "does not continue the chain"),
    ("UPDATE recorder SET sent_count = 4 WHERE id = 1", "its row says kinds"),
    ("UPDATE recorder SET payload_bytes = 4 WHERE id = 1", "its row says payload_bytes 4"),
    ("UPDATE recorder SET first_ts = 4 WHERE id = 1", "its row says first_ts 4"),
    ("UPDATE recorder SET last_ts = 4 WHERE id = 1", "its row says last_ts 4"),
    ("UPDATE recorder SET worst_unacknowledged = 4 WHERE id = 1", "its row says worst_unacknowledged 4"),
    ("UPDATE batch SET committed_at = 5 WHERE recorder_id = 1 AND first_seq = 1", "does not continue the chain"),
    ("UPDATE batch SET unacknowledged = 5 WHERE recorder_id = 1 AND first_seq = 1", "does not continue the chain"),
    ("UPDATE batch SET unacknowledged = 'x' WHERE recorder_id = 1 AND first_seq = 1", "of the wrong type"),
    ("""UPDATE event SET attributes = '{"a":1}' WHERE id = (1 << 40 | 3)""", "seq 3 was changed"),
    ("UPDATE event SET messager_id = (SELECT min(id) FROM name)", "names of another kind"),
    ("UPDATE recorder SET ordinal = 7 WHERE id = 2", "numbered [1, 7]"),
    ("UPDATE recorder SET ended_at = NULL, pid = 4194305 WHERE id = 1", "ended uncleanly"),
    ("UPDATE name SET value = CAST('e' AS BLOB) WHERE value = CAST('d' AS BLOB)", "seq 2 was changed"),
    (
        "INSERT INTO event SELECT (1 << 40 | 10), experiment_id, ts, kind, channel_id, from_id, to_id, "
        "messager_id, flags, attributes, payload FROM event "
        "WHERE id = (1 << 40 | 9)",
        "1 event belongs to no batch, the first is seq 10",
    ),
    ("DELETE FROM recorder WHERE id = 2", "counts 2 recorders, there are 1"),
]


async def test_removed_moved_and_changed_rows_are_found(changed: Changed) -> None:
    for change, where in ROWS:
        problems = await changed(change)
        assert problems is None or any(where in problem for problem in problems), (change, problems)


SEALED = {
    "role": "'tap'",
    "patterns": "'[\"d\"]'",
    "meta": """'{"started_at":1}'""",
    "broker": "'redis://other'",
    "broker_offset": "5",
    "host": "'other'",
    "pid": "pid + 1",
    "boot_id": "'other'",
    "anchor_wall": "5",
    "anchor_monotonic": "5",
    "started_at": "started_at + 1",
    "heartbeat_at": "heartbeat_at + 1",
    "ended_at": "ended_at + 1",
    "complete_until": "5",
    "unclean": "1",
    "durability": "'strict'",
    "seal": "x'00'",
}
"""What the row of a recorder says beside what its events say."""


@pytest.mark.databases
async def test_a_changed_row_of_a_recorder_that_has_ended_is_found_and_named(changed: Changed) -> None:
    for column, value in SEALED.items():
        problems = await changed(f"UPDATE recorder SET {column} = {value} WHERE id = 2")
        assert problems == ["recorder 2: its row was changed: it does not have the seal of its end"], column
    assert {*SEALED} | {*COUNTED} | {"uuid"} == {*seal.SEALED, "seal"}


async def test_a_recorder_has_a_seal_when_it_has_an_end_and_only_then(changed: Changed) -> None:
    [open_again, *_] = await changed("UPDATE recorder SET ended_at = NULL WHERE id = 2") or []
    assert open_again == "recorder 2: its row was changed: it has a seal, but no end"
    [unsealed] = await changed("UPDATE recorder SET seal = NULL WHERE id = 2") or []
    assert unsealed == "recorder 2: its row was changed: it does not have the seal of its end"


async def test_a_row_that_was_changed_and_sealed_again_gives_another_head(log: EventLog) -> None:
    of = await small_log(log)
    head = (await verify(log, of)).head
    async with log.database.writing() as connection:
        await connection.execute(update(recorder).where(recorder.c.id == 2).values(started_at=1))
        await seal.seal_ended(connection, recorder.c.id == 2)
    assert (await verify(log, of)).ok
    [problem] = (await verify(log, of, head)).problems
    assert problem.endswith(f"not {head}")


async def test_two_events_that_changed_places_are_found(log: EventLog, store: str) -> None:
    of = await small_log(log)
    problems = await problems_after(
        log,
        store,
        of,
        "UPDATE event SET id = 1 WHERE id = (1 << 40 | 1)",
        "UPDATE event SET id = (1 << 40 | 1) WHERE id = (1 << 40 | 4)",
        "UPDATE event SET id = (1 << 40 | 4) WHERE id = 1",
    )
    assert [any(f"seq {seq} was changed" in problem for problem in problems) for seq in (1, 4)] == [True, True]


async def test_rows_that_belong_to_nothing_are_found(log: EventLog, store: str) -> None:
    await small_log(log)
    sql(store, "DELETE FROM recorder WHERE id = 2", "INSERT INTO tag VALUES (77, 'stray')")
    verdicts = [verdict async for verdict in verify_all(log)]
    assert verdicts[-1].exp_id == "(store)"
    assert any("table tag" in problem for problem in verdicts[-1].problems)
    assert any("table batch" in problem for problem in verdicts[-1].problems)


async def test_a_live_recorder_is_a_note_and_not_a_fault(log: EventLog) -> None:
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="tap")
    await log.append(writer, [sent(1)])
    verdict = await verify(log, of)
    assert verdict.ok and verdict.notes == ["recorder 1 is recording"]


async def test_many_problems_are_counted_and_not_all_named(log: EventLog, store: str) -> None:
    of = await log.create_experiment("e1")
    await log.append(await log.register(of, role="tap"), [sent(at) for at in range(500)])
    sql(store, """UPDATE event SET attributes = '{"r":9}'""")
    verdict: Any = await verify(log, of)
    assert len(verdict.problems) == 100 and verdict.more_problems > 300


DAMAGE = [
    ("UPDATE name SET what = 1 WHERE value = CAST('d' AS BLOB)", "names of another kind"),
    ("UPDATE name SET experiment_id = 99 WHERE value = CAST('d' AS BLOB)", "names of another kind or experiment"),
    ("UPDATE event SET channel_id = 0 WHERE id = (1 << 40 | 3)", "names of another kind or experiment, or of none"),
    ("UPDATE event SET to_id = '' WHERE id = (1 << 40 | 3)", "names of another kind or experiment, or of none"),
    ("UPDATE recorder SET last_seq = 'x' WHERE id = 1", "holds a value of the wrong type"),
    ("UPDATE recorder SET uuid = x'00' WHERE id = 1", "there is no head"),
    ("UPDATE recorder SET head_hash = 'x' WHERE id = 1", "its head is not the hash"),
    ("UPDATE recorder SET seal = 'x' WHERE id = 1", "there is no head"),
    ("UPDATE recorder SET id = 1 << 33 WHERE id = 1", "holds a value of the wrong type"),
    ("UPDATE experiment SET recorders = 'x'", "counts x recorders"),
    ("UPDATE name SET value = 2.5 WHERE value = CAST('d' AS BLOB)", "name 2 (2.5) was changed"),
    ("UPDATE name SET hash = x'00' WHERE value = CAST('d' AS BLOB)", "name 2 ('d') was changed"),
    ("UPDATE name SET text = 'x' WHERE value = CAST('d' AS BLOB)", "name 2 ('d') was changed"),
    ("UPDATE event SET ts = 'abc' WHERE id = (1 << 40 | 2)", "the event of seq 2 holds a value of the wrong type"),
    ("UPDATE batch SET count = 2000000000 WHERE recorder_id = 1 AND first_seq = 7", "are missing"),
    ("UPDATE experiment SET closed_at = 5", "its time of closing contradicts that"),
]


async def test_damaged_names_types_and_counts_are_found(changed: Changed, request: pytest.FixtureRequest) -> None:
    for change, where in DAMAGE:
        problems = await changed(change)
        if problems is None:
            continue
        if request.node.callspec.params["stores"] == "postgres" and where == "there is no head":
            assert problems  # a value of another type became one of the column's
        else:
            assert any(where in problem for problem in problems), (change, problems)


async def test_a_status_that_there_is_not_is_found(log: EventLog, store: str) -> None:
    await small_log(log)
    sql(store, "UPDATE experiment SET status = 'bogus'")
    verdicts = [verdict async for verdict in verify_all(log)]
    assert any("'bogus'" in problem for verdict in verdicts for problem in verdict.problems)


async def test_an_agent_whose_id_nobody_can_read_is_named(changed: Changed) -> None:
    for value in (b"{", b'"\xff"', b"[" * 200 + b"]" * 200):
        problems = await changed(f"UPDATE name SET value = x'{value.hex()}' WHERE what = 1 AND text = '1'") or []
        assert any("is not a readable agent id" in problem for problem in problems)


async def check_forgeries(stores: Stores, forged: dict[str, tuple[tuple[str, ...], str]]) -> None:
    store = stores.fresh()
    async with EventLog.open(store) as log:
        of = await small_log(log)
        await log.register(await log.create_experiment("e2"), role="messager")
        head = (await verify(log, of)).head
    for name, (statements, problem) in forged.items():
        copy = stores.copy(store)
        sql(copy, *statements)
        async with EventLog.open(copy) as log:
            problems = (await verify(log, of, head)).problems
        assert any(problem in each for each in problems), (name, problems)


@pytest.mark.databases
async def test_rows_that_readers_show_beside_the_chains_are_found(stores: Stores) -> None:
    await check_forgeries(stores, forgeries.ROWS)


@pytest.mark.sqlite
async def test_what_an_altered_file_shows_is_found(stores: Stores) -> None:
    await check_forgeries(stores, forgeries.OF_SQLITE)


@pytest.mark.postgres
async def test_what_an_altered_database_shows_is_found(stores: Stores) -> None:
    await check_forgeries(stores, forgeries.OF_POSTGRES)
