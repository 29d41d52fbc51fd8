"""A society of five that races in every run, reproduced from its recording: in one process, and in four."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryFile
from typing import IO, Any

import pytest
from redis import Redis

from messager import MemoryBroker, Messager, MessageRecord, open_broker
from messager.brokers import Broker, kind_of
from messager.testing import RedisServer
from messager_store import Event, EventLog, LiveReplay, Recorder
from messager_store.lockstep import virtual_time
from messager_store.lockstep.play import LiveAgents
from messager_store.lockstep.recorder_thread import RecorderThread
from messager_store.lockstep.run import Lockstep
from messager_store.lockstep.to_the_end import ToTheEnd
from messager_store.log.channel_map import ChannelMap
from tests.support import five, forks, schedules
from tests.support.five import SEPARATE, SHARED

RUNS = 2
NIGHTLY_RUNS = 20
Groups = list[tuple[int, ...]]
GROUPS = {"separate": SEPARATE, "shared": SHARED}
PROGRAMS = {"separate": ["1", "2", "3", "4 5"], "shared": ["1", "2,4", "3", "5"]}
"""Agents of each process; those that share a Messager are joined by a comma."""
ONE_OF_GROUPS = pytest.mark.parametrize("source", ["shared", pytest.param("separate", marks=pytest.mark.nightly)])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, migrated_file: str, redis: RedisServer) -> str:
    """Store with two recordings of the society: `separate`, and `shared`, in which two agents share a Messager."""
    file = str(tmp_path_factory.mktemp("five") / "five.db")
    copyfile(migrated_file, file)
    asyncio.run(_record(file, redis.url, "separate", SEPARATE))
    asyncio.run(_record(file, redis.url, "shared", SHARED))
    return file


async def _record(store: str, url: str, exp_id: str, groups: Groups) -> None:
    async with EventLog.open(store) as log, Recorder(log, exp_id) as recorder:
        await _ungated(open_broker(url), exp_id, groups, recorder)


async def _ungated(broker: Broker, exp_id: str, groups: Groups, hook: Any, **options: Any) -> None:
    messagers = {ids: Messager(broker, exp_id) for ids in groups}
    for messager in messagers.values():
        messager.add_log_hook(hook)
        await messager.init()
    await five.together(messagers, **options)
    for messager in messagers.values():
        await messager.close()
    await broker.close()


async def _equal(log: EventLog, exp_id: str, source: str) -> bool:
    """Return whether every message and every Messager's schedule are those of another run."""
    runs = [(await schedules.read(log, name), name) for name in (exp_id, source)]
    (now, _), (then, _) = runs
    assert len(then) > 100
    said = [schedules.said(*run) for run in runs]
    listed = [schedules.schedule(*run) for run in runs]
    return said[0] == said[1] and listed[0] == listed[1] and schedules.marks(now) == schedules.marks(then)


@pytest.mark.parametrize(
    ("over", "source"),
    [
        *(("redis", "separate"), ("memory", "shared")),
        *(pytest.param(*case, marks=pytest.mark.nightly) for case in (("redis", "shared"), ("memory", "separate"))),
    ],
)
async def test_all_five_in_one_process_repeat_every_message(
    store: str, redis: RedisServer, over: str, source: str, nightly: bool
) -> None:
    async with EventLog.open(store) as log:
        for run in range(NIGHTLY_RUNS // 2 if nightly else RUNS):
            broker = open_broker(redis.url) if over == "redis" else MemoryBroker()
            exp_id = f"{source}-{over}-{run}"
            async with Recorder(log, exp_id) as recorder:
                replay = LiveReplay(log, source, broker, live="all", patience=20, to_exp=exp_id)
                report = await replay.play(
                    five.agents(GROUPS[source]), connected=lambda messager, hook=recorder: messager.add_log_hook(hook)
                )
            await broker.close()
            assert report.equal and report.pace == "lockstep", report
            assert await _equal(log, exp_id, source)


@ONE_OF_GROUPS
async def test_all_five_in_virtual_time_repeat_every_message(store: str, source: str, nightly: bool) -> None:
    """The agents think for seconds. In every second run they are recorded, in another thread."""
    async with EventLog.open(store) as log:
        then = schedules.said(await schedules.read(log, source), source)
        for run in range(NIGHTLY_RUNS // 4 if nightly else 1):
            sent: list[MessageRecord] = []
            replay = LiveReplay(log, source, MemoryBroker(), live="all", patience=60)
            report = await replay.play(
                five.agents(GROUPS[source], pace=3.0),
                virtual_time=True,
                connected=lambda one, kept=sent: one.add_log_hook(Kept(kept)),  # type: ignore[misc]
            )
            assert report.equal and report.pace == "lockstep"
            assert schedules.said(sent, source) == then
            exp_id = f"{source}-virtual-{run}"
            await asyncio.to_thread(virtual_time.run, _in_virtual_time(replay, store, exp_id, GROUPS[source]))
            assert await _equal(log, exp_id, source)


async def _in_virtual_time(source: LiveReplay, store: str, exp_id: str, groups: Groups) -> None:
    """Reproduce a recording, and record the reproduction."""
    assert source.lockstep is not None
    recording = source.lockstep.recording
    broker, wire = MemoryBroker(), ChannelMap(None, exp_id)
    lockstep = Lockstep(recording, kind_of(broker.url), wire, ToTheEnd(), patience=60)
    async with RecorderThread.open(store, exp_id) as recorder:
        clock, agents = virtual_time.virtual_clock(), five.agents(groups, pace=3.0)
        async with LiveAgents(
            lockstep, broker, exp_id, agents, clock=clock, connected=lambda one: one.add_log_hook(recorder)
        ):
            async for _ in lockstep.releases():
                raise AssertionError("a message was published from the recording")
    assert lockstep.report.equal and lockstep.report.pace == "lockstep", lockstep.report


class Kept:
    """Log hook that keeps what was sent."""

    def __init__(self, records: list[MessageRecord]) -> None:
        self._records = records

    async def before_send(self, records: Sequence[MessageRecord]) -> None:
        """Do nothing."""

    def after(self, record: MessageRecord) -> None:
        self._records.append(record)


@pytest.mark.nightly
async def test_without_gates_the_society_says_something_else_in_every_run(store: str, redis: RedisServer) -> None:
    equal, runs = 0, NIGHTLY_RUNS
    async with EventLog.open(store) as log:
        for run in range(runs):
            async with Recorder(log, f"ungated-{run}") as recorder:
                await _ungated(open_broker(redis.url), f"ungated-{run}", SEPARATE, recorder)
            equal += await _equal(log, f"ungated-{run}", "separate")
    print(f"without gates, {equal} of {runs} runs were equal")
    assert equal < runs


@ONE_OF_GROUPS
def test_four_processes_repeat_every_message_without_a_coordinator(
    store: str, redis: RedisServer, tmp_path: Path, source: str, nightly: bool
) -> None:
    """They start in any order, the last one late; each run repeats the one before it."""
    before = source
    for run in range(NIGHTLY_RUNS // 2 if nightly else RUNS):
        exp_id, folder = f"{source}-processes-{run}", tmp_path / f"{source}-{run}"
        _run_programs(PROGRAMS[source], redis.url, store, exp_id, before, folder)
        assert asyncio.run(_equal_in(store, exp_id, source))
        reports = [json.loads(file.read_text()) for file in (folder / "reports").iterdir()]
        assert [report["timed_out"] for report in reports] == [False] * len(GROUPS[source])
        before = exp_id


def _run_programs(programs: list[str], url: str, store: str, exp_id: str, source: str, folder: Path) -> str:
    """Run a process for each program, in any order; the last one is started when the others are subscribed.

    Return what they wrote.
    """
    folder.mkdir()
    settings = folder / "replay.json"
    settings.write_text(json.dumps({"experiment": source, "patience": 30, "report": str(folder / "reports")}))
    env = {**os.environ, "URL": url, "EXP": exp_id, "MESSAGER_STORE": store, "MESSAGER_REPLAY": str(settings)}
    *early, late = random.sample(programs, len(programs))
    with TemporaryFile("w+") as output, Redis.from_url(url) as server:
        before = server.pubsub_numpat()

        running: list[tuple[socket.socket, int]] = []

        def start(program: str) -> None:
            fds = output.fileno(), output.fileno()
            watcher = forks.start("tests.support.five", program.split(), folder, env, *fds)
            running.append((watcher, int(watcher.makefile("r").readline())))

        try:
            for program in early:
                start(program)
            own = len([agent for program in early for agent in program.replace(",", " ").split()])
            deadline = time.monotonic() + 60
            while server.pubsub_numpat() < before + own + len(["broadcast", "announcements"]):
                assert time.monotonic() < deadline, _text(output)
                time.sleep(0.01)
            start(late)
            for watcher, _ in list(running):
                watcher.settimeout(60)
                assert watcher.makefile("r").readline() == "0\n", _text(output)
                running.remove((watcher, _))
                watcher.close()
        finally:
            for watcher, pid in running:
                os.kill(pid, signal.SIGKILL)
                watcher.close()
        return _text(output)


def _text(output: IO[str]) -> str:
    output.seek(0)
    return output.read()


async def _read(store: str, exp_id: str) -> list[Event]:
    async with EventLog.open(store) as log:
        return await schedules.read(log, exp_id)


async def _equal_in(store: str, exp_id: str, source: str) -> bool:
    async with EventLog.open(store) as log:
        return await _equal(log, exp_id, source)
