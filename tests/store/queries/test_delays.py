"""Delivery times and reply times equal those computed from all raw events at once."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.town import Town
from messager_store import Event, EventLog, Experiment, NewEvent, Selection, StoreError, delays, redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.projection.narrowing import selected_pages
from messager_store.queries.delays import Delays
from tests.support import nightly_after
from tests.support.examples import WITH_STORE
from tests.support.logs import experiment, listed, sent

MS = 1_000_000
S = 1000 * MS
Table = dict[tuple[Any, ...], tuple[int, ...]]
"""By key and basis: number, p50, p95, p99, max, negative."""


def table_of(times: dict[Any, list[int]]) -> Table:
    """Compute the rows of lists of durations by the definition of the nearest rank."""
    found = {}
    for key, durations in times.items():
        ordered = sorted(durations)
        ranks = (ordered[math.ceil(len(ordered) * percent / 100) - 1] for percent in (50, 95, 99, 100))
        found[key] = (len(ordered), *ranks, sum(one < 0 for one in ordered))
    return found


def rows_of(found: Delays) -> Table:
    def typed(part: Any) -> str:
        return json.dumps(part)

    return {
        (*map(typed, row.key), row.basis): (row.number, row.p50, row.p95, row.p99, row.max, row.negative)
        for row in found.rows
    }


def key_of(entry: Event, by: str, basis: str) -> tuple[Any, ...]:
    parts = (entry.from_id, entry.to_id) if by == "pair" else (entry.channel,)
    return (*map(json.dumps, parts), basis)


def first_receptions(events: Iterable[Event]) -> list[tuple[Event, list[int]]]:
    """Return the times from each sending to the first reception by each recorder; contents are unique."""
    received: dict[tuple[Any, ...], int] = {}
    events = list(events)
    for entry in events:
        if entry.kind == "received":
            key = entry.recorder, entry.channel, entry.payload
            received[key] = min(entry.ts, received.get(key, entry.ts))
    found: list[tuple[Event, list[int]]] = [(entry, []) for entry in events if entry.kind == "sent"]
    for entry, times in found:
        for (_, channel, payload), ts in received.items():
            if (channel, payload) == (entry.channel, entry.payload):
                times.append(ts - entry.ts)
    return found


@pytest.fixture(params=nightly_after(1, [1, 2]))
async def town(log: EventLog, request: pytest.FixtureRequest) -> Experiment:
    made = Town("town", request.param)
    made.play()
    await made.write(log)
    return await log.experiment("town")


FILTERS: list[dict[str, Any]] = [
    {},
    {"from_ids": "miller"},
    {"between": ("smith", "doctor")},
    {"grep": "fire"},
    {"channels": "*:news"},
    {"exclude": "*:agents:*"},
    {"since": "mark:fire", "until": "mark:evening"},
    {"around": "mark:evening+-10s"},
    {"where": "t>100", "to_ids": ["baker", "smith"]},
    {"last_per": "agent"},
    {"limit": 7},
]


@pytest.mark.parametrize("by", nightly_after(1, ["pair", "channel"]))
async def test_delivery_times_are_those_to_the_first_reception_by_each_listener(
    log: EventLog, town: Experiment, by: str
) -> None:
    truth = first_receptions(await listed(log.read(town)))
    for filters in FILTERS:
        chosen = Selection(**filters).of_kinds({"sent"})
        selected = {entry.cursor async for page in selected_pages(log, town, chosen) for entry in page}
        times = defaultdict(list)
        for entry, found in truth:
            if entry.cursor in selected and found:
                times[key_of(entry, by, "delivery")] += found
        got = await delays(log, town, by=by, **filters)
        assert rows_of(got) == table_of(times), filters
        assert got.undelivered == sum(not found for entry, found in truth if entry.cursor in selected)
        everything = table_of({(): [time for each in times.values() for time in each]}) if times else {}
        assert [got.total and (got.total.number, got.total.p50, got.total.max)] == [
            (number, p50, most) for number, p50, _, _, most, _ in everything.values()
        ] or [None]
        assert [row.number for row in got.rows] == sorted((row.number for row in got.rows), reverse=True)
        assert await delays(log, town, Selection(**filters), by=by) == got


def replies_of(events: list[Event]) -> list[tuple[Event, str, int]]:
    """Compute the replies by their definition, for each message from all events before it."""
    sendings = [entry for entry in events if entry.kind == "sent"]
    origin = {(entry.channel, entry.payload): entry for entry in sendings}
    listening = {entry.messager for entry in events if entry.kind == "received" and entry.messager}
    answered: set[Any] = set()
    found = []
    for at, entry in enumerate(events):
        if entry.kind != "sent" or entry.from_id is None or entry.to_id is None:
            continue
        before: list[tuple[Any, int]] = []  # what it may answer, and when that began
        if entry.messager in listening and entry.arrival is not None:
            basis = "heard"
            for other in events[:at]:
                fetched = other.kind == "received" and other.messager == entry.messager
                if fetched and other.arrival is not None and other.arrival <= entry.arrival:
                    told = origin.get((other.channel, other.payload), other)
                    if (told.from_id, told.to_id) == (entry.to_id, entry.from_id):
                        before.append(((other.messager, other.arrival), other.ts))
        else:
            basis = "next"
            before = [
                (("sent", other.cursor), other.ts)
                for other in events[:at]
                if other.kind == "sent" and (other.from_id, other.to_id) == (entry.to_id, entry.from_id)
            ]
        waiting = [(key, ts) for key, ts in before if (entry.from_id, key) not in answered]
        answered |= {(entry.from_id, key) for key, _ in before}
        if waiting and entry.from_id != entry.to_id:
            found.append((entry, basis, entry.ts - waiting[-1][1]))
    return found


@pytest.mark.parametrize("by", nightly_after(1, ["pair", "channel"]))
async def test_reply_times_begin_where_the_last_message_was_fetched(log: EventLog, town: Experiment, by: str) -> None:
    for filters in FILTERS:
        if filters.keys() & {"last_per", "limit"}:
            continue
        both = {key: value for key, value in filters.items() if key not in ("from_ids", "to_ids", "between")}
        truth = replies_of(await listed(log.read(town, Selection(**both))))
        chosen = Selection(**filters).of_kinds({"sent"})
        selected = {entry.cursor async for page in selected_pages(log, town, chosen) for entry in page}
        times = defaultdict(list)
        for entry, basis, time in truth:
            if entry.cursor in selected:
                times[key_of(entry, by, basis)].append(time)
        assert rows_of(await delays(log, town, by=by, replies=True, **filters)) == table_of(times), filters


async def test_a_limit_counts_replies(log: EventLog, town: Experiment) -> None:
    truth = replies_of(await listed(log.read(town)))
    got = await delays(log, town, replies=True, limit=5)
    assert got.total is not None
    assert (got.total.number, got.total.max) == (5, max(time for *_, time in truth[:5]))


@given(seed=st.integers(0, 2**32))
@WITH_STORE
async def test_replies_of_random_dialogues_are_those_of_the_definition(log: EventLog, seed: int) -> None:
    random = Random(seed)
    of = await experiment(log, uuid4().hex)
    events: dict[str | None, list[NewEvent]] = {"a": [], "b": [], None: []}
    arrivals = {"a": 0, "b": 0}
    for number in range(random.randrange(1, 25)):
        at = number * S
        who, whom = random.choice(
            [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a"), ("b", 1), ("b", "1"), (1, "b"), ("b", "b")]
        )
        speaker = who if who in arrivals else None
        payload = str(number).encode()
        heard = None if speaker is None else random.choice([arrivals[speaker], random.randint(0, arrivals[speaker])])
        events[speaker].append(sent(at, payload, "c", from_id=who, to_id=whom, messager=speaker, arrival=heard))
        for listener in [name for name in arrivals if name == whom and random.random() < 0.8]:
            arrivals[listener] += 1
            events[listener].append(
                NewEvent("received", at + MS, "c", payload, messager=listener, arrival=arrivals[listener])
            )
    for entries in events.values():
        if entries:
            await log.append(await log.register(of, role="messager", row={"started_at": -S}), entries)
    truth = defaultdict(list)
    for entry, basis, time in replies_of(await listed(log.read(of))):
        truth[key_of(entry, "pair", basis)].append(time)
    assert rows_of(await delays(log, of, replies=True)) == table_of(truth)


async def test_a_recording_of_listeners_only_has_replies_from_the_message_before(log: EventLog) -> None:
    of = await experiment(log)
    writer = await log.register(of, role="tap")
    talk = [("a", "b", 0), ("a", "b", 1), ("b", "a", 3), ("b", "a", 4), ("a", "b", 9), (None, "a", 10)]
    await log.append(writer, [NewEvent("received", at * S, "c", b"x", who, whom) for who, whom, at in talk])
    got = await delays(log, of, replies=True)
    assert rows_of(got) == {('"b"', '"a"', "next"): (1, *[2 * S] * 4, 0), ('"a"', '"b"', "next"): (1, *[5 * S] * 4, 0)}
    assert got.unaddressed == 1


async def test_a_reception_before_its_sending_has_a_negative_time_and_counts_once(log: EventLog) -> None:
    """The clocks of two recorders differ. The second sending of the same content was received later, as usual."""
    of = await experiment(log)
    speaker, listener = [await log.register(of, role="messager", row={"started_at": -S}) for _ in range(2)]
    await log.append(speaker, [sent(at, payload) for at, payload in ((10 * S, b"x"), (20 * S, b"y"), (90 * S, b"x"))])
    heard = [(10 * S - 3 * MS, b"x"), (20 * S + MS, b"y"), (90 * S + MS, b"x"), (95 * S, b"other")]
    await log.append(listener, [NewEvent("received", at, "c", payload) for at, payload in heard])
    got = await delays(log, of)
    assert rows_of(got) == {("null", "null", "delivery"): (3, MS, MS, MS, MS, 1)}
    assert got.undelivered == 0


async def test_redacted_and_retracted_sendings_are_left_out(log: EventLog) -> None:
    of = await experiment(log)
    speaker, listener = [await log.register(of, role="messager", row={"started_at": -S}) for _ in range(2)]
    failed = [
        NewEvent("failed", 50 * S + at, "c", b"", cause=(speaker.ordinal, at), meta={"outcome": outcome})
        for at, outcome in ((3, "not_sent"), (4, "unknown"))
    ]
    messages = [sent(at * S, str(at).encode(), from_id="hidden" if at == 2 else "a", to_id="b") for at in range(1, 6)]
    await log.append(speaker, [*messages, *failed])
    await log.append(listener, [NewEvent("received", at * S + MS, "c", str(at).encode()) for at in (1, 2)])
    for writer in (speaker, listener):
        await log.touch(writer, heartbeat_at=99 * S, ended_at=99 * S)
    got = await delays(log, of)
    assert (got.undelivered, sum(row.number for row in got.rows)) == (1, 2)
    await redact(log, of, RedactionFilter(senders=(("hidden",),)), who="test", why="asked to")
    got = await delays(log, of)
    assert (got.undelivered, sum(row.number for row in got.rows)) == (1, 1)
    assert (await delays(log, of, limit=2)).undelivered == 1  # the first and the last one


async def test_a_message_outside_of_the_filter_is_not_answered(log: EventLog) -> None:
    of = await experiment(log)
    talk = [("a", "b", "game1", 0), ("b", "a", "game2", 90), ("a", "b", "game2", 92), ("b", "a", "game2", 95)]
    events = [sent(at * S, b"x", channel, from_id=who, to_id=whom) for who, whom, channel, at in talk]
    await log.append(await log.register(of, role="import"), events)
    for filters in ({"channels": "game2"}, {"since": "1s"}):
        found = (await delays(log, of, replies=True, **filters)).total
        assert found is not None and (found.number, found.max) == (2, 3 * S), filters


async def test_ids_of_different_types_are_different_pairs(log: EventLog) -> None:
    of = await experiment(log)
    ids = [5, "5", True, 1, 1.0, None, [1]]
    events = []
    for at, one in enumerate(ids):
        events += [sent(at * S, str(at).encode(), from_id=one), NewEvent("received", at * S + 1, "c", str(at).encode())]
    await log.append(await log.register(of, role="messager", row={"started_at": -S}), events)
    found = await delays(log, of)
    assert sorted(json.dumps(row.key[0]) for row in found.rows) == sorted(map(json.dumps, ids))


async def test_an_unknown_grouping_and_filters_without_a_meaning_are_refused(log: EventLog) -> None:
    of = await experiment(log)
    with pytest.raises(StoreError, match="pair or channel"):
        await delays(log, of, by="kind")
    with pytest.raises(StoreError, match="leave out"):
        await delays(log, of, context=1)
    with pytest.raises(StoreError, match="leave out"):
        await delays(log, of, replies=True, last_per="agent")
    assert (await delays(log, of)).total is None


async def test_a_notebook_shows_the_same_notes_as_the_command(log: EventLog, town: Experiment) -> None:
    found = await delays(log, town)
    assert repr(found) == f"<Delays by pair: {len(found.rows)} rows, {found.total and found.total.number} deliveries>"
    assert found == await delays(log, town)
    [note] = found.notes
    assert note.endswith("sendings without a delivery: `messager problems` says why") and note in found._repr_html_()
    of = await experiment(log)
    await log.append(await log.register(of, role="import"), [sent(at * S, from_id=at) for at in range(3)])
    nothing = await delays(log, of)
    assert nothing.notes == ("no deliveries: no listener was recorded",)
    assert "no deliveries: no listener was recorded" in nothing._repr_html_() and not nothing.listeners
    replies = await delays(log, of, replies=True)
    assert replies.notes == (
        "no replies: no message of the experiment names a recipient, as in a group chat",
        "3 messages without a sender or a recipient: no replies",
    )
    assert all(note in replies._repr_html_() for note in replies.notes)
    assert repr(replies) == "<Delays by pair: 0 rows, 0 replies>"


@pytest.mark.parametrize(
    ("rows", "difference"),
    nightly_after(
        3,
        [
            ([("boot", 0, 0), ("boot", 0, 1_190_000)], None),
            ([("boot", 0, 0), ("boot", 5 * S, 0)], 5 * S),
            ([("boot", 0, 0), ("other", 0, 7 * MS), (None, 0, 3 * MS)], 7 * MS),
            ([("boot", 0, 0), ("other", 0, MS // 2)], None),
            ([("boot", 0, 0), ("boot", 0, 0), ("boot", 0, 9 * MS), ("other", 0, 4 * MS)], 4 * MS),
            ([("boot", 0, 0)], None),
        ],
    ),
)
async def test_clocks_differ_on_one_machine_by_their_anchors_and_between_machines_by_measurement(
    log: EventLog, rows: list[tuple[str | None, int, int]], difference: int | None
) -> None:
    """A row is a boot, the difference of the anchor, and the offset of the broker, in ns."""
    of = await experiment(log)
    for number, (boot, anchor, offset) in enumerate(rows):
        monotonic = number * S
        row = {"boot_id": boot, "anchor_wall": S + anchor + monotonic, "anchor_monotonic": monotonic}
        await log.register(of, role="messager", row=row | {"broker_offset": offset})
    writer = await log.register(of, role="tap")
    await log.append(writer, [sent(S), NewEvent("received", S + 1, "c", b"x")])
    found = await delays(log, of)
    assert found.clocks_ns == difference
    assert any("clocks" in note for note in found.notes) == (difference is not None)
