"""Counts: the groups of each dimension, and their order."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from messager_store import Counts, EventLog, Experiment, NewEvent, Selection, StoreError, count, redact
from messager_store.log.not_json import NotJson
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.queries.counting.timeline import Stretch
from tests.support import nightly_after
from tests.support.logs import filled, sent

SECOND, MINUTE = 1_000_000_000, 60_000_000_000
BEGAN = 28_333_333 * MINUTE


def told(seconds: float, from_id: Any = 1, to_id: Any = 2, payload: bytes = b"x", channel: str = "c") -> NewEvent:
    return sent(BEGAN + int(seconds * SECOND), payload, channel, from_id=from_id, to_id=to_id)


def marked(seconds: float, name: str) -> NewEvent:
    return NewEvent("mark", BEGAN + int(seconds * SECOND), None, b"", meta={"name": name})


def rows(counts: Counts) -> list[Any]:
    return [(*row.keys, row.messages) for row in counts]


async def society(log: EventLog) -> Experiment:
    """Create a speaker and a listener that hears everything twice, by two patterns."""
    of = await log.create_experiment("e1")
    speaker = await log.register(of, role="messager", row={"started_at": BEGAN})
    listener = await log.register(of, role="tap", patterns=["*", "[eo]*"], row={"started_at": BEGAN})
    messages = [told(at, at % 3, (at + 1) % 3, b"%d" % at, "odd" if at % 2 else "even") for at in range(120)]
    await log.append(speaker, messages)
    heard = [entry._replace(kind="received", ts=entry.ts + delay) for entry in messages for delay in (1, 2)]
    await log.append(listener, heard)
    for writer in (speaker, listener):
        await log.touch(writer, heartbeat_at=BEGAN + 200 * SECOND, ended_at=BEGAN + 200 * SECOND)
    return of


async def test_each_message_counts_once_and_each_event_if_these_are_asked_for(log: EventLog) -> None:
    of = await society(log)
    found = await count(log, of, "channel")
    assert rows(found) == [("even", 60), ("odd", 60)]
    assert (found.messages, found.payload_bytes, found.skipped, found.unit) == (120, 250, 0, "messages")
    assert rows(await count(log, of, ("kind", "channel"), events=True)) == [
        *(("received", channel, 120) for channel in ("even", "odd")),
        *(("sent", channel, 60) for channel in ("even", "odd")),
    ]


async def test_agents_of_different_types_are_different(log: EventLog) -> None:
    ids: list[Any] = [5, "5", 5.0, True, None, [5], "agent10", "agent2"]
    of = await filled(log, [told(at, who, None) for at, who in enumerate(ids)])
    found = await count(log, of, "from")
    keys = [key for key, _ in rows(found)]
    assert json.dumps(keys) == json.dumps([None, True, 5, 5.0, "5", "agent2", "agent10", [5]])
    assert [number for _, number in rows(found)] == [1] * 8


async def test_a_message_counts_for_both_of_its_agents_and_once_for_itself(log: EventLog) -> None:
    of = await filled(log, [told(0, "a", "b"), told(1, "b", "a"), told(2, "a", "a"), told(3, None, None)])
    found = await count(log, of, "agent")
    assert (rows(found), found.messages) == ([("a", 3), ("b", 2), (None, 1)], 4)


async def test_a_pair_counts_in_both_directions_and_a_part_of_a_channel_by_its_place(log: EventLog) -> None:
    talk = [("b", "a", "x:1:chat"), ("a", "b", "x/2/chat"), ("a", None, "x"), (5, "5", "y:1"), ("5", 5, "")]
    of = await filled(log, [told(at, who, whom, channel=channel) for at, (who, whom, channel) in enumerate(talk)])
    assert rows(await count(log, of, "pair")) == [(["5", 5], 2), (["a", "b"], 2), ([None, "a"], 1)]
    assert rows(await count(log, of, "channel[1]")) == [(None, 2), ("1", 2), ("2", 1)]
    assert rows(await count(log, of, ("channel[-1]", "channel[0]"), order="name")) == [
        ("", "", 1),
        ("1", "y", 1),
        ("chat", "x", 2),
        ("x", "x", 1),
    ]
    assert [row["pair"] for row in (await count(log, of, "pair")).records()] == ["5 - 5", "a - b", "- - a"]


async def test_derived_ids_count_as_given_ones(log: EventLog) -> None:
    of = await filled(log, [told(0, "a", "b"), told(1, "a", "b")._replace(flags=3)])
    assert rows(await count(log, of)) == [("a", "b", 2)]


async def test_phases_begin_at_marks_of_users(log: EventLog) -> None:
    marks = [marked(9, "step"), marked(19, "messager.subscribed"), marked(29, "step"), marked(39, "end")]
    of = await filled(log, [*(told(at, at >= 30) for at in range(5, 50, 5)), *marks])
    assert rows(await count(log, of, "mark")) == [(None, 1), ("step", 4), ("step#2", 2), ("end", 2)]
    late = Selection(since=BEGAN + 35 * SECOND)
    assert rows(await count(log, of, ("from", "mark"), late)) == [(True, "step#2", 1), (True, "end", 2)]


async def test_fields_of_payloads_are_counted_with_their_types_and_the_rest_is_told(log: EventLog) -> None:
    bodies: list[Any] = [{"price": 1}, {"price": "1"}, {"price": 1}, {"cost": 1}, {"a": '{"price": 1}'}]
    payloads = [*(json.dumps(body).encode() for body in bodies), b"no JSON", b"\xff", b"[" * 100_000]
    of = await filled(log, [told(at, payload=payload) for at, payload in enumerate(payloads)])
    found = await count(log, of, "$.price")
    assert (rows(found), found.messages, found.skipped) == ([(None, 2), (1, 2), ("1", 1)], 5, 3)
    assert rows(await count(log, of, ("$.a.price", "from"))) == [(None, 1, 4), (1, 1, 1)]


async def test_a_count_by_a_field_and_a_condition_on_it_agree_on_what_is_json(log: EventLog) -> None:
    body = '{"price": 3}'
    payloads = [*(body.encode(code) for code in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32")), b""]
    payloads += [b'{"price": 3, "x": "\xed\xa0\x80"}', b'{"price": 3, "x": "\\ud800"}', b"3"]
    of = await filled(log, [told(at, payload=payload) for at, payload in enumerate(payloads)])
    found, skipped = await count(log, of, "$.price"), NotJson()
    selected = await count(log, of, "channel", Selection(where="price=3").counting(skipped))
    assert rows(found) == [(None, 1), (3, selected.messages)]
    assert (selected.messages, found.skipped) == (2, skipped.count) == (2, 6)


async def test_rows_are_in_the_order_of_messages_or_bytes_or_names_and_times_in_theirs(log: EventLog) -> None:
    events = [told(0, "a10", 1, b"x" * 99), told(70, "a2", 1), told(71, "a2", 1), told(72, "b", 1, b"xx")]
    of = await filled(log, events)
    assert rows(await count(log, of, "from")) == [("a2", 2), ("a10", 1), ("b", 1)]
    assert rows(await count(log, of, "from", order="payload_bytes")) == [("a10", 1), ("a2", 2), ("b", 1)]
    named = await count(log, of, ("from", "to"), order="name")
    assert rows(named) == [("a2", 1, 2), ("a10", 1, 1), ("b", 1, 1)]
    assert [total.keys for total in named.totals()] == [("a2",), ("a10",), ("b",)]
    assert rows(await count(log, of, ("from", "minute"))) == [
        ("a10", BEGAN, 1),
        ("a2", BEGAN + MINUTE, 2),
        ("b", BEGAN + MINUTE, 1),
    ]


async def test_long_silences_divide_a_timeline(log: EventLog) -> None:
    of = await filled(log, [told(0), told(19), told(50), told(1000)])
    found = await count(log, of, "10s", max_gap="20s")
    second = [(part.start - BEGAN, part.end - BEGAN) for part in found.stretches]
    assert second == [(0, 20 * SECOND), (50 * SECOND, 60 * SECOND), (1000 * SECOND, 1010 * SECOND)]
    assert len((await count(log, of, "10s", max_gap=30 * SECOND)).stretches) == 2
    assert (await count(log, of, "10s")).stretches == (Stretch(BEGAN, BEGAN + 1010 * SECOND),)


async def test_nothing_selected_gives_no_rows(log: EventLog) -> None:
    of = await society(log)
    for by in ("from", "minute", ("mark", "$.price")):
        found = await count(log, of, by, Selection(from_ids="nobody"))
        assert (found.rows, found.messages, found.payload_bytes, found.stretches) == ((), 0, 0, ())
    assert not (await count(log, await log.create_experiment("empty"))).rows


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("sender", r"'sender'. Give channel, channel\[1\], from, to, kind, agent, pair, mark, minute, hour"),
        ("field", "'field'. Give"),
        ("0s", "'0s'. Give"),
        ((), "cannot count by nothing. Give one"),
        (("from", "to", "kind"), "by from, to, kind. Give one dimension or two different ones"),
        (("from", "from"), "two different ones"),
        (("1m", "hour"), "at most one of them a time"),
        ("$.a.*", "has a wildcard"),
        ("$.a[", "[$]"),
    ],
)
async def test_an_unknown_dimension_is_refused_with_the_choices(log: EventLog, by: Any, message: str) -> None:
    of = await filled(log, [told(0)])
    with pytest.raises(StoreError, match=message):
        await count(log, of, by)


async def test_a_gap_that_is_no_duration_is_refused(log: EventLog) -> None:
    of = await filled(log, [told(0)])
    with pytest.raises(StoreError, match="max_gap"):
        await count(log, of, "minute", max_gap="soon")


async def test_redacted_messages_do_not_count_but_redacted_events_do(log: EventLog) -> None:
    of = await society(log)
    before = await count(log, of, "channel", events=True)
    await redact(log, of, RedactionFilter(channels=("odd",)), who="me", why="asked to")
    assert rows(await count(log, of, "channel")) == [("even", 60)]
    after = await count(log, of, "channel", events=True)
    assert rows(after) == rows(before)
    assert after.payload_bytes < before.payload_bytes


@pytest.mark.parametrize(
    ("since", "until"), nightly_after(3, [(30, 90), (30, 900), (-900, 90), (59.5, 600), (-61, 119), (60, 120)])
)
async def test_parts_that_begin_or_end_within_a_minute_are_exact(log: EventLog, since: float, until: float) -> None:
    of = await society(log)
    part = Selection(since=BEGAN + int(since * SECOND), until=BEGAN + int(until * SECOND))
    inside = [at for at in range(120) if since <= at < until]
    found = await count(log, of, ("channel", "minute"), part)
    expected: Counter[Any] = Counter(("odd" if at % 2 else "even", BEGAN + at // 60 * MINUTE) for at in inside)
    assert {row.keys: row.messages for row in found} == expected
    assert (found.messages, found.payload_bytes) == (len(inside), sum(len(str(at)) for at in inside))


async def test_retracted_messages_do_not_count(log: EventLog) -> None:
    of = await log.create_experiment("e1")
    writer = await log.register(of, role="messager")
    failed = told(200)._replace(kind="failed", cause=(writer.ordinal, 2), meta={"outcome": "not_sent"})
    await log.append(writer, [told(0, "a"), told(1, "b", payload=b"xyz"), told(2, "b"), failed])
    found = await count(log, of, "from")
    assert (rows(found), found.messages, found.payload_bytes) == ([("a", 1), ("b", 1)], 2, 2)
    assert rows(await count(log, of, "kind", events=True)) == [("sent", 3), ("failed", 1)]


async def test_receptions_count_while_no_sender_was_recorded(log: EventLog) -> None:
    of = await log.create_experiment("e1")
    for role, start, end, events in (
        ("messager", 0, 100, [told(50, "a")]),
        ("tap", 0, 200, [told(at, "a")._replace(kind="received") for at in (50.1, 150, 151)]),
    ):
        writer = await log.register(of, role=role, row={"started_at": BEGAN + start * SECOND})
        await log.append(writer, events)
        await log.touch(writer, heartbeat_at=BEGAN + end * SECOND, ended_at=BEGAN + end * SECOND)
    assert rows(await count(log, of, ("kind", "minute"))) == [
        ("sent", BEGAN, 1),
        ("received", BEGAN + 2 * MINUTE, 2),
    ]
