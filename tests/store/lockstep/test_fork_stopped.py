"""Forks that are stopped keep a whole part, and forks that are refused leave nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from messager import MemoryBroker, Messager
from messager_store import EventLog, RedactionFilter, redact
from messager_store.errors import BadCursor, ExperimentExists, ExperimentNotFound, ReplayRefused, StoreError
from messager_store.lockstep.cast import CastError
from messager_store.lockstep.policy import LockstepStopped
from messager_store.lockstep.prefix import PrefixDiverged
from messager_store.lockstep.run import LiveAgentFailed
from tests.support.forking import (
    LEADER,
    QUIET,
    fork,
    society,
    whole_part,
)
from tests.support.logs import filled, listed, sent


async def test_a_message_that_differs_stops_the_fork_and_is_not_sent(parent: EventLog) -> None:
    async with fork(parent) as forked:
        with pytest.raises(
            PrefixDiverged, match=r"message \d+ of \d+ of agent 1 on .* differs \(at \$\.word\)"
        ) as found:
            await forked.play(society("aXcd"))
    assert found.value.divergence.said is not None and b'"X"' in found.value.divergence.said
    events = await whole_part(parent)
    assert events and not [entry for entry in events if b'"X"' in entry.payload or b'"b"' in entry.payload]
    assert not forked.report.complete and "differs" in str(forked.report.stopped)
    assert str((await parent.experiment("exp-2")).meta["prefix"]).startswith("stopped: ")


async def test_a_message_without_a_place_stops_the_fork(parent: EventLog) -> None:
    async def talkative(messager: Messager) -> None:
        await messager.send_message("elsewhere", {"word": "hello"}, LEADER, 9)

    async with fork(parent, live=[LEADER]) as forked:
        with pytest.raises(PrefixDiverged, match="of agent 1 on elsewhere is not in the recording"):
            await forked.play({LEADER: talkative})
    await whole_part(parent)


async def _returns(messager: Messager) -> None:
    await messager.fetch_messages()


async def _hangs(messager: Messager) -> None:
    await asyncio.Event().wait()


async def _raises(messager: Messager) -> None:
    raise RuntimeError("broken")


@pytest.mark.parametrize(
    ("program", "error", "words"),
    [
        (_returns, PrefixDiverged, "of agent 1 .* was not said"),
        (_hangs, LockstepStopped, "agent 1 did not say message 1 of .*, and nothing happened for 0.2 s"),
        (_raises, LiveAgentFailed, "RuntimeError: broken"),
    ],
)
async def test_an_agent_that_does_not_speak_stops_the_fork(
    parent: EventLog, program: Any, error: type[Exception], words: str
) -> None:
    async with fork(parent, live=[LEADER], patience=0.2) as forked:
        with pytest.raises(error, match=words):
            await forked.play({LEADER: program})
    assert await whole_part(parent)


async def test_in_a_stopped_fork_nothing_more_is_said_or_heard(parent: EventLog) -> None:
    broker = MemoryBroker()
    outcome: list[BaseException | None] = []
    async with fork(parent, broker=broker, live=[LEADER, QUIET]) as forked:
        quiet, leader = Messager(broker, "exp-2"), Messager(broker, "exp-2")
        await forked.attach(quiet, QUIET)
        await forked.attach(leader, LEADER)
        for messager in (quiet, leader):
            await messager.init()
        await quiet.subscribe_and_start_listening([quiet.get_subtopic_channel(QUIET, "*")])
        running = asyncio.create_task(forked.run())
        for call in (
            leader.send_message("elsewhere", {"word": "hello"}, LEADER, 9),
            quiet.send_message("elsewhere", {"word": "hello"}, QUIET, 9),
            quiet.fetch_messages(),
        ):
            outcome.append((await asyncio.gather(call, return_exceptions=True))[0])
        assert all(isinstance(one, LockstepStopped) for one in outcome), outcome
        with pytest.raises(PrefixDiverged):
            await running
        quiet.mark("later")
    assert not [entry for entry in await whole_part(parent) if (entry.meta or {}).get("name") == "later"]


async def _redacted(log: EventLog) -> None:
    await redact(log, "exp-1", RedactionFilter(channels=("*agents:3:*",)), who="Bo", why="asked to")


async def test_a_fork_that_is_refused_leaves_nothing(parent: EventLog) -> None:
    cases: list[tuple[Callable[[EventLog], Any] | None, dict[str, Any], Any, str]] = [
        (None, {"of": "exp-9"}, ExperimentNotFound, "exp-9"),
        (None, {"at": "mark:nope"}, BadCursor, "no such mark"),
        (None, {"live": [99]}, CastError, "99"),
        (None, {"into": "exp-1"}, StoreError, "cannot be a fork of itself"),
        (None, {"preset": "nope"}, StoreError, "The presets are agentsociety"),
        (None, {"start": "mark:phase#4"}, StoreError, "exchange them"),
        (None, {"at": "99h"}, StoreError, "the point 99h is after the end of exp-1"),
        (None, {"at": None, "start": "99h"}, StoreError, "the point 99h is after the end of exp-1"),
        (None, {"meta": {"prefix": "x"}}, StoreError, "the meta 'prefix' of a fork tells whether its prefix is"),
        (_redacted, {}, StoreError, "events of exp-1 before the point are redacted"),
    ]
    for change, options, error, words in cases:
        if change is not None:
            await change(parent)
        with pytest.raises(error, match=words):
            async with fork(parent, **options):
                pass
    assert [of.exp_id for of in await parent.experiments()] == ["exp-1"]


async def test_the_end_of_a_fork_is_a_point_of_its_parent(parent: EventLog) -> None:
    async with fork(parent, "exp-2", at=None, live=None) as forked:
        await forked.run()
    async with fork(parent, "exp-3", at=forked.report.cursor, live=None) as again:
        assert (await again.run()).copied == forked.report.copied


async def test_a_fork_that_would_be_recorded_into_its_parent_is_refused(log: EventLog) -> None:
    of = await log.create_experiment("exp-1")
    broker = MemoryBroker()
    tap = await log.register(of, role="tap", patterns=["*"], row={"broker": broker.url})
    await log.append(tap, [sent(1)])
    with pytest.raises(ReplayRefused, match=r"would append the fork to its parent\. End it first"):
        async with fork(log, at=None, live=None, broker=broker):
            pass
    assert not await log.has_experiment("exp-2")
    await log.touch(tap, ended_at=1)
    async with fork(log, at=None, live=None, broker=broker) as forked:
        assert (await forked.run()).complete


async def test_an_existing_experiment_is_not_forked_into(parent: EventLog) -> None:
    await filled(parent, [sent(1)], "exp-2")
    with pytest.raises(ExperimentExists):
        async with fork(parent):
            pass
    assert len(await listed(parent.read("exp-2"))) == 1
