"""A society of five is forked at a mark: the prefix is equal, and lineage is kept, in every run."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator

import pytest
from redis import Redis as sync_redis

from messager import MemoryBroker, RedisBroker
from messager.testing import RedisServer
from messager_store import EventLog, Recorder
from messager_store.lockstep import virtual_time
from messager_store.lockstep.fork import Fork
from messager_store.lockstep.recorder_thread import RecorderThread
from messager_store.lockstep.virtual_time import virtual_clock
from tests.support import ROOT, forks, until
from tests.support.forked_program import ForkedProgram
from tests.support.forking import LEADER, Society, check_fork, recorded

RUNS = 2
NIGHTLY_RUNS = 20
AT = "mark:phase#3"


async def _record_in_virtual_time(store: str) -> None:
    async with RecorderThread.open(store, "exp-1") as recorder:
        agents = Society("abcd", pause=1, seed=1).agents
        await recorded(MemoryBroker(), recorder, "exp-1", agents, virtual_clock())


async def _fork_in_virtual_time(store: str, run: int) -> None:
    async with Fork(store, "exp-1", f"run-{run}", MemoryBroker(), at=AT) as fork:
        report = await fork.play(Society("abXY", pause=1, seed=run).agents)
    assert report.complete and report.left_out == 0


def test_forks_in_virtual_time_repeat_the_prefix(store: str, nightly: bool) -> None:
    runs = range(NIGHTLY_RUNS if nightly else RUNS)
    virtual_time.run(_record_in_virtual_time(store))
    for run in runs:
        virtual_time.run(_fork_in_virtual_time(store, run))

    async def check() -> None:
        async with EventLog.open(store) as log:
            for run in runs:
                await check_fork(log, "exp-1", f"run-{run}", AT)

    asyncio.run(check())


async def test_forks_over_redis_repeat_the_prefix(log: EventLog, redis: RedisServer, nightly: bool) -> None:
    broker = RedisBroker.from_url(redis.url)
    async with Recorder(log, "exp-1", close_experiment=True) as recorder:
        await recorded(broker, recorder, "exp-1", Society("abcd", seed=1).agents)
    for run in range(NIGHTLY_RUNS if nightly else RUNS):
        async with Fork(log, "exp-1", f"run-{run}", broker, at=AT, patience=20) as fork:
            report = await fork.play(Society("abXY", seed=run).agents)
        assert report.complete and report.left_out == 0
        await check_fork(log, "exp-1", f"run-{run}", AT)
    await broker.close()


@pytest.fixture
def programs() -> Iterator[list[ForkedProgram]]:
    """Processes of one test. Those that are left are killed."""
    started: list[ForkedProgram] = []
    yield started
    for program in started:
        with program:
            program.kill()


def start(agent: int, exp_id: str, redis: RedisServer, words: str, **env: str) -> ForkedProgram:
    """Start the program of one agent."""
    given = [str(agent), exp_id, str(redis.port), words]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MESSAGER_")}
    return ForkedProgram("tests.acceptance.forked_agent", given, ROOT, {**outside, **env})


def ended(programs: list[ForkedProgram]) -> None:
    """Wait until all programs have ended."""
    for program in programs:
        _, errors = program.communicate(timeout=60)
        assert program.returncode == 0, errors
        assert "missing:" not in errors, errors
    programs.clear()


@pytest.mark.timeout(1200)
async def test_programs_of_five_processes_are_forked_by_the_verb(
    store: str, redis: RedisServer, programs: list[ForkedProgram], nightly: bool
) -> None:
    """Starting the programs takes most of the time, so all runs are for `--nightly`."""
    programs += [start(agent, "exp-1", redis, "abcd", MESSAGER_STORE=store) for agent in range(2, 6)]
    with sync_redis(port=redis.port) as client:
        await until(lambda: client.pubsub_numpat() == len(programs), 60)
    programs.append(start(LEADER, "exp-1", redis, "abcd", MESSAGER_STORE=store))
    ended(programs)
    for run in range(NIGHTLY_RUNS if nightly else 1):
        into = f"run-{run}"
        fork = ["fork", "exp-1", "--at", AT, "--into", into, "--live", "all", "--json"]
        verb = ForkedProgram(forks.COMMAND_LINE, [*fork, "--store", store, "--broker", redis.url], ROOT)
        programs.append(verb)
        async with EventLog.open(store) as log:
            await until(lambda log=log, into=into: log.has_experiment(into), 60)
        env = {"MESSAGER_STORE": store, "MESSAGER_REPLAY": "exp-1"}
        programs += [start(agent, into, redis, "abXY", **env) for agent in range(1, 6)]
        told, errors = verb.communicate(timeout=60)
        assert verb.returncode == 0, errors
        assert json.loads(told)["complete"] and json.loads(told)["cast"]["equal"]
        programs.remove(verb)
        ended(programs)
        async with EventLog.open(store) as log:
            await check_fork(log, "exp-1", into, AT)
