"""Columns that a process of its own makes are those of this process, also if it is killed meanwhile."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, NewEvent
from messager_store.experiments.records import Experiment
from messager_store.projection import columns, update
from tests.store.projection.test_update import projected


async def recorded(log: EventLog) -> Experiment:
    dice = random.Random(1)
    of = await log.create_experiment("e1")
    one, other = [await log.register(of, role="tap") for _ in range(2)]
    events = [
        NewEvent(
            dice.choice(["sent", "received", "answered"]),
            at,
            dice.choice(["a", "\u00e4", "b\udcff"]),
            dice.choice([b"Hi", b"\xff", b'{"content": "Gr\\u00fc\\u00dfe"}', b"%d" % at]),
            *dice.choices([5, "5", None], k=2),
            msg_id=dice.choice([None, f"m{at}"]),
            meta=dice.choice([None, {"a": [1, None]}]),
            cause=dice.choice([None, (one.ordinal, 1)]),
        )
        for at in range(300)
    ]
    await log.append(one, events[:200])
    await log.append(other, [*events[200:], NewEvent("mark", 50, None, b"", meta={"name": "day"})])
    return of


@pytest.mark.parametrize("killed", [False, True], ids=["lives", "killed"])
async def test_a_process_makes_the_same_columns(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    of = await recorded(log)
    expected = await projected(log, of, tmp_path / "one")
    monkeypatch.setattr(columns, "MANY", 0)
    monkeypatch.setattr(update, "PAGE", 7)
    asked: list[int] = []
    ask = columns.Columns._ask

    def answered(self: columns.Columns, request: Any) -> bytes:
        answer = ask(self, request)
        asked.append(len(answer))
        if killed and len(asked) == 4:
            assert self._process is not None
            os.kill(self._process._process.pid, signal.SIGKILL)
        return answer

    monkeypatch.setattr(columns.Columns, "_ask", answered)
    assert await projected(log, of, tmp_path / "other") == expected
    assert len(asked) == 4 if killed else len(asked) > 40
