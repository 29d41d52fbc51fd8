"""A replay onto channels that are being recorded into the same experiment is refused."""

from __future__ import annotations

import os
from typing import Any

import pytest

from messager import MemoryBroker, RedisBroker
from messager_store import EventLog, NewEvent, Replay
from messager_store.errors import ReplayRefused
from messager_store.recording.closing import close
from tests.store.replay.test_replay import Heard


async def recorded(log: EventLog, role: str, patterns: list[str], broker: str | None) -> None:
    """Create an experiment with one event and a live recorder."""
    of = await log.create_experiment("e1")
    writer = await log.register(of, role=role, patterns=patterns)
    await log.append(writer, [NewEvent("received", 1, "exps:e1:news", b"x")])
    await log.touch(writer, broker=broker)


@pytest.mark.parametrize(
    ("role", "patterns", "broker"),
    [
        ("tap", ["other", "exps:*"], "memory://"),
        ("tap", ["*"], None),
        ("messager", [], "memory://"),
    ],
)
async def test_a_replay_into_what_is_being_recorded_is_refused(
    log: EventLog, role: str, patterns: list[str], broker: str | None
) -> None:
    await recorded(log, role, patterns, broker)
    heard = Heard()
    for dry in (False, True):
        with pytest.raises(ReplayRefused) as caught:
            await Replay(log, "e1", heard, speed="max", dry_run=dry).run()
        for word in (f"recorder 1 of 'e1' ({role}", f"pid {os.getpid()}", "--to-exp", "--map", "--into-live"):
            assert word in str(caught.value)
    assert heard.published == []
    assert (await Replay(log, "e1", heard, speed="max", into_live=True).run()).published == 1


@pytest.mark.parametrize(
    ("role", "patterns", "broker", "options"),
    [
        ("tap", ["exps:e1:*"], "memory://", {"to_exp": "e2"}),
        ("tap", ["exps:*"], "memory://", {"mapping": {"exps:*": "copy:*"}}),
        ("messager", [], "memory://", {"to_exp": "e2"}),
        ("tap", ["other"], "memory://", {}),
        ("tap", ["*"], "memory://", {"exclude": ["exps:*"]}),
        ("tap", ["*"], "redis://localhost:6379/0", {}),  # no process is in the memory of another
        ("messager", [], None, {}),  # never met a broker
    ],
)
async def test_a_replay_that_no_recorder_of_the_experiment_hears_is_not_refused(
    log: EventLog, role: str, patterns: list[str], broker: str | None, options: dict[str, Any]
) -> None:
    await recorded(log, role, patterns, broker)
    report = await Replay(log, "e1", MemoryBroker(), speed="max", **options).run()
    assert report.published == (0 if "exclude" in options else 1)


async def test_a_tap_on_redis_counts_under_any_name_of_the_server(log: EventLog, redis_broker: RedisBroker) -> None:
    await recorded(log, "tap", ["*"], "redis://another.name:6379/5")
    with pytest.raises(ReplayRefused, match="--into-live"):
        await Replay(log, "e1", redis_broker).run()
    of = await log.experiment("e1")
    await close(log, of, force=True)
    assert (await Replay(log, "e1", redis_broker).run()).published == 1  # ended: nothing is appended any more
