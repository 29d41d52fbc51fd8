"""The event log: each event is read once, unchanged, in replay order."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager import channels
from messager_store import Cursor, Event, EventLog, NewEvent
from messager_store.db.codes import FROM_DERIVED, TO_DERIVED
from messager_store.errors import AmbiguousExperiment, BadCursor, ExperimentNotFound, StoreError
from messager_store.experiments import validation
from messager_store.log.cursor import resolve
from messager_store.log.event_query import HELD
from messager_store.log.event_rows import MAX_FETCHED
from messager_store.log.reading import count, pages
from messager_store.log.redaction_records import redactions_of
from messager_store.log.selection import Selection
from messager_store.log.span import Span
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.recording.closing import close
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS
from tests.support.examples import WITH_STORE
from tests.support.logs import experiment, filled, listed, sent


@pytest.mark.databases
async def test_every_hostile_payload_channel_and_id_comes_back_as_it_went_in(log: EventLog) -> None:
    events = [
        sent(
            number,
            HOSTILE_PAYLOADS[number % len(HOSTILE_PAYLOADS)],
            channels.decode(HOSTILE_CHANNELS[number % len(HOSTILE_CHANNELS)]),
            from_id=HOSTILE_IDS[number % len(HOSTILE_IDS)],
            to_id=HOSTILE_IDS[(number * 5) % len(HOSTILE_IDS)],
            meta={"note": "\ud800 \u65e5"} if number % 3 else None,
        )
        for number in range(130)
    ]
    of = await filled(log, events)
    for given_, found in zip(events, await listed(log.read("e1")), strict=True):
        assert (found.payload, found.channel, found.ts) == (given_.payload, given_.channel, given_.ts)
        for key in ("from_id", "to_id"):
            assert getattr(found, key) == getattr(given_, key)
            assert type(getattr(found, key)) is type(getattr(given_, key))
        assert found.meta == given_.meta
    assert (await verify(log, of)).problems == []


async def test_characters_that_a_text_of_the_database_cannot_hold_come_back_as_they_went_in(log: EventLog) -> None:
    odd = "a\x00b\x01c\x010\x00"
    of = await log.create_experiment("e1", name=odd, tags=["t"], meta={odd: odd})
    writer = await log.register(of, role="tap", patterns=[odd], meta={odd: odd}, spool=odd)
    mark = NewEvent("mark", 2, None, b"", meta={"name": odd, "fields": {odd: odd}})
    event = sent(1, odd.encode(), odd, from_id=odd, to_id=[odd], msg_id=odd, meta={odd: odd})
    await log.append(writer, [event, mark])
    found, found_mark = await listed(log.read("e1"))
    assert await listed(log.read("e1", agents=[odd], channels=["a*"])) == [found]
    assert (found.payload, found.channel, found.msg_id, found.meta) == (odd.encode(), odd, odd, {odd: odd})
    assert (found.from_id, found.to_id, found_mark.meta) == (odd, [odd], mark.meta)
    assert (await log.experiment(odd)).meta == {odd: odd}
    [row] = await log.recorders()
    assert (row.patterns, row.meta, row.spool) == ([odd], {odd: odd}, odd)
    assert str(await resolve(log.database, of, f"mark:{odd}")) == "2:1:2"
    with pytest.raises(StoreError, match="cannot be a tag"):
        await log.tag(of, [odd], [])
    await log.touch(writer, ended_at=1)
    assert (await redact(log, "e1", RedactionFilter(kinds=("mark",)), who=odd, why=odd)).events == 1
    assert [(row.who, row.why) for row in await redactions_of(log.database, of.id)] == [(odd, odd)]
    assert (await verify(log, await log.experiment("e1"))).problems == []
    assert await remove(log, of)


INT64 = st.integers(-(2**63), 2**63 - 1)


ANY_EVENT = st.builds(
    NewEvent,
    kind=st.sampled_from(["sent", "received", "blocked"]),
    ts=INT64,
    channel=st.binary(max_size=20).map(channels.decode),
    payload=st.binary(max_size=200),
    from_id=st.none() | st.integers() | st.text(st.characters(), max_size=10),
    to_id=st.none() | st.integers() | st.text(st.characters(), max_size=10),
    msg_id=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    duration_ns=st.sampled_from([None, 0, 2**63 - 1]) | st.integers(0, 2**40),
    receivers=st.sampled_from([None, 0, 2**31 - 1]) | st.integers(0, 1000),
    flags=st.sampled_from([0, FROM_DERIVED, TO_DERIVED]),
    cause=st.none() | st.tuples(st.just(1), st.integers(1, 2**40 - 1)),
    meta=st.none() | st.dictionaries(st.text(max_size=5), INT64 | st.text(st.characters(), max_size=10), max_size=3),
    messager=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    arrival=st.none() | st.sampled_from([0, 7, 2**63 - 1]),
    carrier=st.sampled_from([None, "stream", "queue", "call"]),
    origin=st.none() | st.tuples(st.text("0123456789abcdef", min_size=1, max_size=40), st.integers(1, 2**40 - 1)),
)


@WITH_STORE
@given(st.lists(ANY_EVENT, min_size=1, max_size=40))
async def test_anything_survives_the_way_through_the_log(store: str, events: list[NewEvent]) -> None:
    exp_id = uuid4().hex
    async with EventLog.open(store) as log:
        of = await filled(log, events, exp_id)
        found = await listed(log.read(exp_id))
        in_order = sorted(events, key=lambda event: event.ts)
        assert [facts(entry) for entry in found] == [facts(entry) for entry in in_order]
        assert (await verify(log, of)).problems == []


def facts(event: Event | NewEvent) -> tuple[Any, ...]:
    """Return the fields of an event without its numbers."""
    ids = (event.from_id, type(event.from_id), event.to_id, type(event.to_id))
    body = (event.msg_id, event.duration_ns, event.receivers, event.cause, event.meta)
    schedule = (event.messager, event.arrival, event.origin, event.carrier)
    return (event.kind, event.ts, event.channel, event.payload, *ids, *body, *schedule)


@pytest.mark.databases
async def test_replay_order_is_ts_then_recorder_then_seq(log: EventLog) -> None:
    of = await experiment(log)
    first, second = await log.register(of, role="tap"), await log.register(of, role="tap")
    await log.append(second, [sent(5, b"2-1"), sent(5, b"2-2"), sent(1, b"2-3")])
    await log.append(first, [sent(5, b"1-1"), sent(9, b"1-2"), sent(5, b"1-3")])
    found = await listed(log.read("e1"))
    assert [entry.payload for entry in found] == [b"2-3", b"1-1", b"1-3", b"2-1", b"2-2", b"1-2"]
    assert [str(entry.cursor) for entry in found][:2] == ["1:2:3", "5:1:1"]


@pytest.mark.databases
async def test_pages_neither_lose_nor_double_at_their_edges(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    from messager_store.log import reading

    of = await experiment(log)
    dice = random.Random(3)
    for _ in range(3):
        writer = await log.register(of, role="tap")
        await log.append(writer, [sent(dice.randrange(4), b"%d" % number) for number in range(100)])
    whole = await listed(log.read("e1"))
    assert len(whole) == 300
    for size in (1, 7, 100, 299, 300, 301):
        span, chosen = Span(), Selection()
        paged = [e async for page in reading.pages(log.database, of, chosen, span, page=size) for e in page]
        assert paged == whole
    for ts in range(4):  # behind a time is behind everything of that nanosecond
        assert await listed(log.read("e1", after=ts)) == [entry for entry in whole if entry.ts > ts]
        assert await listed(log.read("e1", since=ts)) == [entry for entry in whole if entry.ts >= ts]
    for cut in (0, 1, 150, 299):
        before = await listed(log.read("e1", until=whole[cut].cursor))
        after = await listed(log.read("e1", since=whole[cut].cursor))
        assert before + after == whole
        assert await listed(log.read("e1", after=whole[cut].cursor)) == whole[cut + 1 :]
        assert await listed(log.read("e1", since=whole[cut].cursor, limit=5)) == whole[cut : cut + 5]


async def test_a_count_is_the_number_of_events_that_are_read(log: EventLog) -> None:
    of = await filled(log, [sent(at // 2, json.dumps({"n": at % 3}).encode(), "cd"[at % 2]) for at in range(12)])
    places = [entry.cursor for entry in await listed(log.read(of))]
    points = [None, places[0], places[5], Cursor(3, 1, 1)]
    choices = [Selection(), Selection(channels="c"), Selection(where="n=1")]
    for start, after, end, limit, chosen in product(points, points, (None, places[9]), (None, 3), choices):
        span = Span(start, end, after, limit)
        read = sum([len(page) async for page in pages(log.database, of, chosen, span)])
        assert await count(log.database, of, chosen, span) == read, (span, chosen.channels)
    assert await count(log.database, of, Selection(), Span(after=places[5])) == 6


async def test_filters_choose_by_kind_channel_and_agent(log: EventLog) -> None:
    await filled(
        log,
        [
            sent(1, channel="exps:a:1", from_id=5, to_id="6"),
            sent(2, channel="exps:b:1", from_id="5", to_id=6),
            NewEvent("received", 3, "exps:a:1", b"r"),
            NewEvent("mark", 4, None, b"", meta={"name": "tick", "fields": {}}),
            NewEvent("gap", 5, None, b"", meta={"reason": "x"}),
            sent(6, channel="glob*[x]"),
        ],
    )

    async def times(**filters: Any) -> list[int]:
        return [entry.ts async for entry in log.read("e1", **filters)]

    assert await times(kinds=["mark", "gap"]) == [4, 5]
    assert await times(channels=["exps:*"]) == [1, 2, 3]
    assert await times(channels=["exps:a:*", "exps:b:1"], kinds=["sent"]) == [1, 2]
    assert await times(channels=[r"glob\*\[x\]"]) == [6]
    assert await times(exclude=["exps:a:*"]) == [2, 4, 5, 6]
    assert await times(agents=[5]) == [1]
    assert await times(agents=["5", "6"]) == [1, 2]
    assert await times(agents=["nobody"]) == []
    assert await times(channels=["nowhere"]) == []
    assert await times(limit=0) == []
    for name, one in (("kinds", "sent"), ("channels", "exps:*"), ("exclude", "exps:*"), ("agents", 5), ("agents", "5")):
        assert await times(**{name: one}) == await times(**{name: [one]})
    with pytest.raises(StoreError, match="unknown kind shout"):
        await times(kinds=["shout"])


async def test_points_are_cursors_times_offsets_and_marks(log: EventLog) -> None:
    start = 1_700_000_000_000_000_000
    of = await filled(
        log,
        [
            sent(start),
            NewEvent("mark", start + 10_000_000_000, None, b"", meta={"name": "tick: 1", "fields": {}}),
            sent(start + 90_000_000_000),
        ],
    )

    async def at(point: Any) -> Cursor:
        found = await resolve(log.database, of, point)
        assert found is not None
        return found

    assert await at(f"{start}:1:3") == Cursor(start, 1, 3)
    assert (await at(start)).ts == start
    assert await at("2023-11-14T22:13:20Z") == Cursor(start, 0, 0)
    assert await at("2023-11-14 22:13:20") == Cursor(start, 0, 0)
    assert await at("2023-11-15T00:13:20+02:00") == Cursor(start, 0, 0)
    assert await at(datetime(2023, 11, 14, 22, 13, 20, 5, UTC)) == Cursor(start + 5_000, 0, 0)
    assert (await at("90")).ts == (await at("+90s")).ts == (await at("1.5m")).ts == start + 90_000_000_000
    assert (await at("250ms")).ts == start + 250_000_000
    assert (await at("-30s")).ts == start + 60_000_000_000
    assert (await at("2023-11-14T22:13:20.123456789Z")).ts == start + 123_456_789
    assert (await at("2023-11-14T22:13:20,5Z")).ts == start + 500_000_000
    assert (await at("22:14:30.5")).ts == start + 70_500_000_000  # the first there is
    for clock, seconds in {
        "22:13": -20,  # the minute in which it begins
        "22:13:20": 0,
        "22:13:19": -1,
        "22:15": 100,
        "23:30": 4600,
        "10:30": -42_200,
        "10:00": 42_400,
    }.items():
        assert (await at(clock)).ts == start + seconds * 1_000_000_000, clock
    assert (await at(str(start + 5))).ts == start + 5
    assert await at("mark:tick: 1") == Cursor(start + 10_000_000_000, 1, 2)
    assert (await at("2999-01-01")).ts == 2**63 - 1  # after everything
    assert (await at("9999999999d")).ts == 2**63 - 1
    assert (await at("0001-01-01")).ts == -(2**63)
    for wrong in (
        "yesterday",
        "",
        "1:2",
        "5 parsecs",
        "1:2:3:4",
        "mark:",
        "99999999999999999999999:1:1",
        "25:00:00",
        "5:0:1",
    ):
        with pytest.raises(BadCursor):
            await at(wrong)
    with pytest.raises(BadCursor, match="tick: 1"):
        await at("mark:tock")


async def test_a_mark_that_is_there_more_than_once_is_counted(log: EventLog) -> None:
    names = ("step", "other", "step", "step", "step#3")
    of = await filled(log, [NewEvent("mark", at, None, b"", meta={"name": name}) for at, name in enumerate(names)])

    async def at(point: str) -> int:
        found = await resolve(log.database, of, point)
        assert found is not None
        return found.ts

    assert [await at(f"mark:{name}") for name in ("step", "step#1", "step#2", "other#1")] == [0, 0, 2, 1]
    assert await at("mark:step#3") == 4  # a mark of that very name comes first
    for beyond in ("step#4", "step#0", "other#2", "nothing#1"):
        with pytest.raises(BadCursor, match=r"step \(3 times\), other"):
            await at(f"mark:{beyond}")


async def test_a_time_of_day_is_within_the_experiment_or_nearest_to_it(log: EventLog) -> None:
    hour = 3_600_000_000_000
    midnight = 1_700_006_400_000_000_000
    for exp_id, first, last, expected in (
        ("overnight", -2, 10, {"22:00": -2, "21:59": 22 - 1 / 60 - 24, "09:00": 9, "10:30": 10.5, "23:00": -1}),
        ("long", 10, 50, {"09:00": 33, "10:00": 10, "11:00": 11}),
        ("early", 0.5, 0.6, {"23:50": -1 / 6, "00:30": 0.5, "01:00": 1}),
    ):
        of = await filled(log, [sent(midnight + int(first * hour)), sent(midnight + int(last * hour))], exp_id)
        for clock, hours in expected.items():
            found = await resolve(log.database, of, clock)
            assert found is not None and found.ts == midnight + round(hours * 60) * hour // 60, (exp_id, clock)


async def test_an_experiment_is_named_by_exp_id_prefix_name_or_last(log: EventLog) -> None:
    for exp_id, name in (("abc-1", "first"), ("abc-2", "second"), ("xyz", "second"), ("abc", None)):
        await log.create_experiment(exp_id, name=name, tags=[], meta={})
    assert (await log.experiment("abc")).exp_id == "abc"  # whole before prefix
    assert (await log.experiment("x")).exp_id == "xyz"
    assert (await log.experiment("first")).exp_id == "abc-1"
    assert (await log.experiment("@last")).exp_id == "abc"
    with pytest.raises(AmbiguousExperiment, match="abc-1, abc-2"):
        await log.experiment("abc-")
    with pytest.raises(AmbiguousExperiment, match="xyz"):
        await log.experiment("second")
    with pytest.raises(ExperimentNotFound, match="Did you mean first"):
        await log.experiment("frist")
    with pytest.raises(ExperimentNotFound, match=r"Did you mean abc-2 or xyz\?"):  # both have that name
        await log.experiment("secnod")
    for hostile in ("", "%", "_", "abc%", "' OR 1=1 --", "a\x00"):
        with pytest.raises((ExperimentNotFound, AmbiguousExperiment)):
            await log.experiment(hostile)


def test_an_exp_id_is_something_a_person_can_type() -> None:
    for exp_id in ["", " a", "a ", "a\nb", "@last", "x" * 201, "\ud800"]:
        with pytest.raises(StoreError, match="cannot be an exp_id"):
            validation.checked_exp_id(exp_id)


@pytest.mark.databases
async def test_a_read_sees_what_was_there_when_it_began(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="tap")
    await log.append(writer, [sent(number) for number in range(10)])
    seen = []
    from messager_store.log import reading

    async for page in reading.pages(log.database, of, Selection(), Span(), page=4):
        seen += [entry.ts for entry in page]
        await log.append(writer, [sent(100 + len(seen))])
    assert seen == list(range(10))


@pytest.mark.databases
async def test_a_tail_sees_every_event_once_and_ends_when_the_experiment_closes(log: EventLog) -> None:
    of = await experiment(log)

    async def write(number: int) -> None:
        writer = await log.register(of, role="tap")
        for part in range(20):
            await log.append(writer, [sent(-part, b"%d-%d" % (number, part)), sent(part)])
            await asyncio.sleep(0)

    async def follow(position: dict[int, int] | None = None) -> list[Event]:
        return [entry async for entry in log.tail("e1", position, poll=0.005)]

    tails = [asyncio.create_task(follow()) for _ in range(3)]
    await asyncio.gather(*(write(number) for number in range(4)))
    late = asyncio.create_task(follow({1: 40, 2: 39}))
    for row in await log.recorders(of):
        assert row.last_seq == 40
    await close(log, of, force=True)
    for found in await asyncio.gather(*tails):
        assert len({(entry.recorder, entry.seq) for entry in found}) == len(found) == 160
        for ordinal in range(1, 5):
            assert [entry.seq for entry in found if entry.recorder == ordinal] == list(range(1, 41))
    assert len(await late) == 160 - 79


async def test_large_payloads_are_held_a_few_at_a_time(log: EventLog) -> None:
    from messager_store.log import reading

    payload = random.Random(1).randbytes(3 * 1024 * 1024)
    of = await experiment(log)
    writer = await log.register(of, role="tap")
    for number in range(12):
        await log.append(writer, [sent(number, payload), sent(number, b"small")])
    pages = [page async for page in reading.pages(log.database, of, Selection(), Span())]
    sizes = [sum(len(entry.payload) for entry in page) for page in pages]
    assert sum(len(page) for page in pages) == 24
    assert max(sizes) <= HELD + len(payload) + MAX_FETCHED
    found = await listed(log.read("e1"))
    assert [len(entry.payload) for entry in found] == [len(payload), 5] * 12
    assert found[0].payload == payload
