"""`messager fork` in a process of its own: its report, its refusals and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messager.testing import RedisServer
from messager_store import EventLog
from tests.store.cli.conftest import PutImported
from tests.support import forks, messager, until
from tests.support.command_line import one_line
from tests.support.forked_program import ForkedProgram

Run = Callable[..., Any]
PROGRAM = """
import asyncio, sys
from messager import Messager, RedisConfig

async def main():
    async with Messager(RedisConfig(server="localhost", port=int(sys.argv[1])), "e2") as messager:
        for n in map(int, sys.argv[2:]):
            await messager.send_message("exps:e2:agents:2:chat", {"n": n}, 1)

asyncio.run(main())
"""
LINES = [
    {"ts": 1, "channel": "exps:e1:agents:2:chat", "from_id": 1, "payload": {"n": 1}},
    {"ts": 2, "kind": "mark", "meta": {"name": "phase", "fields": {}}},
    {"ts": 3, "channel": "exps:e1:agents:2:chat", "from_id": 1, "payload": {"n": 2}},
]


@pytest.fixture
def run(tmp_path: Path, redis: RedisServer, put_imported: PutImported) -> Run:
    put_imported(tmp_path, LINES, ("--exp", "e1"))

    def call(*arguments: str, **options: Any) -> Any:
        given = ["--broker", redis.url] if arguments[0] == "fork" and "--broker" not in arguments else []
        return messager(*arguments, *given, cwd=tmp_path, **options)

    return call


def info(run: Run, exp_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("info", exp_id, "--json").stdout)
    return found


def test_a_fork_without_live_agents_is_a_copy_of_the_prefix(run: Run) -> None:
    done = run("fork", "e1", "--at", "mark:phase", "--into", "e2", "--live", "none", "--tag", "x", "--meta", "seed=7")
    assert (done.returncode, done.stderr) == (0, "")
    told = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert told == [
        ["fork", "e2 of e1, until 2:1:2"],
        ["prefix", "complete"],
        ["events", "1: 1 copied, the others repeated by live agents"],
        ["published", "1 recorded message"],
    ]
    found = info(run, "e2")
    assert (found["parent"]["point"], found["tags"], found["meta"]) == (
        "2:1:2",
        ["x"],
        {"seed": 7, "prefix": "complete"},
    )
    assert run("verify", "e2").returncode == 0
    [event] = [json.loads(line) for line in run("events", "e2", "--json").stdout.splitlines()]
    assert event["channel"] == "exps:e2:agents:2:chat" and event["origin"][1] == 1


def test_a_refused_fork_is_told_in_one_line_and_leaves_nothing(run: Run) -> None:
    cases = [
        (["--into", "e1"], 2, ["cannot be a fork of itself"]),
        (["--into", "e2", "--at", "mark:nope"], 2, ["its marks are: phase"]),
        (["--into", "e2", "--live", "9"], 2, ["agent 9 says nothing in e1"]),
        (["--into", "e2", "--patience", "soon"], 2, ["--patience", "soon"]),
        (["--into", "e2", "--patience", 400 * "9"], 2, ["--patience", "too long"]),
        (["--into", "e2", "--at", "99h"], 2, ["the point 99h is after the end of e1, which lasts"]),
        (["--into", "e2", "--meta", "prefix=x"], 2, ["the meta 'prefix' of a fork"]),
        (["--into", "e2", "--broker", "redis://127.0.0.1:1"], 3, ["127.0.0.1:1"]),
        (["--into", "@x"], 2, ["cannot be the experiment"]),
    ]
    for arguments, code, words in cases:
        one_line(run("fork", "e1", *arguments), code, *words)
    assert [row["exp_id"] for row in json.loads(run("ls", "--json").stdout)] == ["e1"]


def _started(folder: Path, redis: RedisServer, *arguments: str) -> ForkedProgram:
    line = ["fork", "e1", "--into", "e2", "--broker", redis.url, *arguments]
    return ForkedProgram(forks.COMMAND_LINE, line, folder)


async def _exists(folder: Path) -> None:
    async with EventLog.open(str(folder / "messager.db")) as log:
        await until(lambda: log.has_experiment("e2"), 60)


def test_a_fork_that_is_interrupted_says_so_in_its_experiment(run: Run, tmp_path: Path, redis: RedisServer) -> None:
    with _started(tmp_path, redis) as verb:
        assert verb.stderr is not None
        assert verb.stderr.readline() == "waiting for live programs: MESSAGER_REPLAY=e1, exp_id e2\n"
        verb.send_signal(signal.SIGINT)
        verb.communicate(timeout=60)
    assert verb.returncode == 130
    assert info(run, "e2")["meta"]["prefix"].startswith("stopped: ")


async def test_a_program_with_a_store_of_its_own_is_gathered_into_the_fork(
    run: Run, tmp_path: Path, redis: RedisServer
) -> None:
    """As on another host: the fork is in the store of the recording, and the program records into a file."""
    (tmp_path / "replay.json").write_text(json.dumps({"experiment": "e1", "store": str(tmp_path / "messager.db")}))
    with _started(tmp_path, redis, "--json") as verb:
        await _exists(tmp_path)
        env = {"MESSAGER_STORE": str(tmp_path / "own.db"), "MESSAGER_REPLAY": str(tmp_path / "replay.json")}
        line = [sys.executable, "-c", PROGRAM, str(redis.port), "1", "2", "9"]
        subprocess.run(line, env={**os.environ, **env}, cwd=tmp_path, check=True, timeout=60)
        told, errors = verb.communicate(timeout=60)
    assert verb.returncode == 0 and json.loads(told)["complete"], errors
    done = run("gather", "own.db", "--exp", "e2")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in run("events", "e2", "--json").stdout.splitlines()]
    assert sorted(row["origin"][1] for row in rows if "origin" in row) == [1, 2, 3]
    assert info(run, "e2")["parent"]["exp_id"] == "e1" and run("verify", "e2").returncode == 0


async def _program(
    folder: Path, redis: RedisServer, numbers: list[str], *arguments: str
) -> tuple[ForkedProgram, subprocess.CompletedProcess[str], str, str]:
    """Fork e1 with a program that says these numbers; return the verb, the program, and what the verb printed."""
    with _started(folder, redis, *arguments) as verb:
        await _exists(folder)
        env = {**os.environ, "MESSAGER_STORE": str(folder / "messager.db"), "MESSAGER_REPLAY": "e1"}
        line = [sys.executable, "-c", PROGRAM, str(redis.port), *numbers]
        program = subprocess.run(line, env=env, cwd=folder, capture_output=True, text=True, timeout=60)
        told, errors = verb.communicate(timeout=60)
    return verb, program, told, errors


def _sent(run: Run) -> list[tuple[int, int | None]]:
    """Return the numbers that were sent in the fork, each with its origin."""
    said = [json.loads(line) for line in run("events", "e2", "--kind", "sent", "--json").stdout.splitlines()]
    return [(json.loads(row["payload"])["n"], (row.get("origin") or (0, None))[1]) for row in said]


async def test_a_program_that_repeats_its_part_goes_on(run: Run, tmp_path: Path, redis: RedisServer) -> None:
    verb, program, told, errors = await _program(tmp_path, redis, ["1", "2", "9"], "--json")
    assert (verb.returncode, program.returncode) == (0, 0), errors + program.stderr
    assert json.loads(told)["complete"] and json.loads(told)["cast"]["equal"]
    assert _sent(run) == [(1, 1), (2, 3), (9, None)]
    assert run("verify", "e2").returncode == 0


async def test_a_program_that_differs_stops_the_fork_which_shows_the_divergence(
    run: Run, tmp_path: Path, redis: RedisServer
) -> None:
    """The patience is longer than the test may last."""
    verb, program, told, errors = await _program(tmp_path, redis, ["1", "9"], "--patience", "1h")
    assert (verb.returncode, program.returncode) == (1, 1), told + errors + program.stderr
    assert "message 2 of 2 of agent 1 on exps:e2:agents:2:chat differs (at $.n)" in program.stderr
    assert "message 2 of 2 of agent 1 on exps:e2:agents:2:chat differs (at $.n)" in errors
    lines = told.splitlines()
    assert "live agents  different: 2 messages expected, 1 matched, 1 different" in lines
    assert (
        "pace         weaker: the recording does not tell what was heard, so the order of the replay was used" in lines
    )
    at = lines.index("different: agent 1, message 2 of 2, on exps:e2:agents:2:chat")
    assert [line.split(maxsplit=1) for line in lines[at + 1 : at + 3]] == [
        ["recorded", '{"n": 2}'],
        ["live", '{"n": 9}'],
    ]
    assert "message 2 of 2 of agent 1 on exps:e2" in info(run, "e2")["meta"]["prefix"]
    assert _sent(run) == [(1, 1)]
    assert run("verify", "e2").returncode == 0


def test_without_a_live_program_the_fork_ends_and_says_whom_to_start(run: Run) -> None:
    done = run("fork", "e1", "--into", "e2", "--patience", "2s")
    assert done.returncode == 1
    assert "stopped: 2 messages expected, none said" in done.stdout
    _, key, *why = done.stderr.splitlines()
    needed = "live programs of other users or machines need the key of the run: MESSAGER_REPLAY_KEY names their copy"
    assert key.startswith(needed)
    assert why == [
        "messager: the fork stopped: no live program plays agent 1, and none came within 2 s. Start each with "
        "MESSAGER_REPLAY=e1 in its environment and the exp_id of the fork, or raise the patience."
    ]
