"""Deliveries are the same in whatever parts the events arrive, and however often the filling is killed."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager.record import SUBSCRIBED
from messager_store import EventLog, Experiment, NewEvent
from messager_store.db.codes import KINDS, REDACTED, SEQ_BITS
from messager_store.log.attributes import decode
from messager_store.log.matching import WITHIN_NS
from messager_store.log.text import normalised
from messager_store.log.writer import Writer
from messager_store.queries import deliveries, side_tables, texts
from messager_store.queries.index import Indexed, index
from tests.store.queries.test_index import Interruption, index_until
from tests.support import nightly_after
from tests.support.examples import WITH_STORE
from tests.support.logs import experiment, sent

SECOND = 1_000_000_000


def received(ts: int, payload: bytes = b"x", channel: str = "c", **more: Any) -> NewEvent:
    return NewEvent("received", ts, channel, payload, **more)


def retraction(ts: int, seq: int, outcome: str) -> NewEvent:
    """Return a failed event whose cause is an event of the recorder of ordinal 1."""
    return NewEvent("failed", ts, "c", b"x", cause=(1, seq), meta={"outcome": outcome})


async def rows_of(log: EventLog, query: str) -> list[Any]:
    async with log.database.reading() as connection:
        return [tuple(row) for row in await connection.exec_driver_sql(query)]


async def pairs(log: EventLog, of: Experiment) -> list[tuple[int, int, int]]:
    """Return the deliveries of an experiment: reception, sending, time."""
    mine = f"SELECT id FROM event WHERE experiment_id = {of.id}"
    query = f"SELECT event_id, sending_id, received_at FROM delivery WHERE event_id IN ({mine}) ORDER BY event_id"
    return await rows_of(log, query)


async def expected(log: EventLog, of: Experiment) -> list[tuple[int, int, int]]:
    """Compute the deliveries from all events at once, by the definition."""
    columns = "id, ts, kind, channel_id, payload, flags, attributes, messager_id"
    found_rows = await rows_of(log, f"SELECT {columns} FROM event WHERE experiment_id = {of.id} ORDER BY ts, id")
    rows = [(*row[:6], decode(row[6]), row[7]) for row in found_rows]
    ids = {row.uuid: row.id for row in await log.recorders(of)}
    retracted: dict[int, list[int]] = {}
    for number, ts, kind, _, _, _, known, _ in rows:
        if KINDS[kind - 1] == "failed" and known["meta"]["outcome"] == "not_sent":
            cause = known["cause"]
            recorder, seq = (ids[cause[0]], cause[1]) if isinstance(cause, list) else (number >> SEQ_BITS, cause)
            sending = recorder << SEQ_BITS | seq
            retracted.setdefault(sending, []).append(ts)
    since = {
        row.id: row.started_at
        for row in await log.recorders(of)
        if row.first_ts is not None and row.started_at <= row.first_ts
    }
    found = []
    sendings: list[tuple[int, int, Any]] = []
    last: dict[Any, int] = {}
    subscribed: dict[Any, int] = {}
    for number, ts, code, channel, payload, flags, known, messager in rows:
        kind, recorder, key = KINDS[code - 1], number >> SEQ_BITS, (channel, bytes(payload))
        listener = recorder, messager
        if kind == "gap":
            since[recorder] = ts
        elif kind == "mark":
            mark = known["meta"]
            if mark["name"] == SUBSCRIBED and not mark["fields"].get("added"):
                subscribed[listener] = ts
        elif flags & REDACTED:
            continue
        elif kind == "sent" and not any(at >= ts for at in retracted.get(number, ())):
            sendings.append((number, ts, key))
        elif kind == "received" and not known.get("meta", {}).get("retained"):
            first = last.get((listener, key), -1) + 1
            heard = [
                place
                for place, (_, at, same) in enumerate(sendings)
                if same == key and place >= first and ts - at <= WITHIN_NS and at >= since.get(recorder, at)
            ]
            if heard:
                later = [place for place in heard if sendings[place][1] >= subscribed.get(listener, 0)]
                last[listener, key] = place = (later or heard)[0]
                found.append((number, sendings[place][0], ts))
    return sorted(found)


def recording(random: Random) -> list[NewEvent]:
    """Return the events of one recorder; most of them have the same payload, within some minutes."""
    made = []
    for _ in range(random.randint(3, 14)):
        ts = random.choice((random.randrange(0, 150 * SECOND), random.randrange(10) * 15 * SECOND))
        payload = random.choice((b"x",) * 12 + (b"y", b"z" * 40_000))
        flags = random.choice((0,) * 12 + (REDACTED,))
        messager = random.choice((None, "m", "m", "n"))
        kind = random.choice("sssssrrrrrrgfcb")
        if kind == "s":
            made.append(sent(ts, payload, flags=flags))
        elif kind == "r":
            made.append(received(ts, payload, flags=flags, messager=messager))
        elif kind == "g":
            made.append(NewEvent("gap", ts, None, b"", flags=flags, meta={}))
        elif kind == "b":
            fields = random.choice(({"patterns": ["*"]}, {"patterns": ["*"], "added": True}))
            name = random.choice((SUBSCRIBED, SUBSCRIBED, "tick"))
            made.append(NewEvent("mark", ts, None, b"", messager=messager, meta={"name": name, "fields": fields}))
        elif kind == "f":
            made.append(retraction(ts, random.randint(1, 8), random.choice(("not_sent", "not_sent", "unknown"))))
        else:
            made.append(received(ts, payload, meta={"retained": True}))
    if random.random() < 0.6:
        made.sort(key=lambda entry: entry.ts)
    return made


@WITH_STORE
@given(st.randoms(use_true_random=True))
async def test_any_order_of_arrival_gives_the_deliveries_of_all_events_at_once(log: EventLog, random: Random) -> None:
    of = await log.create_experiment(uuid4().hex)
    waiting: list[tuple[Writer, list[NewEvent]]] = []
    for _ in range(random.randint(2, 4)):
        started_at = random.choice((1 << 62, 0, random.randrange(60 * SECOND)))
        writer = await log.register(of, role="messager", row={"started_at": started_at})
        waiting.append((writer, recording(random)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deliveries, "PAGE", random.randint(1, 9))
        patched.setattr(texts, "PAGE", random.randint(1, 40))
        while any(left for _, left in waiting):
            for writer, left in random.sample(waiting, random.randint(1, len(waiting))):
                count = random.randint(0, 6)
                if left[:count]:
                    await log.append(writer, left[:count])
                    del left[:count]
            if random.random() < 0.7:
                await index_until(log, of, random.choice((1, 3, 6, 10, 1000, 1000)))
            if random.random() < 0.3:
                assert await is_consistent(log, of)
        await index(log, of)
    assert await pairs(log, of) == await expected(log, of)
    assert (await index(log, of)) == Indexed()
    await check_text_and_activity(log, of)


async def is_consistent(log: EventLog, of: Experiment) -> bool:
    """Return whether complete deliveries are those of all events, in the middle of a recording."""
    return await side_tables.is_behind(log.database, of.id) or await pairs(log, of) == await expected(log, of)


async def check_text_and_activity(log: EventLog, of: Experiment) -> None:
    """Check that each event has one row of text and was counted once."""
    recorded = [entry async for entry in log.read(of)]
    mine = f"SELECT id FROM recorder WHERE experiment_id = {of.id}"
    said = await rows_of(
        log,
        "SELECT e.ts, r.ordinal, s.text, s.folded FROM said s JOIN event e ON e.id = s.event_id "
        f"JOIN recorder r ON r.id = e.id >> 40 WHERE e.experiment_id = {of.id} ORDER BY e.ts, e.id",
    )
    texts_of = [None if entry.redacted else entry.text for entry in recorded]
    assert said == [
        (entry.ts, entry.recorder, text, None if text is None else normalised(text))
        for entry, text in zip(recorded, texts_of, strict=True)
    ]
    bucket = 60 * SECOND
    wanted = Counter((entry.recorder, entry.ts // bucket * bucket, entry.kind, entry.redacted) for entry in recorded)
    counted: Counter[tuple[int, int, str, bool]] = Counter()
    size = 0
    query = (
        "SELECT r.ordinal, a.bucket, a.kind, a.messages, a.payload_bytes FROM activity a "
        f"JOIN recorder r ON r.id = a.recorder_id WHERE r.id IN ({mine})"
    )
    for ordinal, begin, code, messages, payload_bytes in await rows_of(log, query):
        counted[ordinal, begin, KINDS[abs(code) - 1], code < 0] += messages
        size += payload_bytes
    assert counted == wanted
    assert size == sum(len(entry.payload) for entry in recorded)


async def indexed(log: EventLog, *recordings: tuple[int, list[NewEvent]]) -> list[tuple[int | None, int, int]]:
    """Record, by recorder that began at a time; index, and return (sending's ts, reception's ts) of each delivery."""
    of = await experiment(log)
    for started_at, recorded in recordings:
        writer = await log.register(of, role="messager", row={"started_at": started_at})
        await log.append(writer, recorded)
    await index(log, of)
    return await rows_of(
        log, "SELECT s.ts, d.received_at FROM delivery d JOIN event s ON s.id = d.sending_id ORDER BY received_at"
    )


async def test_a_sending_that_was_not_sent_is_not_received(log: EventLog) -> None:
    """An intent that failed once took the reception of the sending that was made after it."""
    speaker = [sent(10), retraction(11, 1, "not_sent"), sent(20)]
    assert await indexed(log, (1 << 62, speaker), (1 << 62, [received(22)])) == [(20, 22)]


async def test_a_sending_of_unknown_outcome_may_have_been_received(log: EventLog) -> None:
    speaker = [sent(10), retraction(11, 1, "unknown"), sent(20)]
    heard = [received(12), received(22)]
    assert await indexed(log, (1 << 62, speaker), (1 << 62, heard)) == [(10, 12), (20, 22)]


async def test_every_reception_has_its_sending(log: EventLog) -> None:
    listeners = [(1 << 62, [received(ts) for ts in at]) for at in ((12, 22), (13, 25))]
    found = await indexed(log, (1 << 62, [sent(10), sent(20)]), *listeners)
    assert found == [(10, 12), (10, 13), (20, 22), (20, 25)]


async def test_a_redacted_gap_is_still_a_gap(log: EventLog) -> None:
    gap = NewEvent("gap", 15, None, b"", flags=REDACTED, meta={})
    assert await indexed(log, (1 << 62, [sent(10), sent(20)]), (1 << 62, [gap, received(22)])) == [(20, 22)]


@pytest.mark.parametrize("at", nightly_after(4, range(1, 12)))
async def test_events_that_arrive_while_others_are_matched_are_matched_next(
    log: EventLog, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Earlier and later ones, and one that retracts a sending."""
    of = await log.create_experiment("e1")
    speaker, listener = [await log.register(of, role="messager", row={"started_at": 1 << 62}) for _ in range(2)]
    await log.append(speaker, [sent(ts * 10) for ts in range(1, 9)])
    await log.append(listener, [received(ts * 10 + 5) for ts in range(1, 9)])

    async def arrive() -> None:
        await log.append(speaker, [sent(12), retraction(200, 3, "not_sent"), sent(300)])
        await log.append(listener, [received(2), received(13), received(301)])

    monkeypatch.setattr(deliveries, "PAGE", 2)
    Interruption(monkeypatch, at, arrive)
    await index(log, of)
    assert await is_consistent(log, of)
    await index(log, of)
    assert await pairs(log, of) == await expected(log, of)
