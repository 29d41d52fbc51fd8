"""Import of a file that holds several runs as several experiments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from messager_store import EventLog
from messager_store.db.schema import experiment, recorder
from messager_store.errors import BadFile, ExperimentExists, StoreError
from messager_store.experiments import lifecycle
from messager_store.formats import importing
from messager_store.formats.import_file import import_file
from messager_store.maintenance.verify import verify
from tests.support.logs import filled, listed, sent

LINES: list[dict[str, Any]] = [
    {"name": "games", "tags": ["t"], "recorders": [{"host": "a"}, {"host": "b"}]},
    {"ts": 1, "channel": "g:2:chat", "payload": {"day": 0, "at": "x"}, "label": 1},
    {"ts": 2, "channel": "g:1:chat", "payload": {"day": 1}, "label": 2},
    {"ts": 2, "channel": "g:1:chat", "kind": "received", "payload": {"day": 1}, "recorder": 2, "cause": 2},
    {"ts": 3, "kind": "mark", "meta": {"name": "m", "fields": {}}},
    {"ts": 4, "channel": "other", "payload": "day"},
    {"ts": 5, "channel": "g/2", "payload": {"day": "1"}},
]


def written(folder: Path, *lines: dict[str, Any], name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


async def rows(log: EventLog) -> list[str]:
    """Return the exp_ids of all experiments, also of invisible ones."""
    async with log.database.reading() as connection:
        return sorted((await connection.execute(select(experiment.c.exp_id))).scalars())


async def test_each_game_is_an_experiment_of_its_own(log: EventLog, tmp_path: Path) -> None:
    done = await import_file(log, written(tmp_path, *LINES), "e", by="channel[1]")
    assert [(of.exp_id, of.name, of.tags, of.status) for of in done.experiments] == [
        ("e-2", "games 2", ["t"], "closed"),
        ("e-1", "games 1", ["t"], "closed"),
    ]
    for of in done.experiments:
        assert (await verify(log, of)).problems == []
        assert of.meta["imported"]["split"]["left_out"] == {
            "events without channel[1]: mark": 1,
            "events without channel[1]: sent": 1,
        }
    assert done.notes == (
        "not imported: events without channel[1]: mark (1)",
        "not imported: events without channel[1]: sent (1)",
    )
    assert [(entry.ts, entry.recorder, entry.seq, entry.cause) for entry in await listed(log.read("e-1"))] == [
        (2, 1, 1, None),
        (2, 2, 1, (1, 1)),
    ]
    assert [(entry.ts, entry.recorder, entry.seq) for entry in await listed(log.read("e-2"))] == [(1, 1, 1), (5, 1, 2)]
    assert [row.meta for row in await log.recorders(done.experiments[0])] == [{"host": "a"}, {"host": "b"}]


@pytest.mark.parametrize(
    ("by", "exp_ids"),
    [
        ("channel", ["e-g:2:chat", "e-g:1:chat", "e-other", "e-g/2"]),
        ("channel[-1]", ["e-chat", "e-other", "e-2"]),
        ("$.day", ["e-0", "e-1"]),
        ("$.at", ["e-x"]),
    ],
)
async def test_a_file_is_split_by_what_count_counts_by(
    log: EventLog, tmp_path: Path, by: str, exp_ids: list[str]
) -> None:
    done = await import_file(log, written(tmp_path, *LINES), "e", by=by)
    assert [of.exp_id for of in done.experiments] == exp_ids


async def test_a_table_is_split_by_any_column(log: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("ts,channel,text,Game,more\n1,c:7,a,g1,-\n2,c:7,b,g2,-\n3,c:8,c,g1,-\n4,c:8,d,,-\n")
    done = await import_file(log, path, "e", by="game")
    texts = [[entry.text for entry in await listed(log.read(of))] for of in done.experiments]
    assert dict(zip([of.exp_id for of in done.experiments], texts, strict=True)) == {"e-g1": ["a", "c"], "e-g2": ["b"]}
    assert done.notes == ("not imported: columns more (1)", "not imported: events without game: sent (1)")
    assert [of.exp_id for of in (await import_file(log, path, "f", by="channel[1]")).experiments] == ["f-7", "f-8"]
    with pytest.raises(BadFile, match=r"no column gone; the columns are ts, channel"):
        await import_file(log, path, "g", by="gone")


@pytest.mark.parametrize(
    ("by", "line", "reason"),
    [
        ("game", {}, r"cannot split by 'game'. Give channel, channel\[1\]"),
        ("$.a[*]", {}, "has a wildcard"),
        ("$.gone", {}, r"none of its events has \$.gone"),
        ("channel[1]", {"ts": 9, "channel": "g:taken"}, "'e-taken' exists already"),
        ("channel[1]", {"ts": 9, "channel": "g:3"}, r"line 8: more than 2 values of channel\[1\]"),
        ("channel[1]", {"ts": 9, "channel": "g:" + "x" * 200}, "cannot be the end of an exp_id"),
        ("channel[1]", {"ts": 9, "channel": "g:1", "cause": 1}, "it and its cause 1 would be in different experiments"),
        ("channel[1]", {"ts": 9, "channel": "g:1", "recorder": 3}, "more than 4 recorders in 2 experiments"),
    ],
)
async def test_a_file_that_cannot_be_split_leaves_nothing(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, line: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(importing, "MOST_EXPERIMENTS", 2 if "more than 2" in reason else 3)
    monkeypatch.setattr(importing, "MOST_RECORDERS", 4)
    monkeypatch.setattr(importing, "BATCH_EVENTS", 1)
    await filled(log, [sent(1)], "e-taken")
    path = written(tmp_path, *LINES, *([line] if line else []))
    with pytest.raises(StoreError, match=reason):
        await import_file(log, path, "e", by=by)
    with pytest.raises(StoreError, match="'@e' cannot be an exp_id"):
        await import_file(log, path, "@e", by="channel[1]")
    assert await rows(log) == ["e-taken"]


async def test_experiments_of_one_file_appear_together_or_not_at_all(log: EventLog) -> None:
    await filled(log, [sent(1)], "taken")
    parts = {}
    for exp_id in ("free", "taken"):
        hidden = await lifecycle.create(
            log.database, f"importing {exp_id}", name=None, tags=[], meta={}, status="importing"
        )
        assert hidden is not None
        parts[exp_id] = hidden
    with pytest.raises(ExperimentExists):
        await importing.publish_imports(log.database, parts)
    assert await rows(log) == ["importing free", "importing taken", "taken"]


async def test_a_game_of_which_nothing_more_comes_counts_as_being_imported(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "BATCH_EVENTS", 1)
    beats: list[int] = []
    append = EventLog.append

    async def watched(self: EventLog, *arguments: Any) -> None:
        async with log.database.writing() as connection:
            beats.append(min((await connection.execute(select(recorder.c.heartbeat_at))).scalars()))
            await connection.execute(update(recorder).values(heartbeat_at=0))
        await append(self, *arguments)

    monkeypatch.setattr(EventLog, "append", watched)
    await import_file(log, written(tmp_path, *LINES), "e", by="channel[1]")
    assert len(beats) == 4 and 0 not in beats
