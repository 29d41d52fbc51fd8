"""The messages of a log: those of the projection, for readers that read on in the log, and for a replay."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from messager_store import EventLog, Experiment, NewEvent
from messager_store.db.codes import REDACTED
from messager_store.log import decisions as module
from messager_store.log.decisions import decisions
from messager_store.log.event import Cursor
from messager_store.log.messages import message_count, message_pages
from messager_store.log.selection import Selection
from messager_store.log.span import Span
from messager_store.projection.tables import table
from tests.support.logs import experiment, filled, sent

SECOND = 1_000_000_000
BEGAN = 1_700_000_000 * SECOND


async def society(log: EventLog, dice: random.Random) -> Experiment:
    """Record senders and listeners, some of them not, with equal payloads, lost and late messages and failures."""
    of = await experiment(log, f"e{dice.random()}")
    recorded, listeners = dice.randrange(1, 3), dice.randrange(0, 4)
    events: list[list[NewEvent]] = [[] for _ in range(recorded + listeners)]
    for number in range(dice.randrange(1, 60)):
        ts, sender = BEGAN + number * SECOND // 2, dice.randrange(3)
        channel, payload = dice.choice("ab"), dice.choice([b"same", b"%d" % number])
        if sender < recorded:
            events[sender].append(sent(ts, payload, channel, from_id=sender))
            if dice.random() < 0.1:
                failed = NewEvent("failed", ts + 1, channel, payload, cause=(sender + 1, len(events[sender])))
                events[sender].append(failed._replace(meta={"outcome": dice.choice(["not_sent", "unknown"])}))
        for listener in range(listeners):
            if dice.random() < 0.8:
                delay = dice.choice([-1, 1, 90_000, 3_000_000]) * 1000
                events[recorded + listener].append(NewEvent("received", ts + delay, channel, payload))
    for number, mine in enumerate(events):
        writer = await log.register(of, role="messager" if number < recorded else "tap", row={"started_at": BEGAN})
        if mine:
            await log.append(writer, mine)
    return of


async def cursors(pages: AsyncIterator[list[Any]]) -> list[Cursor]:
    return [entry.cursor async for page in pages for entry in page]


@pytest.mark.parametrize("seed", range(12))
async def test_a_reader_of_the_log_has_the_messages_of_the_projection(
    log: EventLog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    of = await society(log, dice)

    async def few(*ignored: Any) -> int:
        return dice.choice([3, 1000])

    monkeypatch.setattr(module, "page_size", few)
    for filters in (
        {},
        {"kinds": ["received"]},
        {"kinds": ["sent"]},
        {"kinds": []},
        {"channels": "a"},
        {"from_ids": 1},
    ):
        rows = (await table(log, of, **filters)).select(["ts", "recorder", "seq"]).to_pylist()  # type: ignore[arg-type]
        expected = [Cursor(**row) for row in rows]
        chosen = Selection(**filters)  # type: ignore[arg-type]
        span, rule = await chosen.span(log.database, of), await decisions(log, of, chosen.kinds)
        assert await cursors(message_pages(log, of, chosen, span)) == expected
        assert await message_count(log, of, chosen, span, rule) == len(expected)
        assert await cursors(message_pages(log, of, chosen, span, rule=rule, backward=True)) == expected[::-1]
        middle = BEGAN + 10 * SECOND
        later = Selection(**filters, since=middle, limit=5)  # type: ignore[arg-type]
        span = await later.span(log.database, of)
        assert await cursors(message_pages(log, of, later, span)) == [one for one in expected if one.ts >= middle][:5]


async def test_messages_are_read_before_it_is_decided_about_the_last_ones(log: EventLog) -> None:
    said = [sent(BEGAN + at * SECOND, b"%d" % at) for at in range(10_000)]
    heard = [entry._replace(kind="received", ts=entry.ts + 1) for entry in said]
    of = await filled(log, [one for pair in zip(said, heard, strict=True) for one in pair])
    rule = await decisions(log, of)
    async with aclosing(message_pages(log, of, Selection(), Span(), rule=rule)) as pages:
        page = await anext(pages)
        assert page[0].payload == b"0" and not rule.ended
        assert len(page) + sum([len(more) async for more in pages]) == 10_000 and rule.ended


async def test_no_reception_replaces_a_redacted_sending(log: EventLog) -> None:
    of = await filled(log, [sent(BEGAN, b"")._replace(flags=REDACTED)])
    heard = [NewEvent("received", BEGAN + 1, "c", b"secret"), NewEvent("received", BEGAN + 2, "c2", b"b")]
    await log.append(await log.register(of, role="tap"), heard)
    span = await Selection().span(log.database, of)
    pages = message_pages(log, of, Selection(), span)
    assert [entry.payload async for page in pages for entry in page] == [b"b"]
