"""The SQL views: names, times and content."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from messager import channels
from messager_store import EventLog, NewEvent
from messager_store.formats.jsonl import import_jsonl
from messager_store.json_text import is_no_text
from messager_store.queries.index import index
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS, sql
from tests.support.logs import close_and_index, experiment, filled, sent

ARRIVALS = """
SELECT e.ts, (SELECT min(d.received_at) FROM delivery d WHERE d.sending_id = e.id)
FROM event e WHERE e.kind = 1 ORDER BY e.ts
"""


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
    await close_and_index(log, await filled(log, events), force=True)
    sql(store, "DELETE FROM said")
    sql(store, "INSERT INTO said (event_id, text) SELECT e.id, 'the text' FROM event e WHERE e.ts > 0")
    sql(store, "UPDATE said SET text = NULL WHERE event_id IN (SELECT id FROM event WHERE ts = 7)")
    async with log.database.reading() as connection:
        rows = (await connection.exec_driver_sql("SELECT * FROM event_view ORDER BY seq")).mappings().all()
    assert rows[0]["time"] == "2023-11-14T22:13:20.000000001Z"
    assert rows[3]["time"] == "1969-12-31T23:59:59.999999999Z"
    assert [row["kind"] for row in rows] == [entry.kind for entry in events]
    assert (rows[0]["from_id"], rows[0]["to_id"]) == (3, "4")
    assert [(row["text"], row["indexed"]) for row in rows] == [("the text", 1)] * 3 + [(None, 0), (None, 1)]
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


async def test_when_each_sending_was_first_received_is_known_once_the_experiment_is_closed(
    log: EventLog, store: str
) -> None:
    of = await experiment(log)
    speaker, first, second = [await log.register(of, role="messager") for _ in range(3)]
    minute = 60_000_000_000
    await log.append(
        speaker, [sent(ts, b"same") for ts in (10, 20, 30)] + [sent(40, b"unheard"), sent(2 * minute, b"same")]
    )
    heard = [NewEvent("received", ts, "c", b"same") for ts in (12, 22, 35)]
    await log.append(first, [*heard, NewEvent("received", 2 * minute + 9, "c", b"same")])
    await log.append(second, [NewEvent("received", ts, "c", b"same") for ts in (11, 25)])
    await close_and_index(log, of, force=True)
    rows = sql(store, ARRIVALS)
    assert rows == [(10, 11), (20, 22), (30, 35), (40, None), (2 * minute, 2 * minute + 9)]


@pytest.mark.parametrize(("began", "expected"), [(25, [None, None, 32, 43]), (15, [None, 22, 32, 43])])
async def test_a_listener_has_heard_what_was_sent_since_it_began(
    log: EventLog, store: str, began: int, expected: list[int | None]
) -> None:
    """A late reception was once assigned to the first of all messages with the same content."""
    of = await experiment(log)
    speaker = await log.register(of, role="messager")
    late = await log.register(of, role="messager")
    sql(store, f"UPDATE recorder SET started_at = {began} WHERE id = {late.id}")
    await log.append(speaker, [sent(ts, b"same") for ts in (10, 20, 30, 40)])
    await log.append(late, [NewEvent("received", ts, "c", b"same") for ts in (22, 32, 43) if ts > began])
    await close_and_index(log, of, force=True)
    assert sql(store, ARRIVALS) == [(ts, heard) for ts, heard in zip((10, 20, 30, 40), expected, strict=True)]


async def test_what_was_sent_before_the_end_of_a_gap_was_not_heard_behind_it(log: EventLog, store: str) -> None:
    of = await experiment(log)
    speaker, listener = [await log.register(of, role="messager") for _ in range(2)]
    await log.append(speaker, [sent(ts, b"same") for ts in (10, 20, 30, 40)])
    heard = [NewEvent("received", ts, "c", b"same") for ts in (11, 31, 42)]
    gap = NewEvent("gap", 25, None, b"", meta={"reason": "the connection was lost", "since": 15, "until": 25})
    await log.append(listener, [heard[0], gap, *heard[1:]])
    await close_and_index(log, of, force=True)
    rows = sql(store, ARRIVALS)
    assert rows == [(10, 11), (20, None), (30, 31), (40, 42)]


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
        await close_and_index(log, of, force=True)
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
    "SELECT time, text FROM event_view WHERE exp_id = 'small' AND kind = 'mark'",
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


async def test_an_import_is_indexed_on_request_and_closing_again_completes_what_a_kill_left_out(
    log: EventLog, store: str, tmp_path: Path
) -> None:
    lines = [{"ts": 1, "channel": "c", "payload": "x"}, {"ts": 2, "kind": "received", "channel": "c", "payload": "x"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    of = await import_jsonl(log, tmp_path / "a.jsonl", "e1")
    assert sql(store, "SELECT text, indexed FROM event_view WHERE kind = 'sent'") == [(None, 0)]
    await index(log, of)
    assert sql(store, "SELECT text, indexed FROM event_view WHERE kind = 'sent'") == [("x", 1)]
    tables = ("delivery", "said", "activity", "indexed_recorder", "indexed_experiment")
    for table in tables:
        assert sql(store, f"DELETE FROM {table} RETURNING 1")
    for _ in range(2):
        await close_and_index(log, of)
    assert sql(store, "SELECT received_at FROM delivery") == [(2,)]


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
