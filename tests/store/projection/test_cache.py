"""Projections are disposable: they are compared with the log, deleted, and kept within a limit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from messager_store import EventLog, Experiment, StoreError
from messager_store.db import derived_files
from messager_store.projection import checking, layout, update
from messager_store.projection.cache import size_of, used
from messager_store.projection.checking import check
from messager_store.projection.layout import EVENTS, TAIL
from messager_store.projection.tables import table
from tests.support import messager
from tests.support.logs import filled, sent


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make parts of few events."""
    monkeypatch.setattr(update, "PAGE", 10)
    monkeypatch.setattr(update, "PART", 10)
    monkeypatch.setattr(update, "TAIL", 5)


def changed(path: Path) -> None:
    """Change the text of one event in a file."""
    rows = pq.read_table(path)
    texts = rows["text"].to_pylist()
    texts[0] = "never said"
    pq.write_table(rows.set_column(rows.schema.get_field_index("text"), "text", pa.array(texts)), path)


@pytest.mark.parametrize("ending", [EVENTS, TAIL])
async def test_a_changed_projection_is_found_by_making_it_anew(log: EventLog, short: None, ending: str) -> None:
    of = await filled(log, [sent(at, b"%d" % at) for at in range(34)])
    assert await check(log, of) == []
    for folder in derived_files.folders(log.database, of.id):
        for path in sorted(folder.glob(f"*.{ending}"))[:1]:
            changed(path)
    problems = await check(log, of)
    assert "2 rows of the projection differ from the log" in problems[-1]
    assert len(problems) == (2 if ending == EVENTS else 1)
    derived_files.delete(log.database, of.id)
    assert await check(log, of) == []


async def test_a_projection_is_compared_with_the_log_as_it_was_at_one_moment(
    log: EventLog, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = await filled(log, [sent(at, b"%d" % at) for at in range(34)])
    original, writers = checking.brought_up, [await log.register(of, role="tap")]

    async def recorded_meanwhile(log: EventLog, of: Experiment) -> Any:
        while writers:
            await log.append(writers.pop(), [sent(20, b"late")])
        return await original(log, of)

    monkeypatch.setattr(checking, "brought_up", recorded_meanwhile)
    assert await check(log, of) == []


async def test_the_cache_shows_and_deletes_the_projections_of_a_store(
    log: EventLog, store: str, tmp_path: Path
) -> None:
    of = await filled(log, [sent(at) for at in range(3)])
    await filled(log, [sent(1)], "e2")
    await table(log, of)
    shown = json.loads(messager("--store", store, "cache", "--json", cwd=tmp_path).stdout)
    [row] = shown
    assert row["exp_id"] == "e1" and row["bytes"] == size_of(Path(row["folder"])) > 0
    done = messager("--store", store, "cache", "--clear", cwd=tmp_path)
    assert done.returncode == 0 and "1 projection, " in done.stderr and "deleted" in done.stderr
    assert not os.path.exists(row["folder"])
    assert messager("--store", store, "verify", "e1", "--projection", cwd=tmp_path).returncode == 0
    assert (await table(log, of)).num_rows == 3


async def test_projections_that_were_not_used_for_long_leave_a_full_cache(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("MESSAGER_CACHE", str(cache))
    folders = [cache / "0123456789abcdef" / str(number) for number in range(3)]
    of_another_program = cache / "other" / "1"
    of_another_program.mkdir(parents=True)
    (of_another_program / "large").write_bytes(b"x" * 3_000_000)
    os.utime(of_another_program, (0, 0))
    for age, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / layout.MANIFEST).write_bytes(b"x" * 400_000)
        os.utime(folder, (age, age))
    beside = tmp_path / "log.db-projection" / "1"
    beside.mkdir(parents=True)
    for limit, left in (("2", [True] * 3), ("1", [False, True, True]), ("0", [False, False, True])):
        monkeypatch.setenv("MESSAGER_CACHE_MB", limit)
        used(folders[2])
        used(beside)
        assert [folder.exists() for folder in folders] == left and beside.exists()
        assert (of_another_program / "large").exists()
    monkeypatch.setenv("MESSAGER_CACHE_MB", "much")
    with pytest.raises(StoreError, match="MESSAGER_CACHE_MB='much' is no number"):
        used(folders[2])
