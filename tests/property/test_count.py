"""Counting: SQL and a plain counter give the same numbers for any recording."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from messager_store import Event, EventLog, Experiment, NewEvent, Selection
from messager_store.db.codes import REDACTED
from messager_store.log.event import Cursor
from messager_store.projection.query import projected
from messager_store.projection.tables import table
from messager_store.queries.counting.count import Counts, count
from tests.support.examples import WITH_STORE

SECOND, MINUTE = 1_000_000_000, 60_000_000_000
BEGAN = 28_333_333 * MINUTE
"""A whole minute."""
AGENTS = st.sampled_from([None, 5, "5", 5.0, True, "", [1, "a"], {"b": 1, "a": None}, "ü"])
CHANNELS = st.sampled_from(["a", "b:1", "b:2", None])
PAYLOADS = st.sampled_from(
    [b"", b"plain", b'{"price": 1}', b'{"price": 1.0}', b'{"price": "1"}', b'{"a": 2}', b'{"price": [{"x": true}]}']
)
TIMES = st.integers(0, 300).map(lambda second: BEGAN + second * SECOND) | st.integers(0, 5).map(
    lambda minute: BEGAN + minute * MINUTE
)
KINDS = st.sampled_from(["sent", "sent", "received", "received", "blocked"])
CONTENTS = st.tuples(PAYLOADS, st.just(0)) | st.just((b"", REDACTED))
EVENTS = st.tuples(KINDS, TIMES, CHANNELS, CONTENTS, AGENTS, AGENTS).map(
    lambda given: NewEvent(*given[:3], given[3][0], *given[4:], flags=given[3][1])
)
SESSIONS = st.tuples(
    st.sampled_from(["messager", "tap"]),
    st.tuples(st.integers(0, 300), st.integers(0, 300)).map(sorted),
    st.lists(EVENTS, max_size=12),
    st.sets(st.integers(0, 12), max_size=2),
    st.lists(st.sampled_from(["one", "two", "messager.subscribed"]), max_size=2),
)
"""Role, seconds of its session, events, the seqs that it retracts, and the names of its marks."""
CURSORS = st.tuples(TIMES, st.integers(1, 3), st.integers(1, 9)).map(Cursor._make)
FILTERS: dict[str, st.SearchStrategy[Any]] = {
    "kinds": st.sets(st.sampled_from(["sent", "received", "blocked", "mark"]), min_size=1),
    "channels": st.sampled_from(["a", "b:*", "none"]),
    "exclude": st.sampled_from(["a", "b:1"]),
    "agents": st.lists(AGENTS, min_size=1, max_size=2),
    "from_ids": st.lists(AGENTS, min_size=1, max_size=3),
    "to_ids": st.lists(AGENTS, min_size=1, max_size=3),
    "since": TIMES | CURSORS,
    "until": TIMES | CURSORS,
}
SELECTIONS = st.lists(st.sampled_from(sorted(FILTERS)), max_size=2, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FILTERS[name] for name in names})
)
"""Few filters: with many, nothing is selected."""
TIMED = ["minute", "hour", "2m", "10s", "90s"]
OTHERS = ["channel", "from", "to", "kind", "agent", "mark", "$.price"]


async def recorded(log: EventLog, sessions: Any) -> Experiment:
    of = await log.create_experiment(uuid4().hex)
    for role, (start, end), events, retracted, marks in sessions:
        row = {"started_at": BEGAN + start * SECOND}
        writer = await log.register(of, role=role, row=row)
        last = BEGAN + end * SECOND
        more = [
            NewEvent("failed", last, "a", b"", cause=(writer.ordinal, seq), meta={"outcome": "not_sent"})
            for seq in retracted
            if 0 < seq <= len(events)
        ]
        more += [NewEvent("mark", last, None, b"", meta={"name": name}) for name in marks]
        await log.append(writer, [*events, *more])
        await log.touch(writer, ended_at=last, heartbeat_at=last)
    return of


async def read(log: EventLog, of: Experiment, selection: Selection, events: bool) -> list[Event]:
    if events:
        span = await selection.span(log.database, of)
        return [
            entry
            async for entry in log.read(of, since=span.start, until=span.end)
            if (await log.as_recorded(of, selection)).takes(entry)
        ]
    rows = (await table(log, of)).select(["recorder", "seq"]).to_pylist()
    messages = {(row["recorder"], row["seq"]) for row in rows}
    kinds = selection.kinds
    if kinds is not None and "received" in kinds and "sent" not in kinds:  # each message that was received, once
        async with projected(log, of, None) as here:
            received = here.rows(
                "SELECT message_id, recorder, seq FROM event "
                "WHERE kind = 'received' AND message_id IS NOT NULL AND NOT is_copy ORDER BY ts DESC, id DESC"
            )
        messages = set({message: (recorder, seq) for message, recorder, seq in received}.values())  # the first of each
    return [
        entry
        for entry in await read(log, of, selection, True)
        if not entry.redacted
        and ((entry.recorder, entry.seq) in messages or (kinds is not None and entry.kind not in ("sent", "received")))
    ]


async def expected(log: EventLog, of: Experiment, by: list[str], selection: Selection, events: bool) -> dict[Any, Any]:
    """Return [messages, bytes] by the JSON of the keys, computed event by event."""
    marks: list[tuple[Cursor, str]] = []
    async for entry in log.read(of, kinds="mark"):
        name = (entry.meta or {})["name"]
        if not name.startswith("messager."):
            marks.append((entry.cursor, name))
    numbers = [[each for _, each in marks[: at + 1]].count(name) for at, (_, name) in enumerate(marks)]
    labels = [name if number == 1 else f"{name}#{number}" for (_, name), number in zip(marks, numbers, strict=True)]

    def values(entry: Event, name: str) -> list[Any]:
        if name in ("channel", "kind"):
            return [getattr(entry, name)]
        if name in ("from", "to"):
            return [getattr(entry, f"{name}_id")]
        if name == "agent":
            both = {json.dumps(each): each for each in (entry.from_id, entry.to_id) if each is not None}
            return list(both.values()) or [None]
        if name == "mark":
            return [([None, *labels])[sum(at <= entry.cursor for at, _ in marks)]]
        if name == "$.price":
            return [json.loads(entry.payload).get("price")]
        length = {"minute": 60, "hour": 3600, "2m": 120, "10s": 10, "90s": 90}[name] * SECOND
        return [entry.ts // length * length]

    found: dict[str, list[int]] = {}
    for entry in await read(log, of, selection, events):
        try:
            cells = [values(entry, name) for name in by]
        except ValueError:
            continue
        for key in [[a] for a in cells[0]] if len(by) == 1 else [[a, b] for a in cells[0] for b in cells[1]]:
            sums = found.setdefault(json.dumps(key, sort_keys=True), [0, 0])
            sums[0] += 1
            sums[1] += len(entry.payload)
    return found


def as_dict(counts: Counts) -> dict[str, list[int]]:
    found = {json.dumps(list(row.keys), sort_keys=True): [row.messages, row.payload_bytes] for row in counts}
    assert len(found) == len(counts)
    return found


@settings(WITH_STORE, max_examples=3 * WITH_STORE.max_examples)
@given(
    st.lists(SESSIONS, min_size=1, max_size=3),
    SELECTIONS,
    st.sampled_from(TIMED).map(lambda name: [name])
    | st.permutations(OTHERS).map(lambda names: names[:2])
    | st.tuples(st.sampled_from(TIMED), st.sampled_from(OTHERS)).map(list),
    st.booleans(),
)
async def test_every_way_of_counting_gives_the_same(
    log: EventLog, sessions: Any, filters: dict[str, Any], by: list[str], events: bool
) -> None:
    of = await recorded(log, sessions)
    wanted = await expected(log, of, by, Selection(**filters), events)
    assert as_dict(await count(log, of, by, Selection(**filters), events=events)) == wanted
    in_one_pass = Selection(**filters, limit=10**9)
    assert as_dict(await count(log, of, by, in_one_pass, events=events)) == wanted
