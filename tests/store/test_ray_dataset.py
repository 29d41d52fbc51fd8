"""An experiment is read as a Ray Dataset: each event once, whatever the number of parts."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, StoreError
from messager_store.log.selection import Selection
from messager_store.ray import dataset
from messager_store.ray_dataset import cuts
from tests.store.ray_runs import EVENTS, SECOND, fill
from tests.support.logs import listed

pytestmark = pytest.mark.timeout(300)
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None or importlib.util.find_spec("pyarrow") is None,
    reason="Ray or pyarrow is not there: run `make ray`",
)


@needs_ray
@pytest.mark.nightly
def test_each_event_is_read_once_by_the_tasks_of_a_dataset(ran: Any) -> None:
    seen = ran.seen["dataset"]
    assert len(seen["recorded"]) == EVENTS
    assert seen["recorded"] == seen["recorded twice"] == seen["events"] == seen["sqlite"]
    assert seen["blocks"] == [EVENTS // 3] * 3
    at, channel = 0, 4
    assert seen["selected"] == [
        event for event in seen["recorded"] if event[channel] == "c1" and 2 * SECOND <= event[at] < 20 * SECOND
    ]
    assert seen["selected"]
    count, names = seen["nothing"]
    assert count == 0 and {"ts", "channel", "from_id", "payload", "text"} <= set(names)
    assert "SQLite file on another-host, which other hosts cannot read" in seen["refused"]
    assert "export it to partitioned Parquet" in seen["refused"]


async def test_cuts_divide_a_selection_into_parts_of_equal_size(store: str) -> None:
    events = await fill(store)
    async with EventLog.open(store) as log:
        of = await log.experiment("e1")
        for selection in (Selection(), Selection(channels="c1"), Selection(since="3s", until="17s"), Selection("mark")):
            span = await selection.span(log.database, of)
            chosen = await listed(log.read("e1", selection=selection))
            for parts in (1, 2, 7, 60, 1000):
                places = await cuts(log.database, of, selection, span, parts)
                length = -(-len(chosen) // parts) or 1
                assert places == [event.cursor for event in chosen[length::length]]
    assert len(events) == EVENTS


@needs_ray
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("store", "how", "reason"),
    [
        (":memory:", {}, "visible to one process only"),
        ("runs.db", {"limit": 3}, "cannot know what limit takes from the others"),
        ("runs.db", {"last_per": "agent"}, "cannot know what last_per takes"),
        ("runs.db", {"selection": Selection(), "kinds": "sent"}, "give either a selection or filters"),
        ("absent.db", {}, "absent.db"),
    ],
)
def test_a_dataset_that_cannot_be_read_is_refused_before_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, how: dict[str, Any], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=reason):
        dataset(store, "e1", **how)
    assert not (tmp_path / "absent.db").exists()


def test_a_sqlite_file_is_refused_while_ray_runs_on_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = types.ModuleType("ray")
    cluster.is_initialized, cluster.nodes = lambda: True, lambda: [{"NodeManagerHostname": "far-away", "Alive": True}]
    cluster.data = types.ModuleType("ray.data")
    monkeypatch.setitem(sys.modules, "ray", cluster)
    monkeypatch.setitem(sys.modules, "ray.data", cluster.data)
    with pytest.raises(StoreError, match=r"Ray also runs on far-away: .*runs\.db is a SQLite file on .*Parquet"):
        dataset("runs.db", "e1")


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(StoreError, match=r"needs? Ray, which is not installed: `pip install"):
        dataset("runs.db", "e1")
