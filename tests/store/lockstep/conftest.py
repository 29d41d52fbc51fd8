"""Fixtures of the tests of lockstep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker
from messager_store import EventLog, NewEvent, Recorder
from tests.support.forking import Society
from tests.support.forking import recorded as recorded_society
from tests.support.logs import filled
from tests.support.scenes import Scene


@pytest.fixture
async def recorded(log: EventLog, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Function that stores a scene as `e1`, and sets the environment of its replay."""

    async def record(scene: Scene, **settings: Any) -> None:
        fields = NewEvent._fields
        events = [NewEvent(**{name: getattr(entry, name) for name in fields}) for entry in scene.events]
        await filled(log, events)
        file = tmp_path / "replay.json"
        file.write_text(json.dumps({"experiment": "e1", "store": store, "patience": 60, **settings}))
        monkeypatch.setenv("MESSAGER_REPLAY", str(file))

    return record


@pytest.fixture
async def parent(log: EventLog) -> EventLog:
    """A log with a society of five as exp-1."""
    async with Recorder(log, "exp-1", close_experiment=True) as recorder:
        society = Society("abcd", pause=0.02, seed=1)
        await recorded_society(MemoryBroker(), recorder, "exp-1", society.agents)
    return log
