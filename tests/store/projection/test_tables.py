"""A table of events has what the log has, value by value, on both databases."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from messager import channels
from messager_store import Event, EventLog, Experiment, NewEvent, Selection
from messager_store.db.codes import FROM_DERIVED, TO_DERIVED
from messager_store.errors import DamagedStore
from messager_store.log.messages import message_pages
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.projection import tables, update
from messager_store.projection.narrowing import selected_pages
from messager_store.projection.tables import columns, table
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS, ROOT, sql
from tests.support.logs import filled, listed, sent

BEGAN = 1_700_000_000_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EDGES = (-(2**63), -(2**63) + 1, -1001, -1000, -999, -1, 0, 1, 999, 1000, 2**63 - 1)
IDS = [*HOSTILE_IDS, 1.5, [1, "a"], {"k": "\ud800"}, False, 10**400]


@pytest.fixture(autouse=True, params=["tail", "parts"])
def _parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that are in the tail of the projection, and in several parts and a tail."""
    if request.param == "parts":
        monkeypatch.setattr(update, "PAGE", 5)
        monkeypatch.setattr(update, "PART", 12)
        monkeypatch.setattr(update, "TAIL", 4)


async def hostile(log: EventLog) -> Experiment:
    """Return an experiment with every odd value, by two recorders, and marks of both kinds."""
    of = await log.create_experiment("e1")
    first, second = await log.register(of, role="messager"), await log.register(of, role="messager")
    dice = random.Random(17)
    names = [channels.decode(name) for name in HOSTILE_CHANNELS]
    events: list[NewEvent] = []
    for at in range(60):
        payload = HOSTILE_PAYLOADS[at % len(HOSTILE_PAYLOADS)]
        kind = dice.choice(["sent", "sent", "received", "blocked", "failed"])
        sender, recipient = dice.choice(IDS), dice.choice(IDS)
        ts = EDGES[at] if at < len(EDGES) else BEGAN + dice.randrange(50)
        more: dict[str, Any] = {
            "flags": dice.choice([0, FROM_DERIVED, TO_DERIVED, FROM_DERIVED | TO_DERIVED]),
            "msg_id": dice.choice([None, "", "a\x00b\x01c", "m"]),
            "duration_ns": dice.choice([None, 0, 2**62]),
            "receivers": dice.choice([None, 0, 1, 2**31 - 1]),
            "meta": dice.choice([None, {"outcome": "un\x00known"}, {"\ud800": 2**80}]),
            "messager": dice.choice([None, "m\x001", "m2"]),
            "arrival": dice.choice([None, 0, 7, 2**62]),
            "cause": dice.choice([None, (1, 3), (2, 2**40 - 1)]) if kind != "failed" else None,
        }
        events.append(NewEvent(kind, ts, names[at % len(names)], payload, sender, recipient, **more))
    for at, name in enumerate(["day 1", "messager.subscribed", "d\ud800ay\x00", "", "day 1"]):
        meta = {"name": name, "fields": {"a": 1}}
        events.append(NewEvent("mark", BEGAN + at * 10, None, b"", meta=meta, arrival=at))
    events.append(NewEvent("gap", BEGAN + 20, None, b"", meta={"reason": "x", "since": 1, "until": 2}))
    await log.append(first, events[::2])
    await log.append(second, events[1::2])
    for writer in (first, second):
        await log.touch(writer, ended_at=1)
    return of


def id_row(agent: Any) -> tuple[str | None, str | None]:
    """Return an id as text, and its type."""
    if agent is None:
        return None, None
    if isinstance(agent, str):
        return (json.dumps(agent), "json") if "\ud800" in agent else (agent, "string")
    types = {bool: "boolean", list: "array", dict: "object", int: "number", float: "number"}
    text = json.dumps(agent, ensure_ascii=False)
    return (json.dumps(agent) if "\ud800" in text else text), types[type(agent)]


def micros(ns: int | None) -> datetime | None:
    return None if ns is None else EPOCH + timedelta(microseconds=ns // 1000)


def name_row(name: str | None) -> str | None:
    if name is None:
        return None
    wire = channels.encode(name)
    return f"hex:{wire.hex().upper()}" if wire.decode(errors="ignore").encode() != wire else name


def expected(events: list[Event], selected: list[Event]) -> list[dict[str, Any]]:
    """Return the rows of the selected ones of all events, without receptions."""
    rows = []
    for entry in selected:
        sender, recipient = id_row(entry.from_id), id_row(entry.to_id)
        phase, times = None, dict[str, int]()
        for mark in events:
            name = (mark.meta or {}).get("name", "") if mark.kind == "mark" else None
            if name is not None and not name.startswith("messager.") and mark.cursor <= entry.cursor:
                times[name] = times.get(name, 0) + 1
                phase = name.replace("\ud800", "\\ud800") + (f"#{times[name]}" if times[name] > 1 else "")
        try:
            entry.payload.decode()
            text = None if entry.redacted else entry.text
        except UnicodeDecodeError:
            text = None
        heard = entry.arrival if entry.kind != "received" else None
        rows.append({
            "ts": entry.ts, "time": micros(entry.ts), "recorder": entry.recorder, "seq": entry.seq,
            "kind": entry.kind, "channel": name_row(entry.channel),
            "from_id": sender[0], "from_type": sender[1], "to_id": recipient[0], "to_type": recipient[1],
            "derived": entry.flags & 3, "msg_id": entry.msg_id, "text": text, "payload": entry.payload,
            "redacted": entry.redacted, "mark": phase, "messager": entry.messager, "heard": heard,
            "arrival": entry.arrival if entry.kind == "received" else None,
            "cause": None if entry.cause is None else "{}:{}".format(*entry.cause),
            "receivers": entry.receivers, "duration_ns": entry.duration_ns,
            "meta": None if entry.meta is None else entry.meta,
            "origin": None if entry.origin is None else "{}:{}".format(*entry.origin),
        })  # fmt: skip
    return rows


def found(of_table: Any, *without: str) -> list[dict[str, Any]]:
    """Return the rows of a table, with meta as values."""
    rows = of_table.drop_columns(["received_at", "copies", *without]).to_pylist()
    return [{**row, "meta": None if row["meta"] is None else json.loads(row["meta"])} for row in rows]


async def test_a_table_has_every_value_of_the_log(log: EventLog) -> None:
    of = await hostile(log)
    events = await listed(log.read(of))
    made = await table(log, of, events=True)
    assert made.schema == columns()
    assert found(made) == expected(events, events)


def test_the_page_on_analysis_describes_every_column() -> None:
    page = (ROOT / "docs" / "analysis.md").read_text().split("## Tables")[1]
    cells = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(columns().names)


def test_names_are_dictionaries_and_times_have_a_zone() -> None:
    types = {field.name: field.type for field in columns()}
    assert types["time"] == types["received_at"] == pa.timestamp("us", "UTC")
    for name in ("kind", "channel", "mark", "messager", "from_type", "to_type"):
        assert pa.types.is_dictionary(types[name])
    assert {types[name] for name in ("from_id", "to_id", "text", "cause")} == {pa.string()}
    assert (types["ts"], types["payload"]) == (pa.int64(), pa.binary())


async def test_redacted_events_have_no_text_and_are_no_messages(log: EventLog) -> None:
    of = await hostile(log)
    await redact(log, of, RedactionFilter(channels=["plain"]), who="me", why="test")
    events = await listed(log.read(of))
    assert any(entry.redacted for entry in events)
    assert found(await table(log, of, events=True)) == expected(events, events)
    assert not any((await table(log, of))["redacted"].to_pylist())


IN_SQL: list[dict[str, Any]] = [
    {"kinds": ["received", "mark"]},
    {"channels": ["*a*"], "exclude": ["plain"], "limit": 3},
    {"agents": [5, "\u65e5\u672c"]},
    {"from_ids": ["5", True], "to_ids": IDS[:8], "after": f"{BEGAN + 4}:1:999"},
    {"since": "mark:day 1", "until": BEGAN + 45},
    {"after": "mark:day 1#2"},
]
"""Selections that DuckDB knows."""
IN_PYTHON: list[dict[str, Any]] = [
    {"limit": 0},
    {"channels": "nowhere"},
    {"grep": "plain"},
    {"where": "content=plain"},
    {"last_per": "channel"},
    {"channels": ["plain"], "context": 1, "from_ids": IDS[1:6]},
]


async def test_a_table_has_what_the_selection_selects(log: EventLog) -> None:
    of = await hostile(log)
    events = await listed(log.read(of))
    messages = {(row["recorder"], row["seq"]) for row in (await table(log, of)).to_pylist()}
    for filters in IN_SQL + IN_PYTHON:
        pages = selected_pages(log, of, Selection(**filters))
        selected = [entry async for page in pages for entry in page]
        made = await table(log, of, Selection(**filters), events=True)
        assert found(made) == expected(events, selected), filters
        if not filters.keys() & {"limit", "last_per", "context"}:
            if "kinds" in filters:
                span = await Selection(**filters).span(log.database, of)
                found_there = message_pages(log, of, Selection(**filters), span)
                said = [entry async for page in found_there for entry in page]
            else:
                said = [entry for entry in selected if (entry.recorder, entry.seq) in messages]
            assert found(await table(log, of, Selection(**filters))) == expected(events, said), filters
    assert 0 < len(messages) < len(events)


async def test_receptions_are_counted_and_the_first_one_is_named(log: EventLog) -> None:
    of = await log.create_experiment("e1")
    speaker, *listeners = [await log.register(of, role="messager") for _ in range(3)]
    await log.append(speaker, [sent(BEGAN + at * 1000, b"%d" % at) for at in range(30)])
    times: dict[bytes, list[int]] = defaultdict(list)
    for number, listener in enumerate(listeners):
        events = [
            NewEvent("received", BEGAN + at * 1000 + 70 * (number + 1), "c", b"%d" % at)
            for at in range(30)
            if at % (number + 2)
        ]
        await log.append(listener, events)
        for entry in events:
            times[entry.payload].append(entry.ts)
    made = await table(log, of)
    assert made.num_rows == 30
    for row in made.to_pylist():
        arrived = times[row["payload"]]
        assert (row["copies"], row["received_at"]) == (len(arrived), micros(min(arrived, default=None)))
    every = await table(log, of, events=True, kinds="received")
    assert every["copies"].null_count == every.num_rows > 0
    assert every["received_at"].to_pylist() == every["time"].to_pylist()


async def test_large_payloads_come_whole_and_in_batches_of_their_own(log: EventLog) -> None:
    large = [bytes([at]) * size for at, size in enumerate((10, 5_000_000, 40_000, 10, 5_000_000, 33_000, 10))]
    of = await filled(log, [sent(at, payload) for at, payload in enumerate(large)])
    found = [batch async for batch in tables.batches(log, of)]
    assert [payload for batch in found for payload in batch["payload"].to_pylist()] == large
    assert max(batch["payload"].nbytes for batch in found) < 10_500_000


async def test_events_that_come_during_a_read_are_left_out(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    await log.append(writer, [sent(at, b"1") for at in range(30)])
    made = tables.batches(log, of, events=True)
    first = await anext(made)
    await log.append(writer, [sent(at, b"2") for at in range(40)])
    other = await log.register(of, role="messager")
    await log.append(other, [sent(at, b"3", "new") for at in range(40)])
    rest = [batch async for batch in made]
    payloads = [payload for batch in (first, *rest) for payload in batch["payload"].to_pylist()]
    assert payloads == [b"1"] * 30


async def test_forks_name_the_events_they_repeat(log: EventLog) -> None:
    of = await filled(log, [sent(1), sent(2)])
    fork = await log.create_experiment("e2", parent=of)
    uuid = (await log.recorders(of))[0].uuid
    writer = await log.register(fork, role="messager")
    await log.append(writer, [sent(1, origin=(uuid, 1)), sent(5)])
    assert (await table(log, fork))["origin"].to_pylist() == [f"{uuid}:1", None]


async def test_an_experiment_without_events_is_an_empty_table(log: EventLog) -> None:
    made = await table(log, await log.create_experiment("e1"))
    assert (made.num_rows, made.schema) == (0, columns())


async def test_a_name_that_is_missing_is_damage(log: EventLog, store: str) -> None:
    of = await filled(log, [sent(at) for at in range(9)])
    sql(store, "UPDATE event SET channel_id = 999 WHERE ts = 5")
    with pytest.raises(DamagedStore):
        await table(log, of)
