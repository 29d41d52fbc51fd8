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
from messager_store.recording.closing import close
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS, sql
from tests.support.logs import experiment, filled, sent


async def test_the_views_show_names_times_and_content(log: EventLog, store: str) -> None:
    nested = b'{"from": 3, "content": "{\\"content\\": \\"h\\u00e9\\"}"}'
    events = [
        NewEvent("sent", 1_700_000_000_000_000_001, "exps:e1:agents:4:agent-chat", nested, 3, "4"),
        NewEvent("received", 1_700_000_000_500_000_000, "exps:e1:agents:4:agent-chat", nested),
        NewEvent("received", 5, "listened:only", b"not json", 2**70),
        NewEvent("blocked", -1, "exps:e1:agents:5:agent-chat", b'"text"'),
        NewEvent("mark", 7, None, b"", meta={"name": "tick", "fields": {}}),
    ]
    await close(log, await filled(log, events), force=True)
    async with log.database.reading() as connection:
        rows = (await connection.exec_driver_sql("SELECT * FROM event_view ORDER BY seq")).mappings().all()
        messages = (await connection.exec_driver_sql("SELECT * FROM message ORDER BY ts")).mappings().all()
    assert rows[0]["time"] == "2023-11-14T22:13:20.000000001Z"
    assert rows[3]["time"] == "1969-12-31T23:59:59.999999999Z"
    assert [row["kind"] for row in rows] == [entry.kind for entry in events]
    assert (rows[0]["from_id"], rows[0]["to_id"], rows[0]["text"]) == (3, "4", "h\u00e9")
    assert int(rows[2]["from_id"]) == 2**70
    assert (rows[2]["text"], rows[3]["text"]) == ("not json", "text")
    assert rows[0]["cursor"] == "1700000000000000001:1:1"
    # one row a message: a sending where there is one, else one reception
    assert [(row["channel"], row["kind"]) for row in messages] == [
        ("listened:only", "received"),
        ("exps:e1:agents:4:agent-chat", "sent"),
    ]
    assert messages[1]["received_at"] == events[1].ts


async def test_the_views_work_on_every_hostile_value(log: EventLog, store: str) -> None:
    hostile = [
        sent(number, payload, channels.decode(HOSTILE_CHANNELS[number % len(HOSTILE_CHANNELS)]), from_id=agent)
        for number, (payload, agent) in enumerate(
            (payload, agent) for payload in HOSTILE_PAYLOADS for agent in [*HOSTILE_IDS, float("nan"), [1]]
        )
    ]
    await filled(log, hostile)
    for view in ("event_view", "message"):
        assert len(sql(store, f"SELECT * FROM {view}")) == len(hostile)
    shown = {row[0] for row in sql(store, "SELECT DISTINCT channel FROM event_view")}
    assert "hex:FFFE80" in shown and "with space" in shown


SHOWN: dict[bytes, str | None] = {
    b"": "",
    b"plain": "plain",
    b"\xff": None,
    b'"\\ud800"': None,
    b'"\\uDFFF"': None,
    b'"\\uD83d\\uDe00"': "\U0001f600",
    b'"\\uD83d\\ude00 \\ud83D"': None,
    b'"quoted"': "quoted",
    b'\n "quoted" ': "quoted",
    b'"quoted" not': '"quoted" not',
    b'"\\ud83d\\ude00 h\\u00e9 \\/"': "\U0001f600 h\u00e9 /",
    b'"{\\"content\\": 1}"': '{"content": 1}',
    **{
        json: json.decode() for json in (b"5", b"5.0", b"1e3", b"-0", b"12345678901234567890", b"true", b"null", b" 1 ")
    },
    **{
        json: json.decode()
        for json in (b"[1, 2]", b'["a"]', b"{}", b'{"a":  1}', b"NaN", b"{'content': 1}", b"[" * 3000)
    },
    b'{"content": "said"}': "said",
    b'{"content": ""}': "",
    b'{"text": "said", "a": 1}': "said",
    b'{"content": null, "text": "said"}': "said",
    b'{"content": "\\"said\\""}': '"said"',
    b'{"content": "[1"}': "[1",
    b'{"content": "{\\"content\\": \\"inside\\"}"}': "inside",
    b'{"content": "{\\"text\\": \\"inside\\"}"}': "inside",
    b'{"content": "{\\"b\\":  1}"}': '{"b":  1}',
    b'{"content": [{"text": "one"}, {"url": "x"}, {"text": "two"}]}': "one\ntwo",
    **{
        json: json.decode()
        for json in (
            b'{"content": 5}',
            b'{"content": 1.50}',
            b'{"content": 1e3}',
            b'{"content": 12345678901234567890}',
            b'{"content": true}',
            b'{"content": [1, 2]}',
            b'{"content": []}',
            b'{"content": {"content": "x"}}',
            b'{"text": 5}',
        )
    },
    b"nul \x00": "hex:6E756C2000",
    b'"nul \\u0000"': '"nul \\u0000"',
    b'{"content": "nul \\u0000"}': '{"content": "nul \\u0000"}',
    b'{"content": "{\\"content\\": \\"\\\\u0000\\"}"}': '{"content": "{\\"content\\": \\"\\\\u0000\\"}"}',
    b'{"content": "one \x01"}': '{"content": "one \x01"}',
}
"""Payloads, and what every database shows as their text: what they say, where that is text, else all of it."""


async def test_what_a_payload_says_is_the_same_text_on_every_database(log: EventLog, store: str) -> None:
    await filled(log, [sent(at, payload) for at, payload in enumerate(SHOWN)])
    shown = sql(store, "SELECT payload, text FROM event_view ORDER BY ts")
    assert {bytes(payload): text for payload, text in shown} == SHOWN


@pytest.mark.parametrize(
    ("payload", "no_text"),
    [
        (b"\xff", True),
        (b'"\\ud800"', True),
        (b'"\\udc00 alone"', True),
        (b'"\\ud83d\\ude00"', False),
        (b'"{\\"content\\": \\"\\\\ud83d\\\\ude00\\"}"', False),
        ("\U0001f600".encode(), False),
        (b"", False),
    ],
)
def test_what_no_database_can_decode_is_known(payload: bytes, no_text: bool) -> None:
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
    await close(log, of, force=True)
    rows = sql(store, "SELECT ts, received_at FROM message ORDER BY ts")
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
    await close(log, of, force=True)
    assert sql(store, "SELECT ts, received_at FROM message ORDER BY ts") == [
        (ts, heard) for ts, heard in zip((10, 20, 30, 40), expected, strict=True)
    ]


async def test_what_was_sent_before_the_end_of_a_gap_was_not_heard_behind_it(log: EventLog, store: str) -> None:
    of = await experiment(log)
    speaker, listener = [await log.register(of, role="messager") for _ in range(2)]
    await log.append(speaker, [sent(ts, b"same") for ts in (10, 20, 30, 40)])
    heard = [NewEvent("received", ts, "c", b"same") for ts in (11, 31, 42)]
    gap = NewEvent("gap", 25, None, b"", meta={"reason": "the connection was lost", "since": 15, "until": 25})
    await log.append(listener, [heard[0], gap, *heard[1:]])
    await close(log, of, force=True)
    rows = sql(store, "SELECT ts, received_at FROM message ORDER BY ts")
    assert rows == [(10, 11), (20, None), (30, 31), (40, 42)]


def rows_looked_at(plan: dict[str, Any]) -> float:
    """Return the number of rows that a plan of PostgreSQL has read."""
    passed_over = sum(value for key, value in plan.items() if key.startswith("Rows Removed by"))
    mine = (plan["Actual Rows"] + passed_over) * plan["Actual Loops"]
    return mine + sum(rows_looked_at(below) for below in plan.get("Plans", ()))


async def test_a_query_over_the_views_looks_at_each_row_once(log: EventLog, store: str) -> None:
    """It was quadratic once. Counted in steps of SQLite's virtual machine and in rows of PostgreSQL."""

    def steps(exp_id: str) -> float:
        query = f"SELECT count(*), max(received_at) FROM message WHERE exp_id = '{exp_id}' AND from_id IS NOT NULL"
        if "://" in store:
            [(plan,)] = sql(store, "ANALYZE", f"EXPLAIN (ANALYZE, FORMAT JSON) {query}")
            return rows_looked_at(json.loads(plan)[0]["Plan"])
        counted = 0

        def count() -> int:
            nonlocal counted
            counted += 1
            return 0

        connection = sqlite3.connect(store)
        connection.set_progress_handler(count, 100)
        connection.execute(query).fetchall()
        connection.close()
        return counted

    found = []
    for size in (500, 2000):
        events = [sent(at, b"%d" % at, f"c{at % 7}", from_id=at % 5) for at in range(size)]
        received = [entry._replace(kind="received", ts=entry.ts + 1) for entry in events]
        of = await filled(log, events + received, f"e{size}")
        await close(log, of, force=True)
        found.append(steps(f"e{size}"))
    assert found[1] < found[0] * 8  # with 2.5 to 4 times the rows in the store; quadratic would be 16 times


async def test_an_import_is_indexed_and_closing_again_completes_what_a_kill_left_out(
    log: EventLog, store: str, tmp_path: Path
) -> None:
    lines = [{"ts": 1, "channel": "c", "payload": "x"}, {"ts": 2, "kind": "received", "channel": "c", "payload": "x"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    of = await import_jsonl(log, tmp_path / "a.jsonl", "e1")
    tables = ("delivery", "said", "activity", "indexed_recorder", "indexed_experiment")
    for table in tables:
        assert sql(store, f"DELETE FROM {table} RETURNING 1")
    for _ in range(2):
        await close(log, of)
    assert sql(store, "SELECT received_at FROM message") == [(2,)]


async def test_marks_and_gaps_have_no_channel(log: EventLog, store: str) -> None:
    await filled(log, [sent(1), NewEvent("mark", 2, None, b"", meta={"name": "m"}), NewEvent("gap", 3, None, b"")])
    assert sql(store, "SELECT channel FROM event_view ORDER BY ts") == [("c",), (None,), (None,)]
