"""An experiment that was forked knows its parent, and keeps it wherever it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, Experiment, close
from messager_store.errors import BadCursor, ExperimentExists, ExperimentNotFound, StoreError
from messager_store.formats.gather import gather
from messager_store.formats.jsonl import export_jsonl, import_jsonl
from messager_store.formats.pack import pack, unpack
from messager_store.log.lineage import Parent, parent_of
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify
from messager_store.queries.overview import forks_of, listing, overview
from tests.support import Stores, nightly_after
from tests.support.lineage import fork, parent
from tests.support.logs import filled, listed, sent


async def origins(log: EventLog, exp_id: str = "exp-2") -> list[Any]:
    return [(entry.kind, entry.payload, entry.origin) for entry in await listed(log.read(exp_id))]


async def test_a_fork_knows_exp_id_head_and_cursor_of_its_parent(log: EventLog) -> None:
    of = await parent(log)
    uuids = [row.uuid for row in await log.recorders(of)]
    await fork(log)
    found = parent_of(await log.experiment("exp-2"))
    head = (await overview(log, of))["head"]
    assert found == Parent("exp-1", head, f"4:{uuids[1]}:2")
    assert found.position({uuid: ordinal for ordinal, uuid in enumerate(uuids, 1)}) == (4, 2, 2)
    assert parent_of(of) is None


@pytest.mark.parametrize(
    ("at", "cursor"),
    nightly_after(
        3,
        [
            ("mark:phase", (4, 2, 2)),
            (2, (2, 1, 2)),
            ("3:1:1", (3, 2, 1)),
            (None, (5, 2, 4)),
            (6, (5, 2, 4)),
            (0, (1, 1, 1)),
        ],
    ),
)
async def test_the_cursor_is_that_of_the_first_event_that_is_not_copied(
    log: EventLog, at: Any, cursor: tuple[int, int, int]
) -> None:
    of = await parent(log)
    ordinals = {row.uuid: row.ordinal for row in await log.recorders(of)}
    found = parent_of(await log.create_experiment("exp-2", parent="exp-1", at=at))
    assert found is not None and found.position(ordinals) == cursor


async def test_what_cannot_be_a_fork_is_refused_with_the_remedy(log: EventLog) -> None:
    await parent(log)
    await log.create_experiment("empty")
    await fork(log)
    for error, words, of, into, at in (
        (ExperimentExists, "'exp-2' exists already. Choose another", "exp-1", "exp-2", None),
        (ExperimentNotFound, "no experiment 'exp-9'", "exp-9", "exp-3", None),
        (StoreError, "'exp-1' cannot be a fork of itself. Choose another", "exp-1", "exp-1", None),
        (StoreError, "'empty' has no events", "empty", "exp-3", None),
        (StoreError, "cannot be an exp_id", "exp-1", "@x", None),
        (BadCursor, "no such mark; its marks are: phase", "exp-1", "exp-3", "mark:nope"),
    ):
        with pytest.raises(error, match=words):
            await log.create_experiment(into, parent=of, at=at)
    assert [of.exp_id for of in await log.experiments()] == ["exp-1", "empty", "exp-2"]


async def test_a_fork_is_clean_by_itself_also_without_its_parent(log: EventLog) -> None:
    of, forked = await parent(log), await fork(log)
    assert (await verify(log, forked)).problems == []
    before = await origins(log)
    await remove(log, of)
    assert (await verify(log, forked)).problems == []
    assert await origins(log) == before and [each[2] is None for each in before] == [False, False, False, True]


async def test_info_and_ls_know_both_sides(log: EventLog) -> None:
    of, forked = await parent(log), await fork(log)
    head, cursor = (await overview(log, of))["head"], (await log.experiment("exp-2")).parent_cursor
    told = await overview(log, forked)
    at = "1970-01-01T00:00:00.000000004Z"
    point = {"at": at, "point": "4:2:2"}
    known = {"exp_id": "exp-1", "head": head, "cursor": cursor}
    assert (told["parent"], told["forks"]) == ({**known, **point, "in_store": True, "head_unchanged": True}, [])
    assert ((await overview(log, of))["parent"], (await overview(log, of))["forks"]) == (
        None,
        [{"exp_id": "exp-2", **point}],
    )
    assert [row["parent"] for row in await listing(log, await log.experiments())] == [None, known]
    await log.register(of, role="tap")
    assert (await overview(log, forked))["parent"]["head_unchanged"] is False
    await remove(log, of)
    gone = {"in_store": False, "head_unchanged": None, "at": at, "point": None}
    assert (await overview(log, forked))["parent"] == {**known, **gone}
    await filled(log, [sent(4)], "exp-1")
    assert (await overview(log, forked))["parent"] == {**known, **gone}, "another experiment has its exp_id"


async def test_forks_are_found_by_their_parent_and_hidden_ones_are_not(log: EventLog) -> None:
    await parent(log)
    await fork(log)
    await fork(log, "exp-2", "exp-3", at=None)
    await fork(log, into="exp-4")
    assert [of.exp_id for of in await forks_of(log.database, ["exp-1"])] == ["exp-2", "exp-4"]
    assert [of.exp_id for of in await forks_of(log.database, ["exp-2", "exp-4"])] == ["exp-3"]
    async with log.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE experiment SET status = 'removing' WHERE exp_id = 'exp-4'")
    assert [of.exp_id for of in await forks_of(log.database, ["exp-1"])] == ["exp-2"]


async def refusals(target: EventLog, *stores: str, exp_id: str = "exp-2") -> list[str | None]:
    """Gather an experiment; return why each part was refused, None for each that was not."""
    found = [each async for each in gather(target, stores, exp_ids=[exp_id])]
    return [part.reason for each in found for part in getattr(each, "parts", [each])]


async def _packed(log: EventLog, other: EventLog, folder: Path) -> Experiment:
    await pack(log, "exp-2", folder / "a.pack")
    return await unpack(other, folder / "a.pack")


async def _exported(log: EventLog, other: EventLog, folder: Path) -> Experiment:
    await export_jsonl(log, "exp-2", folder / "a.jsonl")
    return await import_jsonl(other, folder / "a.jsonl", "exp-2")


async def _gathered(log: EventLog, other: EventLog, folder: Path) -> Experiment:
    assert await refusals(other, log.location) == [None]
    return await other.experiment("exp-2")


@pytest.mark.sqlite
@pytest.mark.parametrize("way", [_packed, _exported, _gathered])
async def test_lineage_survives_every_way_into_another_store(
    log: EventLog, other: EventLog, tmp_path: Path, way: Any
) -> None:
    await parent(log)
    forked = await fork(log)
    await close(log, forked)
    there = await way(log, other, tmp_path)
    assert parent_of(there) == parent_of(forked) is not None
    assert await origins(other) == await origins(log)
    assert (await verify(other, there)).problems == []
    assert (await overview(other, there))["parent"]["in_store"] is False


async def test_two_hosts_that_record_one_fork_are_gathered_into_it(stores: Stores) -> None:
    """Each host has a copy of the parent, so that both parts name the same head and cursor."""
    urls = [stores.fresh() for _ in range(3)]
    async with EventLog.open(urls[0]) as first, EventLog.open(urls[1]) as second, EventLog.open(urls[2]) as target:
        await parent(first)
        assert await refusals(second, urls[0], exp_id="exp-1") == [None]
        for host in (first, second):
            await fork(host)
        assert await refusals(target, *urls[:2]) == [None, None]
        assert parent_of(await target.experiment("exp-2")) == parent_of(await first.experiment("exp-2"))
        assert sum(origin is not None for _, _, origin in await origins(target)) == 6
