"""Selection of events by what was said, by fields of payloads, and by time around a point."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from messager_store import EventLog, Experiment, NewEvent
from messager_store.db.codes import REDACTED
from messager_store.errors import BadCursor, StoreError
from messager_store.log import last_of_each
from messager_store.log.not_json import NotJson
from messager_store.log.selection import Selection
from messager_store.projection.narrowing import selected_pages
from messager_store.projection.pages import found_pages
from messager_store.projection.selecting import Rows
from tests.support.logs import filled, listed, sent

S = 1_000_000_000
SAID = [
    "good morning",
    "who saw the FIRE?",
    "私は占い師だ",
    "うむ",
    "Ｆｉｒｅ!",
    "straße",
    "",
    "the fire is out",
    "bye",
]


def spoken(at: int, text: str, channel: str = "c", **more: Any) -> NewEvent:
    return sent(at * S, json.dumps({"content": text}).encode(), channel, **more)


@pytest.fixture
async def talk(log: EventLog) -> Experiment:
    return await filled(log, [spoken(at, text) for at, text in enumerate(SAID)])


async def found(log: EventLog, of: Experiment, **filters: Any) -> list[int]:
    return [entry.ts // S async for entry in log.read(of, **filters)]


async def test_what_was_said_is_found_in_any_script_case_and_width(log: EventLog, talk: Experiment) -> None:
    for filters, times in [
        ({"grep": "fire"}, [1, 4, 7]),
        ({"grep": "占い"}, [2]),
        ({"grep": "STRASSE"}, [5]),
        ({"grep": ["morning", "bye"]}, [0, 8]),
        ({"grep": "saw%the"}, []),
        ({"grep": "^(the|who)\\b", "regex": True}, [1, 7]),
        ({"grep": "\\S", "regex": True}, [0, 1, 2, 3, 4, 5, 7, 8]),
        ({"grep": "fire", "limit": 2}, [1, 4]),
        ({"grep": "fire", "limit": 0}, []),
        ({"grep": "fire", "since": "2s", "until": "7s"}, [4]),
    ]:
        assert await found(log, talk, **filters) == times


@pytest.mark.sqlite
async def test_none_selects_messages_without_a_sender_or_a_recipient(log: EventLog) -> None:
    pairs = [(1, 2), (None, 2), (1, None), (None, None)]
    events = [spoken(at, "", from_id=one, to_id=other) for at, (one, other) in enumerate(pairs)]
    of = await filled(log, [*events, NewEvent("mark", 9, None, b"", meta={"name": "m", "fields": {}})])
    for filters, wanted in (
        ({"from_ids": [None]}, [1, 3]),
        ({"from_ids": [None, 1], "to_ids": [None]}, [2, 3]),
        ({"agents": [None]}, [1, 2, 3]),
        ({"between": (1, [None])}, [2]),
    ):
        assert await found(log, of, **filters) == wanted
        assert [e.ts // S for e in await listed(log.read(of)) if Selection(**filters).takes(e)] == wanted


async def test_fields_of_payloads_are_compared_by_type(log: EventLog) -> None:
    payloads: list[dict[str, Any]] = [
        {"price": 3, "at": "2026-01-01", "items": []},
        {"price": 2, "at": "2026-01-03", "items": [{"name": "x"}, {"name": "Lamp"}]},
        {"price": True, "a=b": "x", "note": "<b>"},
        {"inner": json.dumps({"x": 1}), "note": ">>"},
        {"price": "3", "content": ""},
    ]
    of = await filled(log, [sent(at * S, json.dumps(value).encode()) for at, value in enumerate(payloads)])
    for condition, times in [
        ("price=3", [0, 4]),
        ('price="3"', [4]),
        ("price>2", [0]),
        ("price >= 2.5", [0]),
        ("price < 3", [1]),
        ("price!=3", [1, 2]),
        ("price=true", [2]),
        ("price=1", []),
        ("price=null", []),
        ("items.*.name ~ LAMP", [1]),
        ("items[1].name=Lamp", [1]),
        ("at > 2026-01-02", [1]),
        ('["a=b"]=x', [2]),
        ("inner.x=1", [3]),
        ("items=[]", [0]),
        ("content=", [4]),
        ("price == 3", [0, 4]),
        ("note=<b>", [2]),
        ("note=>>", [3]),
    ]:
        assert await found(log, of, where=condition) == times


@pytest.mark.sqlite
async def test_payloads_that_are_not_json_are_left_out_and_counted(log: EventLog) -> None:
    mark = NewEvent("mark", 3, None, b"", meta={"name": "price", "fields": {}})
    of = await filled(
        log, [sent(1, b'{"price": 3}'), sent(2, b"price=3"), mark, sent(4, b"\xff"), sent(5, b"[" * 99_999)]
    )
    selection, skipped = Selection(where="price=3"), NotJson()
    assert [entry.ts async for entry in log.read(of, selection.counting(skipped))] == [1]
    assert skipped.count == 3
    assert selection.not_json is None


NO_JSON = [("a", b'{"n": 1}'), ("b", b"x"), ("a", b"n=1"), ("b", b'{"n": 1}'), ("a", b"y"), ("b", b"n=1")]


async def test_a_payload_that_is_not_json_counts_once_in_a_read_and_anew_in_the_next(log: EventLog) -> None:
    messages = [sent(at * S, payload, channel, from_id=1) for at, (channel, payload) in enumerate(NO_JSON)]
    of = await filled(log, messages)
    for filters, number in [
        ({}, 4),
        ({"last_per": "channel"}, 4),
        ({"last_per": "agent"}, 4),
        ({"context": 1}, 4),
        ({"context": 1, "limit": 1}, 0),
        ({"limit": 1}, 0),
        ({"limit": 2}, 2),
        ({"channels": "a"}, 2),
        ({"grep": "n="}, 2),
    ]:
        selection = Selection(where="n=1", **filters)
        for _ in range(2):
            skipped = NotJson()
            async for _page in selected_pages(log, of, selection.counting(skipped)):
                pass
            assert skipped.count == number


async def test_a_payload_that_a_read_passes_over_twice_is_counted_once(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_of_each, "FEW", 1)  # read again, without the channels that are found
    talk = [("c", b"x"), ("b", b'{"n": 1}'), ("a", b'{"n": 1}'), ("a", b'{"n": 1}')]
    of = await filled(log, [sent(at, payload, channel) for at, (channel, payload) in enumerate(talk)])
    skipped = NotJson()
    chosen = Selection(where="n=1", last_per="channel").counting(skipped)
    assert [entry.ts async for entry in log.read(of, chosen)] == [1, 3]
    assert skipped.count == 1


async def test_a_reception_of_a_message_that_is_not_json_does_not_count_as_another_message(log: EventLog) -> None:
    of = await log.create_experiment("e1")
    for kind in ("sent", "received", "received"):
        writer = await log.register(of, role="messager", row={"started_at": 0})
        await log.append(writer, [NewEvent(kind, at, "c", b"x") for at in (1, 2)])
    for messages, number in ((True, 2), (False, 6)):
        skipped = NotJson()
        chosen = Selection(where="n=1").counting(skipped)
        found = found_pages(log, of, chosen, Rows.MESSAGES) if messages else selected_pages(log, of, chosen)
        assert [page async for page in found] == []
        assert skipped.count == number


async def test_the_same_position_in_two_experiments_is_two_payloads(log: EventLog) -> None:
    skipped = NotJson()
    chosen = Selection(where="n=1").counting(skipped)
    for exp_id in ("e1", "e2", "e1"):
        if exp_id not in {of.exp_id for of in await log.experiments()}:
            await filled(log, [sent(1, b"x")], exp_id)
        assert await listed(log.read(exp_id, chosen)) == []
    assert skipped.count == 2


def test_a_filter_that_cannot_be_understood_names_the_place() -> None:
    for filters, message in [
        ({"where": "price"}, "an operator (=, !=, <, <=, >, >=, ~) is missing at character 6"),
        ({"where": "=3"}, "a path is missing at character 1"),
        ({"where": "price >"}, "a number or a text must follow > at character 8"),
        ({"where": "price => 3"}, "=> at character 7 is no operator. Did you mean >=?"),
        ({"where": "price=<3"}, "=< at character 6 is no operator. Did you mean <=?"),
        ({"where": "content =~ lamp"}, "=~ at character 9 is no operator. Did you mean ~?"),
        ({"where": "price > true"}, "a number or a text must follow > at character 8"),
        ({"where": "a..b=3"}, "'a..b' is not a path, at character 2 ('..b')"),
        ({"text": "a[x]"}, "'a[x]' is not a path, at character 2 ('[x]')"),
        (
            {"grep": "a(b", "regex": True},
            "'a(b' is not a regular expression: missing ), unterminated subpattern at character 2",
        ),
        ({"grep": ""}, "there is nothing to search for"),
        ({"regex": True}, "regex is a way to read grep"),
        ({"between": "ab"}, "'ab' are not two agents"),
        ({"last_per": "hour"}, "'hour': give the last event per channel or per agent"),
        ({"context": -1}, "-1 is no number of events"),
        ({"last_per": "agent", "context": 1}, "has no context"),
    ]:
        with pytest.raises(StoreError) as raised:
            Selection(**filters)
        assert message in str(raised.value)
        assert "\n" not in str(raised.value)


@pytest.mark.sqlite
async def test_a_time_around_a_point_includes_both_ends(log: EventLog) -> None:
    mark = NewEvent("mark", 71 * S, None, b"", meta={"name": "m", "fields": {}})
    of = await filled(
        log, [*(spoken(at, "x") for at in (0, 70)), mark, *(spoken(at, "x") for at in (96, 100, 105, 130, 131))]
    )
    for filters, times in [
        ({"around": "100s+-5s"}, [96, 100, 105]),
        ({"around": "100s±4s"}, [96, 100]),
        ({"around": "100s"}, [70, 96, 100, 105, 130]),
        ({"around": "mark:m+-1s"}, [70]),
        ({"around": "100s+-5s", "since": "100s"}, [100, 105]),
        ({"around": "100s+-5s", "until": "105s"}, [96, 100]),
    ]:
        assert await found(log, of, kinds="sent", **filters) == times


@pytest.mark.sqlite
async def test_a_length_that_is_none_is_named(log: EventLog, talk: Experiment) -> None:
    with pytest.raises(BadCursor, match="'5x' is not a duration"):
        await found(log, talk, around="10s+-5x")


PEOPLE = [(0, "c", 1), (1, "d", 2), (2, "c", 2), (3, "c", None), (4, "e", "1"), (5, "d", 1)]


@pytest.mark.parametrize("messages", [False, True])
async def test_the_last_of_each_is_the_state_at_a_moment(log: EventLog, messages: bool) -> None:
    events = [
        spoken(at, f"say {channel}", channel, from_id=sender, to_id={1: 2, 2: 1, "1": 2}.get(sender))
        for at, channel, sender in PEOPLE
    ]
    of = await filled(log, events)
    for filters, times in [
        ({"last_per": "channel"}, [3, 4, 5]),
        ({"last_per": "agent"}, [2, 4, 5]),
        ({"last_per": "channel", "until": "4s"}, [1, 3]),
        ({"last_per": "agent", "channels": "c"}, [0, 2]),
        ({"last_per": "agent", "grep": "say c"}, [0, 2]),
        ({"last_per": "channel", "limit": 2}, [3, 4]),
        ({"between": (1, 2)}, [0, 1, 2, 5]),
        ({"between": ([1, "1"], 2)}, [0, 1, 2, 4, 5]),
    ]:
        chosen = Selection(**filters)
        pages = found_pages(log, of, chosen, Rows.MESSAGES) if messages else selected_pages(log, of, chosen)
        assert [entry.ts // S async for page in pages for entry in page] == times


async def test_the_text_is_read_at_the_path_that_is_given(log: EventLog) -> None:
    texts = b'{"line": "who?", "content": "no"}', b'{"content": "who?"}', b'{"line": [1e400, -0, {"a": 1, "a": 2}]}'
    of = await filled(log, [sent(at * S, text) for at, text in enumerate(texts, 1)])
    assert await found(log, of, grep="WHO", text="line") == [1]
    selection = Selection(text="line")
    assert [selection.text_of(entry) async for entry in log.read(of, selection)] == [
        *("who?", "", '[1e400, -0, {"a": 1, "a": 2}]'),
    ]


async def test_a_selection_or_filters_but_not_both(log: EventLog, talk: Experiment) -> None:
    reading: AsyncIterator[Any] = log.read(talk, Selection(), grep="fire")
    with pytest.raises(StoreError, match="give either a selection or filters"):
        await anext(reading)
    with pytest.raises(StoreError, match="leave out context"):
        await anext(log.read(talk, context=1))


@pytest.mark.sqlite
async def test_redacted_events_match_no_filter_of_their_content(log: EventLog) -> None:
    of = await filled(log, [sent(1 * S, b"redacted"), sent(2 * S, b"", flags=REDACTED)])
    assert await found(log, of) == [1, 2]
    assert await found(log, of, grep="redacted") == [1]
    assert await found(log, of, grep=".", regex=True) == [1]
