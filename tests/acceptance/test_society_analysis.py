"""Answers about the demo's society, recorded over Redis, equal those computed from its events one by one."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from typing import Any

import pytest

from messager import RedisConfig
from messager.testing import RedisServer
from messager_store import Event, EventLog, Experiment
from messager_store.cli.demo_society import QUARREL, live
from messager_store.projection.sql import sql
from messager_store.queries.counting.count import count
from messager_store.queries.delays import Delays, delays
from messager_store.queries.problems import problems

Pair = tuple[Any, Any]


class Society:
    """A recorded society, with its events in replay order."""

    def __init__(self, log: EventLog, of: Experiment, events: list[Event]) -> None:
        self.log, self.of, self.events = log, of, events
        self.sent = [entry for entry in events if entry.kind == "sent"]

    def deliveries(self) -> list[tuple[Event, Event]]:
        """Return sendings with their receptions: equal payloads of a channel in order."""
        waiting: dict[tuple[Any, bytes], list[Event]] = defaultdict(list)
        for entry in sorted((entry for entry in self.events if entry.kind == "received"), key=lambda entry: entry.ts):
            waiting[entry.channel, entry.payload].append(entry)
        pairs = []
        for entry in self.sent:
            if received := waiting[entry.channel, entry.payload]:
                pairs.append((entry, received.pop(0)))
        assert not any(waiting.values())
        return pairs

    def replies(self) -> list[tuple[Event, int]]:
        """Return replies and their times (ns), by what each Messager had fetched when it spoke."""
        received = {
            (entry.messager, entry.arrival): entry
            for entry in self.events
            if entry.kind == "received" and entry.arrival is not None
        }
        found = []
        answered: dict[tuple[Any, Pair], int] = {}
        for entry in self.sent:
            pair = entry.from_id, entry.to_id
            if None in pair:
                continue
            heard = [
                number
                for number in range(answered.get((entry.messager, pair), 0) + 1, (entry.arrival or 0) + 1)
                if (received[entry.messager, number].to_id, received[entry.messager, number].from_id) == pair
            ]
            if heard:
                answered[entry.messager, pair] = heard[-1]
                found.append((entry, entry.ts - received[entry.messager, heard[-1]].ts))
        return found


def id_columns(agent: Any) -> tuple[str | None, str | None]:
    """Return an id as it is in a table: a string, or JSON, and its type."""
    if agent is None:
        return None, None
    return (agent, "string") if isinstance(agent, str) else (json.dumps(agent), "number")


@pytest.fixture
async def society(log: EventLog, redis: RedisServer) -> Society:
    await live(log, RedisConfig(server="127.0.0.1", port=redis.port), "town", 4, "buffered")
    of = await log.experiment("town")
    return Society(log, of, [entry async for entry in log.read(of)])


def by_pair(times: list[tuple[Event, int]]) -> dict[Pair, tuple[int, ...]]:
    """Return number, p50, p95, p99 and maximum by pair; percentiles by nearest rank."""
    groups: dict[Pair, list[int]] = defaultdict(list)
    for entry, time in times:
        groups[entry.from_id, entry.to_id].append(time)
    return {
        pair: (len(found), *(sorted(found)[math.ceil(len(found) * rank / 100) - 1] for rank in (50, 95, 99, 100)))
        for pair, found in groups.items()
    }


def shown(found: Delays) -> dict[Pair, tuple[int, ...]]:
    return {(row.key[0], row.key[1]): (row.number, row.p50, row.p95, row.p99, row.max) for row in found.rows}


async def test_every_answer_equals_the_one_computed_from_the_events(society: Society) -> None:
    assert len(society.sent) > 30
    await _talk(society)
    await _times(society)
    await _trouble(society)
    await _table(society)


async def _talk(society: Society) -> None:
    """Who talks to whom, and in which phase."""
    log, of = society.log, society.of
    pairs = await count(log, of, ("from", "to"))
    wanted = Counter((entry.from_id, entry.to_id) for entry in society.sent)
    assert {row.keys: row.messages for row in pairs} == wanted
    rows = await sql(log, of, "select from_id, to_id, count(*) from messages group by 1, 2")
    text = [tuple(None if each is None else str(each) for each in pair) for pair in wanted]
    assert {row[:2]: row[2] for row in rows.rows} == dict(zip(text, wanted.values(), strict=True))

    phase, phases = None, Counter[Any]()
    for entry in society.events:
        if entry.kind == "mark" and not entry.text.startswith("messager."):
            phase = entry.meta and entry.meta["name"]
        elif entry.kind == "sent":
            phases[phase, entry.from_id] += 1
    found = Counter[Any]()
    for row in await count(log, of, ("mark", "from")):
        found[str(row.keys[0]).partition("#")[0], row.keys[1]] += row.messages
    assert found == phases and len(phases) > 8


async def _times(society: Society) -> None:
    """How long deliveries and replies took."""
    deliveries = [(entry, received.ts - entry.ts) for entry, received in society.deliveries()]
    assert shown(await delays(society.log, society.of)) == by_pair(deliveries)
    replies = await delays(society.log, society.of, replies=True)
    assert shown(replies) == by_pair(society.replies()) and len(replies.rows) > 3
    assert {row.basis for row in replies.rows} == {"heard"}


async def _trouble(society: Society) -> None:
    """What went wrong: the quarrel, and the news that nobody heard."""
    blocked = [entry for entry in society.events if entry.kind == "blocked"]
    assert blocked and {(entry.from_id, entry.to_id) for entry in blocked} == {QUARREL}
    found = await problems(society.log, society.of)
    assert {kind.value: reasons for kind, reasons in found.counts.items()} == {
        "never arrived": {"nobody listened": 1},
        "blocked": {"Quarrel": len(blocked)},
    }
    [never] = [one for one in found.details if one.kind == "never arrived"]
    assert never.event is not None and never.event.channel == "exps:town:news"


async def _table(society: Society) -> None:
    """The table of pyarrow."""
    from messager_store.log.selection import Selection
    from messager_store.projection.tables import table

    arrived = {entry.cursor: received.ts for entry, received in society.deliveries()}
    rows = (await table(society.log, society.of, Selection())).to_pylist()
    assert [(row["ts"], row["payload"], row["text"], row["heard"]) for row in rows] == [
        (entry.ts, entry.payload, entry.text, entry.arrival) for entry in society.sent
    ]
    for row, entry in zip(rows, society.sent, strict=True):
        ids = [(row[f"{end}_id"], row[f"{end}_type"]) for end in ("from", "to")]
        assert ids == [id_columns(entry.from_id), id_columns(entry.to_id)]
        seen = arrived.get(entry.cursor)
        assert (None if row["received_at"] is None else int(row["received_at"].timestamp() * 1e6)) == (
            None if seen is None else seen // 1000
        )
        assert row["copies"] == (seen is not None)
