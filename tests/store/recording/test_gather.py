"""Gathering: the parts of an experiment in several stores become one, each batch once."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from messager_store import EventLog, Experiment, NewEvent
from messager_store.errors import RecorderFenced, StoreError
from messager_store.log.chain import Identity, head_of
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify, verify_all
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.recording import chain_copy
from messager_store.recording.closing import close
from messager_store.recording.draining import drain
from messager_store.recording.gather import GatheredExperiment, GatheredPart, gather
from messager_store.recording.repair import repair
from messager_store.recording.spool import Spool
from messager_store.testing import Databases
from tests.support import HOSTILE_CHANNELS, HOSTILE_IDS, HOSTILE_PAYLOADS, Stores, sql
from tests.support.logs import sent

pytestmark = pytest.mark.any_database

NOW = 1_790_000_000_000_000_000
"""A time at which no test runs: the recorders of these tests say when they were alive."""
SECOND = 1_000_000_000
TABLES = ("experiment", "tag", "recorder", "name", "batch", "event", "delivery", "redaction")


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Iterator[Stores]:
    """Factory of parts: SQLite files for a target in PostgreSQL, and the reverse."""
    folder = tmp_path / "parts"
    folder.mkdir()
    if request.node.callspec.params["stores"] == "postgres":
        made = Stores(folder, None, request.getfixturevalue("migrated_file"))
    else:
        databases: Databases = request.getfixturevalue("databases")
        made = Stores(folder, databases, request.getfixturevalue("migrated"))
    yield made
    made.remove()


@pytest.fixture
def urls(elsewhere: Stores) -> list[str]:
    """Three stores on other machines."""
    return [elsewhere.fresh() for _ in range(3)]


@pytest.fixture
async def parts(urls: list[str]) -> AsyncIterator[list[EventLog]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(EventLog.open(url)) for url in urls]


async def recorder_of(
    log: EventLog, of: Experiment, batches: list[list[NewEvent]], *, ended: bool = True, at: int = NOW, **more: Any
) -> str:
    """Add a recorder that was alive for ten seconds; return its uuid."""
    row = {"started_at": at, "host": "elsewhere", "pid": 7, "boot_id": "b", **more}
    writer = await log.register(of, role="messager", row=row, spool="/nowhere/spool")
    for events in batches:
        await log.append(writer, events)
    columns = {"heartbeat_at": at + 10 * SECOND, "complete_until": at}
    await log.touch(writer, **columns, **({"ended_at": at + 10 * SECOND} if ended else {}))
    return writer.uuid


def batches_of(number: int, count: int = 3, size: int = 4) -> list[list[NewEvent]]:
    """Return batches of messages that name the recorder, of failures with their causes, and of receptions."""
    found = []
    for part in range(count):
        at = NOW + part * SECOND + number
        events = [
            sent(at + n, b'{"content": "%d.%d.%d"}' % (number, part, n), f"c{n % 2}", from_id=number, to_id=str(n))
            for n in range(size - 2)
        ]
        events.append(NewEvent("failed", at + 8, "c0", b"", cause=(0, part * size + 1), meta={"outcome": "unknown"}))
        events.append(NewEvent("received", at + 50, "c0", b'{"content": "%d.%d.0"}' % (number - 1, part)))
        found.append(events)
    return found


async def recorded(log: EventLog, *numbers: int, exp_id: str = "e1", closed: bool = True, **more: Any) -> Experiment:
    """Record an experiment with a recorder for each number."""
    meta = {"seed": 7, "host": f"h{numbers}"}
    of = await log.create_experiment(exp_id, name="n", tags=[f"t{numbers[0]}"], meta=meta)
    for number in numbers:
        await recorder_of(log, of, batches_of(number), **more)
    if closed:
        await close(log, of)
    return await log.experiment(exp_id)


async def gathered(log: EventLog, *stores: str, **options: Any) -> GatheredExperiment:
    """Gather into a log; return the result of the only experiment."""
    [done] = [each async for each in gather(log, stores, **options)]
    assert isinstance(done, GatheredExperiment)
    return done


async def refused(log: EventLog, *stores: str, **options: Any) -> list[str]:
    """Gather into a log; return the reasons why parts were refused."""
    reasons = []
    async for done in gather(log, stores, **options):
        for part in done.parts if isinstance(done, GatheredExperiment) else [done]:
            assert part.failed == (part.reason is not None and not part.skipped)
            reasons += [part.reason] if part.reason is not None else []
    return reasons


async def content(log: EventLog, exp_id: str = "e1") -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the events by recorder uuid and seq, with causes that name uuids."""
    of = await log.experiment(exp_id)
    uuids = {row.ordinal: row.uuid for row in await log.recorders(of)}
    found = {}
    async for e in log.read(of):
        cause = None if e.cause is None else (uuids[e.cause[0]], e.cause[1])
        fields = (e.ts, e.kind, e.channel, e.payload, e.from_id, e.to_id, e.flags, e.msg_id, e.duration_ns)
        found[uuids[e.recorder], e.seq] = (*fields, e.receivers, cause, e.meta, e.messager, e.arrival, e.origin)
    return found


async def head(log: EventLog, exp_id: str = "e1") -> str:
    of = await log.experiment(exp_id)
    return head_of(of, await log.recorders(of))


def rows(store: str) -> dict[str, list[Any]]:
    """Return every row of a store."""
    return {table: sorted(sql(store, f"SELECT * FROM {table}"), key=repr) for table in TABLES}


def log_rows(store: str) -> dict[str, list[Any]]:
    """Return every row of a store that is part of the log."""
    return {table: found for table, found in rows(store).items() if table != "delivery"}


async def problems(log: EventLog) -> list[str]:
    return [problem for verdict in [v async for v in verify_all(log)] for problem in verdict.problems]


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


async def test_the_head_does_not_depend_on_the_order(
    log: EventLog, stores: Stores, parts: list[EventLog], urls: list[str]
) -> None:
    for number, part in enumerate(parts):
        await recorded(part, 2 * number, 2 * number + 1)
    await gathered(log, *urls)
    async with EventLog.open(stores.fresh()) as other:
        for url in reversed(urls):
            await gathered(other, url)
        assert await head(other) == await head(log)
        assert await content(other) == await content(log)
        assert await problems(other) == []


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


async def test_an_older_copy_brings_nothing_back(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str]
) -> None:
    of = await recorded(parts[0], 1, closed=False, ended=False)
    await gathered(parts[1], urls[0])  # as it was
    [row] = await parts[0].recorders(of)
    writer = await parts[0].take_over(row.uuid)
    await parts[0].append(writer, [sent(NOW + 5)])
    await parts[0].touch(writer, ended_at=NOW + 20 * SECOND)
    await gathered(log, urls[0])
    before = rows(store)
    done = await gathered(log, urls[1])
    assert rows(store) == before
    assert [(e.events, e.before) for e in done.parts[0].recorders] == [(0, 12)]


async def test_the_end_of_a_recorder_is_not_taken_back(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str]
) -> None:
    of = await recorded(parts[0], 1, closed=False, ended=False)
    await gathered(parts[1], urls[0])  # as it was
    [row] = await parts[0].recorders(of)
    await parts[0].touch(await parts[0].take_over(row.uuid), ended_at=NOW + 20 * SECOND)
    await gathered(log, urls[0])
    before = rows(store)
    done = await gathered(log, urls[1])
    assert rows(store) == before
    assert [part.recorders[0].ended for part in done.parts] == [False]


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
        ("UPDATE event SET ts = ts + 1 WHERE id & 1099511627775 = 12", "the event of seq 12 was changed", 8),
        ("DELETE FROM event WHERE id & 1099511627775 = 5", "events of the batch at seq 5 are missing", 4),
        ("DELETE FROM batch WHERE first_seq = 5", "the batch after seq 4 starts at 9", 4),
        ("DELETE FROM batch WHERE first_seq = 9", "its batches end at seq 8, its row says 12", 8),
        ("UPDATE batch SET unacknowledged = 7 WHERE first_seq = 5", "at seq 5 does not continue the chain", 4),
        ("UPDATE batch SET min_ts = 7 WHERE first_seq = 1", "at seq 1 does not continue the chain", 0),
        ("UPDATE batch SET checks = x'00' WHERE first_seq = 5", "the event of seq 5 was changed", 4),
        ("UPDATE name SET value = CAST('c9' AS BLOB) WHERE text = 'c0'", "the event of seq 1 was changed", 0),
        ("UPDATE recorder SET sent_count = 99", "its row says another sent_count than its events", 12),
        ("UPDATE recorder SET head_hash = x'00'", "its row says another head_hash than its events", 12),
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
    assert await problems(log) == []


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ("UPDATE recorder SET last_seq = last_seq + 1", "closed"),
        ("UPDATE event SET ts = ts + 1 WHERE id & 1099511627775 = 13", "closed"),
        ("UPDATE event SET ts = ts + 1 WHERE id & 1099511627775 = 14", "open"),
    ],
)
async def test_only_confirmed_batches_open_what_is_closed(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str], change: str, kept: str
) -> None:
    of = await recorded(parts[0], 1)
    await gathered(log, urls[0])
    before = log_rows(store)
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
    assert (log_rows(store) == before) == (kept == "closed")
    assert [row.state for row in await log.recorders()] == ["ended" if kept == "closed" else "incomplete"]


async def test_a_cause_of_an_unknown_recorder_is_damage(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    of = await recorded(parts[0], 1, closed=False, ended=False)
    [row] = await parts[0].recorders(of)
    writer = await parts[0].take_over(row.uuid)
    writer.identities[7] = Identity(99, 7, b"")  # its hashes are consistent
    await parts[0].append(writer, [NewEvent("failed", NOW + 9, "c0", b"", cause=(7, 1))])
    await parts[0].touch(writer, ended_at=NOW + 20 * SECOND)
    await recorded(parts[1], 2)
    done = await gathered(log, *urls)
    assert [(e.damage, e.events) for part in done.parts for e in part.recorders] == [
        ("the cause of the event of seq 13 is of an unknown recorder", 12), (None, 12),
    ]  # fmt: skip
    assert await problems(log) == []


async def test_a_store_given_twice_and_the_target_are_skipped(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str]
) -> None:
    await recorded(parts[0], 1)
    done = [each async for each in gather(log, [urls[0], store, urls[0]])]
    assert [(each.reason, each.skipped, each.failed) for each in done if isinstance(each, GatheredPart)] == [
        ("it is the store to gather into", True, False),
        ("it was given twice", True, False),
    ]
    assert len(await content(log)) == 12


async def test_what_is_not_a_store_is_named_and_the_others_are_gathered(
    log: EventLog, tmp_path: Path, parts: list[EventLog], urls: list[str]
) -> None:
    await recorded(parts[0], 1)
    (tmp_path / "x.db").write_text("something else")
    sql(urls[1], "UPDATE alembic_version SET version_num = '0002'")
    reasons = await refused(log, str(tmp_path / "none.db"), str(tmp_path / "x.db"), urls[1], urls[0])
    assert len(reasons) == 3 and len(await content(log)) == 12
    for reason, word in zip(reasons, ("there is no store", "not a messager store", "messager unpack"), strict=True):
        assert word in reason


async def test_parts_recorded_at_other_times_need_force(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    await recorded(parts[0], 1)
    of = await parts[1].create_experiment("e1")
    await recorder_of(parts[1], of, [[sent(NOW + 3600 * SECOND)]], at=NOW + 3600 * SECOND)
    [reason] = await refused(log, *urls)
    assert "was recorded 3,590.0 s after" in reason and "--force" in reason and "another --store" in reason
    assert await content(log) == await content(parts[0])
    assert await refused(log, *urls, force=True) == []
    assert await content(log) == {**await content(parts[0]), **await content(parts[1])}
    assert await refused(log, *urls) == [], "what was gathered once belongs to it"


async def test_a_part_that_overlaps_with_another_belongs_to_both(
    log: EventLog, parts: list[EventLog], urls: list[str]
) -> None:
    for number, part in zip((0, 2, 1), parts, strict=True):
        of = await part.create_experiment("e1")
        at = NOW + number * 8 * SECOND
        await recorder_of(part, of, [[sent(at)]], at=at)
    assert await refused(log, *urls) == []
    assert len(await content(log)) == 3


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ({"meta": {"seed": 1}}, {"meta": {"seed": 2}}, "another meta than that in .* \\(seed\\)"),
        ({"name": "a"}, {"name": "b"}, "is named 'b', that in .* 'a'"),
    ],
)
async def test_parts_that_contradict_each_other_need_force(
    log: EventLog, parts: list[EventLog], urls: list[str], first: Any, second: Any, named: str
) -> None:
    for part, described in ((parts[0], first), (parts[1], second)):
        of = await part.create_experiment("e1", **described)
        await recorder_of(part, of, [[sent(NOW)]])
    [reason] = await refused(log, *urls)
    assert re.search(named, reason) and "--force" in reason
    assert await refused(log, *urls, force=True) == []
    of = await log.experiment("e1")
    assert (of.name, of.meta) == (first.get("name"), first.get("meta", {})), "the first one's wins"


async def test_what_hosts_note_about_themselves_is_no_contradiction(
    log: EventLog, parts: list[EventLog], urls: list[str]
) -> None:
    for number, part in enumerate(parts):
        noted = {"host": f"h{number}", "command": ["python", str(number)], "git": {"dirty": bool(number)}}
        of = await part.create_experiment("e1", meta={**noted, f"k{number}": number})
        await recorder_of(part, of, [[sent(NOW)]])
    assert await refused(log, *urls) == []
    assert (await log.experiment("e1")).meta.keys() == {"host", "command", "git", "k0", "k1", "k2"}


async def test_forks_of_two_experiments_are_never_merged(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str]
) -> None:
    for number, part in enumerate(parts[:2]):
        await recorded(part, number)
        sql(urls[number], f"UPDATE experiment SET parent_exp_id = 'p{number}', parent_cursor = '1:u:1'")
    await recorded(parts[2], 3)
    [reason] = await refused(log, *urls, force=True)
    assert "forked from another experiment" in reason
    assert sql(store, "SELECT parent_exp_id FROM experiment") == [("p0",)]
    assert len(await content(log)) == 24


async def test_an_experiment_begun_before_revision_3_is_refused(
    log: EventLog, parts: list[EventLog], urls: list[str]
) -> None:
    await recorded(parts[0], 1)
    sql(urls[0], "UPDATE experiment SET schema_version = 2")
    await recorded(parts[1], 2)
    [reason] = await refused(log, *urls)
    assert "before revision 0003" in reason and "messager pack" in reason
    assert await content(log) == await content(parts[1])
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE experiment SET schema_version = 2")
    assert len(await refused(log, *urls)) == 2


async def test_a_recorder_of_an_earlier_chain_is_refused(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str]
) -> None:
    await recorded(parts[0], 1)
    await recorded(parts[1], 2)
    sql(urls[0], "UPDATE recorder SET chain_version = 2")
    [reason] = await refused(log, *urls)
    assert "before revision 0003" in reason and "messager pack" in reason
    assert await content(log) == await content(parts[1])
    sql(store, "UPDATE recorder SET chain_version = 2")
    assert len(await refused(log, *urls)) == 2


async def test_a_recorder_that_is_in_another_experiment_is_refused(
    log: EventLog, parts: list[EventLog], urls: list[str]
) -> None:
    await recorded(parts[0], 1)
    await gathered(log, urls[0])
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE experiment SET exp_id = 'other'")
    [reason] = await refused(log, urls[0])
    assert "in the experiment 'other'" in reason and "another --store" in reason
    assert [of.exp_id for of in await log.experiments()] == ["other"]


async def erased(log: EventLog, text: str, exp_id: str = "e1") -> None:
    done = await redact(log, exp_id, RedactionFilter(contains=(text,)), who="me", why="asked")
    assert done.events > 0


async def test_redactions_of_the_parts_come_along_once(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    for number, part in enumerate(parts):
        await recorded(part, 2 * number, 2 * number + 1)
    await erased(parts[0], "0.1.0")
    await erased(parts[0], "1.2.1")
    await erased(parts[2], "5.0.0")
    heads = [row.head_hash for part in parts for row in await part.recorders()]
    for _ in range(2):
        assert await refused(log, *urls) == []
        verdict = await verify(log, await log.experiment("e1"))
        assert (verdict.problems, len(verdict.notes)) == ([], 3)
        assert [row.head_hash for row in await log.recorders()] == heads
    await erased(log, "3.1.1")  # in a part that has no redactions
    await erased(log, "0.2.0")
    verdict = await verify(log, await log.experiment("e1"))
    assert (verdict.problems, len(verdict.notes)) == ([], 5)


async def test_what_was_redacted_since_is_not_brought_back(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str]
) -> None:
    await recorded(parts[0], 1)
    await recorded(parts[1], 2)
    await gathered(log, *urls)
    await erased(log, "1.1.1")
    before = log_rows(store)
    [reason] = await refused(log, *urls)
    assert "differs at seq 12" in reason and "messager rm" in reason
    assert log_rows(store) == before
    await erased(parts[1], "2.0.1")
    assert len(await refused(log, *urls)) == 2 and log_rows(store) == before
    await remove(log, await log.experiment("e1"))
    assert await refused(log, *urls) == []
    assert await problems(log) == []


async def test_redactions_of_other_recorders_in_the_target_and_in_a_part_do_not_exclude_each_other(
    log: EventLog, parts: list[EventLog], urls: list[str]
) -> None:
    of = await recorded(parts[0], 1, closed=False)
    await recorded(parts[1], 2)
    for url in urls[:2]:
        await gathered(log, url)
    await erased(log, "2.1.0")
    await recorder_of(parts[0], of, batches_of(9))
    await erased(parts[0], "9.1.0")
    assert await refused(log, urls[0]) == []
    await erased(log, "2.2.0")
    verdict = await verify(log, await log.experiment("e1"))
    assert (verdict.problems, len(verdict.notes)) == ([], 3)


async def test_redactions_keep_their_order_over_all_origins(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str]
) -> None:
    for number, part in enumerate(parts[:2]):
        await recorded(part, number)
        await erased(part, f"{number}.1.0")
    for url in reversed(urls[:2]):
        await gathered(log, url)
    await erased(log, "0.0.1")
    assert await problems(log) == []
    for _ in range(2):
        assert await refused(parts[2], store) == []
        verdict = await verify(parts[2], await parts[2].experiment("e1"))
        assert (verdict.problems, len(verdict.notes)) == ([], 3)


async def test_a_redaction_behind_damage_comes_with_an_intact_copy(
    log: EventLog, parts: list[EventLog], urls: list[str]
) -> None:
    await recorded(parts[0], 1)
    await erased(parts[0], "1.2.0")
    await erased(parts[0], "1.2.1")
    await gathered(parts[2], urls[0])  # an intact copy
    sql(urls[0], "UPDATE event SET ts = ts + 1 WHERE id & 1099511627775 = 6")
    done = await gathered(log, urls[0])
    assert [each.damage for each in done.parts[0].recorders] == ["the event of seq 6 was changed"]
    assert await problems(log) == []
    await gathered(log, urls[2])
    verdict = await verify(log, await log.experiment("e1"))
    assert (verdict.problems, len(verdict.notes)) == ([], 2)
    assert await head(log) == await head(parts[2])


async def test_nobody_else_appends_to_a_gathered_recorder(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str]
) -> None:
    of = await parts[0].create_experiment("e1")
    uuid = await recorder_of(parts[0], of, [[sent(1)]], ended=False)
    writer = await parts[0].take_over(uuid)
    await gathered(log, urls[0])
    with pytest.raises(RecorderFenced, match="gathered from another store"):
        await log.take_over(uuid)
    here = await log.experiment("e1")
    with pytest.raises(RecorderFenced):
        await log.register(here, role="messager", name=uuid)
    [row] = await log.recorders(here)
    stray = await log.register(here, role="tap")
    stray.id, stray.uuid, stray.last_seq, stray.head_hash = row.id, row.uuid, row.last_seq, row.head_hash
    for epoch in range(1, 5):
        stray.epoch = epoch
        with pytest.raises(RecorderFenced):
            await log.append(stray, [sent(2)])
    await parts[0].append(writer, [sent(2)])
    assert len(await content(log)) == 1 and len(await content(parts[0])) == 2


async def test_a_spool_of_a_gathered_recorder_is_kept_for_its_own_store(
    log: EventLog, tmp_path: Path, parts: list[EventLog], urls: list[str]
) -> None:
    of = await parts[0].create_experiment("e1")
    uuid = await recorder_of(parts[0], of, [[sent(1)]], ended=False)
    folder = tmp_path / "spools"
    folder.mkdir()
    await gathered(log, urls[0])
    for store, word in (("/elsewhere/a.db", "was gathered"), (parts[0].location, "Drain it into that one")):
        (folder / f"{uuid}.spool").unlink(missing_ok=True)
        spool = Spool(folder / f"{uuid}.spool", {"recorder": uuid, "exp_id": "e1", "store": store})
        spool.write(2, [sent(2)], 2)
        spool.close()
        [kept] = [done async for done in drain(log, folder)]
        assert kept.reason is not None and word in kept.reason and kept.left == 1
    [drained] = [done async for done in drain(parts[0], folder)]
    assert (drained.reason, drained.events) == (None, 1)
    await gathered(log, urls[0])
    assert await content(log) == await content(parts[0])


async def test_what_is_closed_is_open_while_more_is_gathered(
    log: EventLog, parts: list[EventLog], urls: list[str]
) -> None:
    for number, part in enumerate(parts):
        await recorded(part, number, closed=number < 2, ended=number < 2)
    first = await gathered(log, urls[0])
    done = await gathered(log, urls[1])
    assert (done.closed_before, done.head_before, done.status) == (True, first.head, "closed")
    assert done.head != first.head
    last = await gathered(log, urls[2])
    assert (last.closed_before, last.head_before, last.status) == (True, done.head, "open")
    with pytest.raises(StoreError, match="gathered without its end"):
        await close(log, await log.experiment("e1"))
    await close(log, await log.experiment("e1"), force=True)
    again = await gathered(log, *urls)
    assert (again.closed_before, again.status, again.head) == (True, "closed", last.head)
    assert await problems(log) == []


async def test_what_parts_left_open_is_not_closed_by_others(
    log: EventLog, parts: list[EventLog], urls: list[str]
) -> None:
    of = await recorded(parts[0], 1, closed=False)  # its recorder has ended; more will come
    await recorded(parts[1], 2)
    await gathered(log, urls[0])
    assert (await gathered(log, urls[1])).status == "open"
    await recorder_of(parts[0], of, batches_of(9))
    assert (await gathered(log, *urls)).status == "open"
    await close(parts[0], of)
    assert (await gathered(log, urls[0])).status == "open", "the other part was not given"
    assert (await gathered(log, *urls)).status == "closed"
    assert await problems(log) == []


@pytest.mark.parametrize("numbers", [(), (5,)])
async def test_what_is_recorded_into_the_target_is_not_closed(
    log: EventLog, parts: list[EventLog], urls: list[str], numbers: tuple[int, ...]
) -> None:
    of = await log.create_experiment("e1")
    for number in numbers:
        await recorder_of(log, of, batches_of(number))
    await recorded(parts[0], 1)
    for _ in range(1 + len(numbers)):
        assert (await gathered(log, urls[0])).status == "open"


async def test_a_tag_that_was_removed_does_not_come_back(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    of = await recorded(parts[0], 1, closed=False)
    await gathered(log, urls[0])
    await log.tag(await log.experiment("e1"), remove=["t1"])
    await gathered(log, urls[0])
    assert (await log.experiment("e1")).tags == []
    await parts[0].tag(of, add=["t2"])
    await recorder_of(parts[0], of, batches_of(9))
    await gathered(log, urls[0])
    assert "t2" in (await log.experiment("e1")).tags


async def test_an_unclean_end_in_a_part_is_reported(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    of = await recorded(parts[0], 1, closed=False, ended=False, at=1_700_000_000 * SECOND)
    done = await gathered(log, urls[0])
    assert [(e.ended, e.unclean) for e in done.parts[0].recorders] == [(False, True)]
    await repair(parts[0], of)
    done = await gathered(log, urls[0])
    assert [(e.ended, e.unclean) for e in done.parts[0].recorders] == [(True, False)] * 2
    assert await problems(log) == []


async def test_a_sending_and_its_reception_meet(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str]
) -> None:
    of = await parts[0].create_experiment("e1")
    await recorder_of(parts[0], of, [[sent(NOW + 1, b"hi")]])
    other = await parts[1].create_experiment("e1")
    await recorder_of(parts[1], other, [[NewEvent("received", NOW + 9, "c", b"hi")]])
    for part, its in ((parts[0], of), (parts[1], other)):
        await close(part, its)
    for url in urls[:2]:
        await gathered(log, url)
    assert sql(store, "SELECT received_at FROM message") == [(NOW + 9,)]


async def test_only_the_chosen_experiments_are_gathered(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    for number, exp_id in enumerate(("e1", "e2", "e3")):
        await recorded(parts[0], number, exp_id=exp_id)
    done = [each.exp_id async for each in gather(log, urls, exp_ids=["e3", "e1"])]
    assert sorted(map(str, done)) == sorted(of.exp_id for of in await log.experiments()) == ["e1", "e3"]
    with pytest.raises(StoreError, match="no part has an experiment 'e4'"):
        await refused(log, *urls, exp_ids=["e4"])
    assert await refused(log, *urls) == []
    assert len(await log.experiments()) == 3


async def test_a_dry_run_writes_nothing(log: EventLog, store: str, parts: list[EventLog], urls: list[str]) -> None:
    await recorded(parts[0], 1)
    await recorded(parts[1], 2)
    await gathered(log, urls[0])
    before = rows(store)
    done = await gathered(log, *urls, dry_run=True)
    assert [(e.events, e.before, e.ordinal_here) for part in done.parts for e in part.recorders] == [
        (0, 12, 1), (12, 0, None),
    ]  # fmt: skip
    assert rows(store) == before


class Killed(Exception):
    """The process ended at this point."""


@contextlib.contextmanager
def commits_limited(log: EventLog, limit: int) -> Iterator[Callable[[], int]]:
    """Context in which the transaction of this number is rolled back and raises `Killed`; yields their number."""
    whole, made = log.database.writing, 0

    @contextlib.asynccontextmanager
    async def writing(**options: Any) -> AsyncIterator[Any]:
        nonlocal made
        async with whole(**options) as connection:
            yield connection
            made += 1
            if made == limit:
                raise Killed

    with mock.patch.object(log.database, "writing", writing):
        yield lambda: made


@contextlib.contextmanager
def before_commits(log: EventLog, act: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Context in which `act` runs before every transaction, except those of its own."""
    whole, acting = log.database.writing, False

    @contextlib.asynccontextmanager
    async def writing(**options: Any) -> AsyncIterator[Any]:
        nonlocal acting
        if not acting:
            acting = True
            await act()
            acting = False
        async with whole(**options) as connection:
            yield connection

    with mock.patch.object(log.database, "writing", writing):
        yield


async def arrivals(log: EventLog) -> list[Any]:
    """Return the payload and the time of arrival of every message."""
    async with log.database.reading() as connection:
        found = await connection.exec_driver_sql("SELECT payload, received_at FROM message")
        return sorted(tuple(row) for row in found)


async def test_a_gather_that_ends_anywhere_is_completed_by_the_next_one(
    log: EventLog, stores: Stores, parts: list[EventLog], urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, part in enumerate(parts):
        await recorded(part, 2 * number, 2 * number + 1)
    await erased(parts[1], "2.1.0")
    monkeypatch.setattr(chain_copy, "FLUSH_EVENTS", 1)
    await gathered(log, *urls)
    limit = 0
    while True:
        limit += 1
        async with EventLog.open(stores.fresh()) as other:
            with commits_limited(other, limit) as made, contextlib.suppress(Killed):
                await gathered(other, *urls)
            for verdict in [v async for v in verify_all(other)]:
                assert [p for p in verdict.problems if "no redaction record matches it" not in p] == []
            await gathered(other, *urls)
            assert (await head(other), await problems(other)) == (await head(log), [])
            assert await content(other) == await content(log)
            assert await arrivals(other) == await arrivals(log)
        if made() < limit:
            break
    assert limit > 20


async def test_two_gathers_at_once_copy_every_batch_once(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, part in enumerate(parts):
        await recorded(part, 2 * number, 2 * number + 1)
    monkeypatch.setattr(chain_copy, "FLUSH_EVENTS", 1)
    async with EventLog.open(store) as other:
        await asyncio.gather(gathered(log, *urls), gathered(other, *reversed(urls)))
    done = await gathered(log, *urls)
    assert done.status == "closed" and sum(e.events for part in done.parts for e in part.recorders) == 0
    assert (len(await content(log)), await problems(log)) == (72, [])


@pytest.mark.parametrize("other", ["close", "remove"])
async def test_what_others_do_to_the_experiment_meanwhile_stops_it(
    log: EventLog, parts: list[EventLog], urls: list[str], monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    await recorded(parts[0], 1, 2)
    monkeypatch.setattr(chain_copy, "FLUSH_EVENTS", 1)
    turns = 0

    async def meddle() -> None:
        nonlocal turns
        turns += 1
        if turns == 4:
            of = await log.experiment("e1")
            await (close(log, of, force=True) if other == "close" else remove(log, of))

    with before_commits(log, meddle):
        done = await gathered(log, urls[0])
    assert turns > 4
    assert (done.status, len(await content(log)), await problems(log)) == ("closed", 24, [])


async def test_nothing_is_added_to_an_experiment_that_is_being_removed(
    log: EventLog, store: str, parts: list[EventLog], urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await recorded(parts[0], 1, 2)
    monkeypatch.setattr(chain_copy, "FLUSH_EVENTS", 1)
    events: list[int] = []

    async def begin_to_remove() -> None:
        events.append(sql(store, "SELECT count(*) FROM event")[0][0])
        if len(events) == 4:  # the first transaction of a removal
            sql(store, "UPDATE experiment SET status = 'removing'", "UPDATE recorder SET epoch = epoch + 1")

    with before_commits(log, begin_to_remove):
        [reason] = await refused(log, urls[0])
    assert "messager compact" in reason
    assert sql(store, "SELECT count(*) FROM event") == [(events[3],)]
