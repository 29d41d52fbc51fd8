"""A replay is never recorded into what it replays."""

from __future__ import annotations

import pytest

from messager import MemoryBroker, Messager
from messager_store import EventLog, LiveReplay, Recorder, StoreError


async def test_a_live_messager_that_is_recorded_into_the_recording_itself_is_refused_before_anything_is_logged() -> (
    None
):
    async with EventLog.open(":memory:") as log:
        async with Recorder(log, "exp-1") as recorder, Messager(MemoryBroker(), "exp-1") as messager:
            messager.add_log_hook(recorder)
            await messager.send_message("a", 1, 3)
        async with Recorder(log, "exp-1") as into_itself, Recorder(log, "exp-2") as into_another:
            before = (await log.experiment("exp-1")).exp_id, [event async for event in log.read("exp-1")]
            replay = LiveReplay(log, "exp-1", MemoryBroker(), live=[3], into_live=True)
            async with Messager(MemoryBroker(), "exp-1") as live:
                live.add_log_hook(into_another)
                await replay.attach(live, 3)
                with pytest.raises(StoreError, match="exp-1 cannot be replayed into itself"):
                    live.add_log_hook(into_itself)
            async with Messager(MemoryBroker(), "exp-1") as live:
                live.add_log_hook(into_itself)
                replay = LiveReplay(log, "exp-1", MemoryBroker(), live=[3], into_live=True)
                with pytest.raises(StoreError, match="give them its exp_id"):
                    await replay.attach(live, 3)
        assert before == ((await log.experiment("exp-1")).exp_id, [event async for event in log.read("exp-1")])
