"""Recordings that several modules of tests replay and fork."""

from __future__ import annotations

import pytest

from messager import MemoryBroker
from messager_store import EventLog, Recorder
from tests.support.forking import Society, recorded


@pytest.fixture
async def parent(log: EventLog) -> EventLog:
    """A log with a society of five as exp-1."""
    async with Recorder(log, "exp-1", close_experiment=True) as recorder:
        await recorded(MemoryBroker(), recorder, "exp-1", Society("abcd", pause=0.02, seed=1).agents)
    return log
