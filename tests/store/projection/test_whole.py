"""A whole table, which is read without SQL, is what a question finds."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from messager_store import EventLog, NewEvent
from messager_store.projection import update
from messager_store.projection.query import brought_up
from messager_store.projection.tables import batches, columns
from messager_store.projection.whole import whole

S = 1_000_000_000


@pytest.mark.parametrize("seed", range(4))
async def test_it_is_what_a_question_finds(log: EventLog, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(update, "PAGE", 7)
    monkeypatch.setattr(update, "PART", 40)
    monkeypatch.setattr(update, "TAIL", 10)
    dice = random.Random(seed)
    of = await log.create_experiment("e1")
    for _ in range(3):
        writer = await log.register(of, role="tap", row={"started_at": -S})
        ts, events = -S, []
        for _ in range(100):
            ts += dice.choice([1, 999, S // 10, S])  # so that receptions are undecided at the end of each part
            kind = dice.choice(["sent", "received", "received"])
            events.append(NewEvent(kind, ts, dice.choice("ab"), dice.choice([b"same", b"%d" % (ts // S)]), 5, "x"))
        await log.append(writer, events)
    here = await brought_up(log, of)
    assert len(here.paths) > 4
    for every in (True, False):
        found = [batch async for batch in batches(log, of, events=every)]
        made = whole(here, columns(), messages=not every)
        assert made.num_rows
        assert made.to_pylist() == pa.Table.from_batches(found, schema=columns()).to_pylist()
