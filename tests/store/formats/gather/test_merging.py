"""Gathering: the parts of an experiment in several stores become one, each batch once."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from messager_store import EventLog, NewEvent
from messager_store.log.chain import head_of
from messager_store.recording.closing import close
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS, Stores, sql
from tests.support.logs import sent
from tests.support.parts import (
    NOW,
    SECOND,
    batches_of,
    content,
    gathered,
    head,
    problems,
    recorded,
    recorder_of,
    rows,
)


@pytest.mark.databases
async def test_the_parts_of_an_experiment_become_one(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    await recorded(parts[0], 1, 2)
    await recorded(parts[1], 3)
    await recorded(parts[2], 4)
    done = await gathered(log, *urls)
    assert await content(log) == {**await content(parts[0]), **await content(parts[1]), **await content(parts[2])}
    of = await log.experiment("e1")
    assert (of.status, of.name, of.tags, of.recorders) == ("closed", "n", ["t1", "t3", "t4"], 4)
    assert of.meta == {"seed": 7, "host": "h(1, 2)"}
    assert of.closed_at == max([(await part.experiment("e1")).closed_at or 0 for part in parts])
    assert (done.status, done.head, done.head_before) == ("closed", await head(log), None)
    assert [(e.ordinal, e.ordinal_here, e.events, e.before) for part in done.parts for e in part.recorders] == [
        (1, 1, 12, 0), (2, 2, 12, 0), (1, 3, 12, 0), (1, 4, 12, 0),
    ]  # fmt: skip
    assert await problems(log) == []


async def test_a_recorder_keeps_its_head_and_its_description(
    log: EventLog, parts: list[EventLog], urls: list[str]
) -> None:
    of = await recorded(parts[0], 1, broker="redis://h:1", broker_offset=-5, anchor_wall=3, anchor_monotonic=4)
    await gathered(log, *urls)
    [there], [here] = await parts[0].recorders(of), await log.recorders(await log.experiment("e1"))
    local = ("id", "experiment_id", "epoch", "spool")
    assert all(getattr(here, key) == getattr(there, key) for key in there.__slots__ if key not in local)
    assert here.spool is None, "a path of another machine means nothing here"


async def test_gathering_again_changes_nothing(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str]
) -> None:
    await recorded(parts[0], 1, 2)
    await recorded(parts[1], 3, closed=False, ended=False)
    await gathered(log, *urls)
    before = rows(store)
    for _ in range(2):
        done = await gathered(log, *reversed(urls))
        assert rows(store) == before
        assert [(e.events, e.before) for part in done.parts for e in part.recorders] == [(0, 12)] * 3
        assert done.head == done.head_before


async def test_a_part_is_not_changed(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    await recorded(parts[0], 1, 2)
    await recorded(parts[1], 3, closed=False, ended=False)
    before = [rows(url) for url in urls]
    await gathered(log, *urls)
    assert [rows(url) for url in urls] == before


async def test_what_is_gathered_can_be_gathered(
    log: EventLog, stores: Stores, parts: list[EventLog], urls: list[str]
) -> None:
    for number, part in enumerate(parts):
        await recorded(part, number)
    between = stores.fresh()
    async with EventLog.open(between) as half:
        await gathered(half, *urls[:2])
        await gathered(log, *urls[1:], between)
        assert await content(half) == {**await content(parts[0]), **await content(parts[1])}
    assert (len(await content(log)), await problems(log)) == (36, [])


async def test_every_value_an_event_may_have_is_kept(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    of = await parts[0].create_experiment("e1")
    first = await parts[0].register(of, role="messager")
    hostile = [
        sent(n, payload, channel.decode("utf-8", "surrogateescape"), from_id=agent)
        for n, (payload, channel, agent) in enumerate(
            zip(HOSTILE_PAYLOADS, HOSTILE_CHANNELS, HOSTILE_IDS, strict=False)
        )
    ]
    large = sent(99, b"x" * 100_000, duration_ns=5, receivers=6, msg_id="m", messager="M1", arrival=8, origin=("u", 9))
    await parts[0].append(first, [*hostile, large])
    second = await parts[0].register(of, role="messager")
    await parts[0].append(second, [NewEvent("failed", 100, "c", b"", cause=(1, 2)), sent(101, messager="M2")])
    await gathered(log, urls[0])
    assert await content(log) == await content(parts[0])
    assert [p for p in await problems(log) if "uncleanly" not in p] == []


async def test_a_part_that_is_still_recorded_is_continued_later(
    log: EventLog, parts: list[EventLog], urls: list[str]
) -> None:
    of = await recorded(parts[0], 1, closed=False, ended=False)
    await recorded(parts[1], 2)
    done = await gathered(log, *urls)
    assert (done.status, done.parts[0].recorders[0].ended, await problems(log)) == ("open", False, [])
    [row] = await parts[0].recorders(of)
    writer = await parts[0].take_over(row.uuid)
    await parts[0].append(writer, [sent(NOW + 5)])
    await parts[0].touch(writer, ended_at=NOW + 20 * SECOND)
    late = await recorder_of(parts[0], of, batches_of(9))
    await close(parts[0], of)
    done = await gathered(log, *urls)
    assert [(e.ordinal, e.ordinal_here, e.events, e.before) for part in done.parts for e in part.recorders] == [
        (1, 1, 1, 12), (2, 3, 12, 0), (1, 2, 0, 12),
    ]  # fmt: skip
    assert (done.status, await content(log)) == ("closed", {**await content(parts[0]), **await content(parts[1])})
    assert late in {row.uuid for row in await log.recorders()}
    assert await problems(log) == []


@pytest.mark.parametrize("more", [[], [sent(NOW + 5)]])
async def test_an_older_copy_brings_nothing_back_and_takes_no_end_back(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str], more: list[NewEvent]
) -> None:
    of = await recorded(parts[0], 1, closed=False, ended=False)
    await gathered(parts[1], urls[0])  # as it was
    [row] = await parts[0].recorders(of)
    writer = await parts[0].take_over(row.uuid)
    if more:
        await parts[0].append(writer, more)
    await parts[0].touch(writer, ended_at=NOW + 20 * SECOND)
    await gathered(log, urls[0])
    before = rows(store)
    done = await gathered(log, urls[1])
    assert rows(store) == before
    assert [(e.events, e.before, e.ended) for e in done.parts[0].recorders] == [(0, 12, False)]


@pytest.mark.sqlite
async def test_a_copy_of_the_first_part_may_be_the_target(tmp_path: Path, migrated_file: str) -> None:
    names = [str(tmp_path / f"{name}.db") for name in ("a", "b", "all")]
    for name in names[:2]:
        shutil.copyfile(migrated_file, name)
    async with EventLog.open(names[0]) as first, EventLog.open(names[1]) as second:
        of = await recorded(first, 1, closed=False, ended=False)
        await recorded(second, 2)
        with (
            contextlib.closing(sqlite3.connect(names[0])) as there,
            contextlib.closing(sqlite3.connect(names[2])) as to,
        ):
            there.backup(to)
        [row] = await first.recorders(of)
        writer = await first.take_over(row.uuid)
        await first.append(writer, [sent(NOW + 5)])
        await first.touch(writer, ended_at=NOW + 20 * SECOND)
        await close(first, of)
        async with EventLog.open(names[2]) as log:
            done = await gathered(log, *names[:2])
            assert (done.status, len(await content(log)), await problems(log)) == ("closed", 25, [])


@pytest.mark.parametrize(
    ("change", "named", "kept"),
    [
        ("UPDATE event SET payload = x'00' WHERE id & 1099511627775 = 6", "the event of seq 6 was changed", 4),
        ("DELETE FROM event WHERE id & 1099511627775 = 8", "batch at seq 5: the event of seq 8 is missing", 4),
        ("DELETE FROM batch WHERE first_seq = 5", "the batch after seq 4 starts at 9", 4),
        ("DELETE FROM batch WHERE first_seq = 9", "its row says last_seq 12, it is 8", 8),
        ("UPDATE batch SET count = 'many' WHERE first_seq = 5", "count is not an integer", 4),
        ("UPDATE recorder SET started_at = 1", "its row was changed: it does not have its seal", 12),
    ],
)
async def test_of_a_damaged_recorder_the_batches_before_the_damage_are_copied(
    log: EventLog, parts: list[EventLog], urls: list[str], change: str, named: str, kept: int
) -> None:
    await recorded(parts[0], 1)
    whole = await content(parts[0])
    await gathered(parts[2], urls[0])  # an intact copy
    await recorded(parts[1], 2)
    sql(urls[0], change)
    done = await gathered(log, *urls[:2])
    [damaged], [intact] = (part.recorders for part in done.parts)
    assert named in (damaged.damage or "") and (damaged.events, done.parts[0].failed) == (kept, True)
    assert (intact.damage, intact.events, done.status) == (None, 12, "open")
    expected = {key: value for key, value in whole.items() if key[1] <= kept}
    assert await content(log) == {**expected, **await content(parts[1])}
    assert await problems(log) == []
    done = await gathered(log, *urls[1:])
    assert (done.status, await content(log)) == ("closed", {**whole, **await content(parts[1])})
    assert done.head == head_of([*await parts[1].recorders(), *await parts[2].recorders()])
    assert await problems(log) == []


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ("UPDATE recorder SET last_seq = last_seq + 1", "closed"),
        pytest.param("UPDATE event SET ts = ts + 1 WHERE id & 1099511627775 = 13", "closed", marks=pytest.mark.nightly),
        ("UPDATE event SET ts = ts + 1 WHERE id & 1099511627775 = 14", "open"),
    ],
)
async def test_only_confirmed_batches_open_what_is_closed(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str], change: str, kept: str
) -> None:
    of = await recorded(parts[0], 1)
    await gathered(log, urls[0])
    before = rows(store)
    sql(urls[0], "UPDATE experiment SET status = 'open', closed_at = NULL")
    [row] = await parts[0].recorders(of)
    if "= 1" in change:
        writer = await parts[0].take_over(row.uuid)
        for at in (5, 6):
            await parts[0].append(writer, [sent(NOW + at)])
    sql(urls[0], change)
    done = await gathered(log, urls[0])
    assert done.parts[0].recorders[0].damage is not None
    assert (done.status, await problems(log)) == (kept, [])
    assert (rows(store) == before) == (kept == "closed")
    assert [row.state for row in await log.recorders()] == ["ended" if kept == "closed" else "incomplete"]


async def test_a_cause_of_an_unknown_recorder_is_damage(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    of = await recorded(parts[0], 1, closed=False, ended=False)
    [row] = await parts[0].recorders(of)
    writer = await parts[0].take_over(row.uuid)
    writer.uuids[7] = "unknown"  # its hashes are consistent
    await parts[0].append(writer, [NewEvent("failed", NOW + 9, "c0", b"", cause=(7, 1))])
    await parts[0].touch(writer, ended_at=NOW + 20 * SECOND)
    await recorded(parts[1], 2)
    done = await gathered(log, *urls)
    assert [(e.damage, e.events) for part in done.parts for e in part.recorders] == [
        ("the cause of the event of seq 13 is of an unknown recorder", 12), (None, 12),
    ]  # fmt: skip
    assert await problems(log) == []
