"""The SQL views: names, times and content."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from messager import channels
from messager_store import EventLog, NewEvent
from messager_store.json_text import is_no_text
from messager_store.recording.closing import close
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS, sql
from tests.support.logs import experiment, filled, sent


async def test_the_views_show_names_times_and_content(log: EventLog, store: str) -> None:
    nested = b'{"from": 3, "content": "{\\"content\\": \\"h\\u00e9\\"}"}'
    events = [
        NewEvent(
            "sent", 1_700_000_000_000_000_001, "exps:e1:agents:4:agent-chat", nested, 3, "4", messager="m1", arrival=7
        ),
        NewEvent("received", 1_700_000_000_500_000_000, "exps:e1:agents:4:agent-chat", nested, origin=("u1", 5)),
        NewEvent("received", 5, "listened:only", b"not json", 2**70),
        NewEvent("blocked", -1, "exps:e1:agents:5:agent-chat", b'"text"'),
        NewEvent("mark", 7, None, b"", meta={"name": "tick", "fields": {}}),
    ]
    await close(log, await filled(log, events), force=True)
    async with log.database.reading() as connection:
        rows = (await connection.exec_driver_sql("SELECT * FROM event_view ORDER BY seq")).mappings().all()
    assert rows[0]["time"] == "2023-11-14T22:13:20.000000001Z"
    assert rows[3]["time"] == "1969-12-31T23:59:59.999999999Z"
    assert [row["kind"] for row in rows] == [entry.kind for entry in events]
    assert (rows[0]["from_id"], rows[0]["to_id"]) == (3, "4")
    assert [(row["messager"], row["arrival"], row["origin"]) for row in rows] == [
        ("m1", 7, None),
        (None, None, "u1:5"),
        *[(None, None, None)] * 3,
    ]
    assert int(rows[2]["from_id"]) == 2**70
    assert rows[0]["cursor"] == "1700000000000000001:1:1"


async def test_the_views_work_on_every_hostile_value(log: EventLog, store: str) -> None:
    hostile = [
        sent(number, payload, channels.decode(HOSTILE_CHANNELS[number % len(HOSTILE_CHANNELS)]), from_id=agent)
        for number, (payload, agent) in enumerate(
            (payload, agent) for payload in HOSTILE_PAYLOADS for agent in [*HOSTILE_IDS, float("nan"), [1]]
        )
    ]
    await filled(log, hostile)
    assert len(sql(store, "SELECT * FROM event_view")) == len(hostile)
    shown = {row[0] for row in sql(store, "SELECT DISTINCT channel FROM event_view")}
    assert "hex:FFFE80" in shown and "with space" in shown


def test_what_no_database_can_decode_is_known() -> None:
    for payload, no_text in [
        (b"\xff", True),
        (b'"\\ud800"', True),
        (b'"\\udc00 alone"', True),
        (b'"\\ud83d\\ude00"', False),
        (b'"{\\"content\\": \\"\\\\ud83d\\\\ude00\\"}"', False),
        ("\U0001f600".encode(), False),
        (b"", False),
    ]:
        assert is_no_text(payload) is no_text


def rows_looked_at(plan: dict[str, Any]) -> float:
    """Return the number of rows that a plan of PostgreSQL has read."""
    passed_over = sum(value for key, value in plan.items() if key.startswith("Rows Removed by"))
    mine = (plan["Actual Rows"] + passed_over) * plan["Actual Loops"]
    return mine + sum(rows_looked_at(below) for below in plan.get("Plans", ()))


async def test_a_query_over_the_views_looks_at_each_row_once(log: EventLog, store: str) -> None:
    """It was quadratic once. Counted in steps of SQLite's virtual machine and in rows of PostgreSQL."""

    def steps(exp_id: str) -> float:
        query = f"SELECT count(*), max(time) FROM event_view WHERE exp_id = '{exp_id}' AND from_id IS NOT NULL"
        if "://" in store:
            [(plan,)] = sql(store, "ANALYZE", f"EXPLAIN (ANALYZE, FORMAT JSON) {query}")
            return rows_looked_at(json.loads(plan)[0]["Plan"])
        return steps_of_sqlite(store, query)

    found = []
    for size in (500, 2000):
        events = [sent(at, b"%d" % at, f"c{at % 7}", from_id=at % 5) for at in range(size)]
        received = [entry._replace(kind="received", ts=entry.ts + 1) for entry in events]
        of = await filled(log, events + received, f"e{size}")
        await close(log, of, force=True)
        found.append(steps(f"e{size}"))
    assert found[1] < found[0] * 8  # with 2.5 to 4 times the rows in the store; quadratic would be 16 times


def blocks_read(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def effort(store: str, query: str) -> int:
    """Return what a query costs: steps of SQLite's virtual machine, or blocks that PostgreSQL reads."""
    if "://" in store:
        [(plan,)] = sql(store, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}")
        return blocks_read(json.loads(plan)[0]["Plan"])
    return steps_of_sqlite(store, query)


def steps_of_sqlite(store: str, query: str) -> int:
    """Return the steps that SQLite's virtual machine takes for a query."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connection = sqlite3.connect(store)
    connection.set_progress_handler(count, 1)
    connection.execute(query).fetchall()
    connection.close()
    return counted


QUERIES = [
    "SELECT from_id, count(*) FROM event_view WHERE exp_id = 'small' AND kind = 'sent' GROUP BY from_id",
    "SELECT * FROM event_view WHERE experiment_id = 1 ORDER BY ts LIMIT 5",
    "SELECT time, meta FROM event_view WHERE exp_id = 'small' AND kind = 'mark'",
]


async def talk(log: EventLog, exp_id: str, messages: int) -> None:
    of = await experiment(log, exp_id)
    speaker, listener = [await log.register(of, role=role) for role in ("messager", "tap")]
    for at in range(0, messages, 2000):
        said = [sent(number, b"%d" % number, f"c{number % 7}", from_id=3) for number in range(at, at + 2000)]
        said = said[: messages - at]
        await log.append(speaker, said)
        await log.append(listener, [entry._replace(kind="received", ts=entry.ts + 1) for entry in said])
    await log.append(speaker, [NewEvent("failed", 9, "c2", b"2", cause=(1, 3))])


async def test_a_query_for_a_small_experiment_does_not_read_those_of_others(log: EventLog, store: str) -> None:
    await talk(log, "small", 100)
    alone = [await effort(store, query) for query in QUERIES]
    await talk(log, "other", 10_000)
    if "://" in store:
        sql(store, "ANALYZE")  # as autovacuum does
    beside = [await effort(store, query) for query in QUERIES]
    for query, before, after in zip(QUERIES, alone, beside, strict=True):
        if "://" in store:  # an index costs 2 blocks for each row, a table of one page 1 block for all
            assert after < 20 * 100, query
        else:
            assert after <= before * 1.1 + 100, query


async def test_marks_and_gaps_have_no_channel(log: EventLog, store: str) -> None:
    await filled(log, [sent(1), NewEvent("mark", 2, None, b"", meta={"name": "m"}), NewEvent("gap", 3, None, b"")])
    assert sql(store, "SELECT channel FROM event_view ORDER BY ts") == [("c",), (None,), (None,)]


@pytest.mark.nightly
@pytest.mark.postgres
async def test_ids_are_shown_in_a_plan_that_the_server_may_run_in_parallel(log: EventLog, store: str) -> None:
    """The functions for ids handle errors, which a parallel plan refused."""
    await filled(log, [sent(number, from_id=number) for number in range(2000)])
    zero = (
        "parallel_setup_cost",
        "parallel_tuple_cost",
        "min_parallel_table_scan_size",
        "min_parallel_index_scan_size",
    )
    settings = [f"SET {name} = 0" for name in zero]
    assert sql(store, "ANALYZE", *settings, "SELECT count(from_id) FROM event_view WHERE kind = 'sent'") == [(2000,)]
