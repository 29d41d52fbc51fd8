"""Gathering: who may append, when an experiment is open or closed, what a dry run writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from messager_store import EventLog, NewEvent
from messager_store.errors import RecorderFenced, StoreError
from messager_store.formats.gather import gather
from messager_store.projection.tables import table
from messager_store.recording.closing import close
from messager_store.recording.draining import drain
from messager_store.recording.spool import Spool
from tests.support.logs import sent
from tests.support.parts import (
    NOW,
    batches_of,
    content,
    gathered,
    head,
    problems,
    recorded,
    recorder_of,
    refused,
    rows,
)


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
    closed = await head(log)
    again = await gathered(log, *urls)
    assert (again.closed_before, again.status, again.head) == (True, "closed", closed)
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


async def test_a_sending_and_its_reception_meet(log: EventLog, parts: list[EventLog], urls: list[str]) -> None:
    of = await parts[0].create_experiment("e1")
    await recorder_of(parts[0], of, [[sent(NOW + 1, b"hi")]])
    other = await parts[1].create_experiment("e1")
    await recorder_of(parts[1], other, [[NewEvent("received", NOW + 9, "c", b"hi")]])
    for part, its in ((parts[0], of), (parts[1], other)):
        await close(part, its)
    for url in urls[:2]:
        await gathered(log, url)
    [row] = (await table(log, await log.experiment("e1"))).to_pylist()
    assert (row["ts"], row["copies"]) == (NOW + 1, 1)


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
