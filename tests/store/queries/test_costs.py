"""Costs in proportion to what is shown: `ls`, `info` and `status` beside many experiments. Counted in rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog
from messager_store.experiments import registry
from messager_store.queries import status as status_module
from messager_store.queries.overview import listing, overview
from messager_store.queries.status import status
from messager_store.recording.closing import close
from messager_store.recording.draining import folders_of
from messager_store.recording.repair import unclean
from tests.support import messager, nightly_after, sql
from tests.support.logs import filled, sent

OTHERS = 12


@pytest.fixture
async def crowded(log: EventLog, store: str) -> EventLog:
    """A log with many closed experiments, and one open one."""
    for number in range(OTHERS):
        of = await filled(log, [sent(number + 1), sent(number + 2)], f"e{number:03}")
        await log.tag(of, ["old"])
        await close(log, of, force=True)
    await filled(log, [sent(7, b"xyz")], "open")
    await log.tag(await log.experiment("open"), ["new"])
    return log


@contextmanager
def rows_made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Collect the rows of experiments and recorders that are read into objects."""
    made: list[Any] = []
    with monkeypatch.context() as patch:
        for name in ("recorder_of", "experiment_of"):
            original = getattr(registry, name)

            def counted(row: Any, *more: Any, original: Any = original) -> Any:
                made.append(row)
                return original(row, *more)

            for module in (registry, status_module):
                patch.setattr(module, name, counted, raising=module is registry)
        yield made


async def test_the_list_of_the_newest_experiments_reads_only_those(
    crowded: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rows_made(monkeypatch) as made:
        rows = await listing(crowded, await crowded.experiments(limit=2))
    assert [(row["exp_id"], row["events"], row["recorders"], row["tags"]) for row in rows] == [
        (f"e{OTHERS - 1:03}", 2, 1, ["old"]),
        ("open", 1, 1, ["new"]),
    ]
    assert (rows[0]["first_ts"], rows[0]["last_ts"], rows[1]["payload_bytes"]) == (OTHERS, OTHERS + 1, 3)
    assert len(made) == 2


async def test_info_reads_one_experiment_and_its_recorders(crowded: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    with rows_made(monkeypatch) as made:
        assert (await overview(crowded, await crowded.experiment("e007")))["events"] == 2
    assert len(made) == 2


async def test_status_reads_the_recorders_of_open_experiments(
    crowded: EventLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with rows_made(monkeypatch) as made:
        found = await status(crowded, tmp_path)
        assert await folders_of(crowded) is not None
        assert await unclean(crowded) == []
    assert (found.open, found.closed, found.unfinished) == (1, OTHERS, 0)
    assert [each.exp_id for each in found.recorders] == ["open"]
    assert (
        len([row for row in made if hasattr(row, "uuid")]) == 2
    )  # one for status, one for the search for unclean ends


async def test_an_unended_recorder_of_a_closed_experiment_is_shown(crowded: EventLog, store: str) -> None:
    sql(store, "UPDATE recorder SET ended_at = NULL WHERE id = 3")
    assert [each.exp_id for each in (await status(crowded)).recorders] == ["e002", "open"]


@pytest.mark.parametrize(
    ("options", "expected"),
    nightly_after(
        1,
        [
            (["-n", "2"], [f"e{OTHERS - 1:03}", "open"]),
            (["-n", "1", "--tag", "old"], [f"e{OTHERS - 1:03}"]),
            (["-n", "2", "--name", "E00"], ["e008", "e009"]),
        ],
    ),
)
async def test_ls_shows_at_most_so_many_the_newest(
    crowded: EventLog, store: str, options: list[str], expected: list[str], tmp_path: Path
) -> None:
    done = messager("--store", store, "ls", "--json", *options, cwd=tmp_path)
    assert [row["exp_id"] for row in json.loads(done.stdout)] == expected
