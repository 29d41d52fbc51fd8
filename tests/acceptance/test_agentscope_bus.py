"""Agents of the published AgentScope 2, in two processes, repeat a recording over a MessagerBus."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

import pytest

from messager.testing import RedisServer
from messager_store import EventLog
from messager_store.log.event import Event
from messager_store.queries.problems import problems
from tests.support import ROOT
from tests.support.frameworks import python_with

PROGRAM = ROOT / "tests" / "support" / "agentscope_society.py"
ROUNDS, RUNS = 4, 20
PROCESSES = ("alice", "bob"), ("carol",)
NAMES = "alice", "bob", "carol"
"""Live agents; the dispatchers that drain the wake-ups are not."""

Said = dict[str, list[str]]


class Society:
    """Three agents in two processes."""

    def __init__(self, store: str, port: int, folder: Path) -> None:
        python = python_with("agentscope[service,storage-redis]==2.0.11")
        self._errors: IO[str] = open(folder / "errors", "w+")  # noqa: SIM115
        self._replay = folder / "replay.json"
        match = {"framework": "agentscope", "ignore": ["finished_at", "created_at", "_entry_id"]}
        self._settings: dict[str, Any] = {"store": store, "live": [*NAMES], "patience": 30, "match": match}
        self._processes = [
            subprocess.Popen(
                [python, PROGRAM, str(port), str(ROUNDS), *names],
                env={**os.environ, "MESSAGER_STORE": store},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
            for names in PROCESSES
        ]

    def run(self, how: Literal["messagers", "hooks"], exp_id: str, source: str | None = None) -> Said:
        """Play one run, in lockstep with a recording if one is named; return what each agent said."""
        if source is not None:
            self._replay.write_text(json.dumps({**self._settings, "experiment": source}))
        self._write(f"{how} {exp_id} {'-' if source is None else self._replay}")
        assert self._read() == ["ready"] * 2, self.errors
        self._write("begin")
        said: Said = {}
        for line in self._read():
            said |= json.loads(line)
        self._write("end")
        assert self._read() == ["ended"] * 2, self.errors
        return said

    @property
    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def close(self) -> None:
        for process in self._processes:
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        self._errors.close()

    def _write(self, line: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()

    def _read(self) -> list[str]:
        lines = []
        for process in self._processes:
            assert process.stdout is not None
            lines.append(process.stdout.readline().strip())
        return lines


@pytest.fixture
def society(store: str, redis: RedisServer, tmp_path: Path) -> Iterator[Society]:
    made = Society(store, redis.port, tmp_path)
    yield made
    made.close()


async def _events(store: str, exp_id: str) -> list[Event]:
    async with EventLog.open(store, create=False) as log:
        return [event async for event in log.read(exp_id)]


async def _problems(store: str, exp_id: str) -> list[str]:
    async with EventLog.open(store, create=False) as log:
        return [problem.text for problem in (await problems(log, await log.experiment(exp_id))).details]


@pytest.mark.nightly
@pytest.mark.sqlite
@pytest.mark.parametrize("how", ["messagers", "hooks"])
def test_agents_of_two_processes_repeat_a_recording(
    society: Society, store: str, how: Literal["messagers", "hooks"]
) -> None:
    """Half of the sendings are messages to an agent, and as many wake it up."""
    recorded = society.run(how, "rec")
    free = sum(society.run("messagers", f"free-{run}") == recorded for run in range(3))
    again = [society.run("messagers", f"again-{run}", "rec") == recorded for run in range(RUNS)]
    print(f"free: {free} of 3 equal; in lockstep: {sum(again)} of {RUNS} equal\n{society.errors[-1500:]}")
    assert free < 3 and again == [True] * RUNS
    assert society.errors.count("32 messages expected, 32 matched") == 3 * RUNS


@pytest.mark.nightly
@pytest.mark.sqlite
def test_the_hooks_record_every_message_on_redis_with_sender_and_recipient(society: Society, store: str) -> None:
    society.run("hooks", "rec")
    found = asyncio.run(_events(store, "rec"))
    to_inboxes = [one for one in found if one.channel is not None and one.channel.startswith("agentscope:inbox:")]
    said = [(one.from_id, one.to_id, one.carrier) for one in to_inboxes if one.kind == "sent"]
    pairs = [(one, other, "queue") for one in NAMES for other in NAMES if one != other]
    assert sorted(said) == sorted(pairs * ROUNDS)
    heard = {one.payload for one in to_inboxes if one.kind == "received"}
    left = {one.payload for one in to_inboxes if one.kind == "sent"} - heard
    reported = asyncio.run(_problems(store, "rec"))
    assert len(reported) == len(left), reported  # what nobody drained
