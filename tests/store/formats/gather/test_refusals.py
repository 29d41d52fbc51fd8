"""Gathering names the parts that it refuses, and what was redacted stays so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog
from messager_store.formats.gather import GatheredPart, gather
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify
from tests.support import sql
from tests.support.logs import sent
from tests.support.parts import (
    NOW,
    SECOND,
    batches_of,
    content,
    erased,
    gathered,
    head,
    problems,
    recorded,
    recorder_of,
    refused,
    rows,
)


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
    sql(urls[1], "UPDATE alembic_version SET version_num = '0003'")
    reasons = await refused(log, str(tmp_path / "none.db"), str(tmp_path / "x.db"), urls[1], urls[0])
    assert len(reasons) == 3 and len(await content(log)) == 12
    for reason, word in zip(reasons, ("there is no store", "not a messager store", "another version"), strict=True):
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
    before = rows(store)
    [reason] = await refused(log, *urls)
    assert "differs at seq 12" in reason and "messager rm" in reason
    assert rows(store) == before
    await erased(parts[1], "2.0.1")
    assert len(await refused(log, *urls)) == 2 and rows(store) == before
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
    [damaged] = done.parts[0].recorders
    assert "the event of seq 6 was changed" in (damaged.damage or "")
    assert await problems(log) == []
    await gathered(log, urls[2])
    verdict = await verify(log, await log.experiment("e1"))
    assert (verdict.problems, len(verdict.notes)) == ([], 2)
    assert await head(log) == await head(parts[2])
