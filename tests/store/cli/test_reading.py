"""Texts of the command line: clear, and usable when copied."""

from __future__ import annotations

import json
import os
import pty
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messager.testing import RedisServer
from messager_store.cli.commands.demo import _own_name
from messager_store.errors import ScrubUnfinished, WrongRevision
from tests.support import forks, messager
from tests.support.command_line import one_line
from tests.support.forked_program import ForkedProgram

Run = Callable[..., Any]
EVENTS = [{"ts": at, "channel": f"exps:g:agents:{at}:chat", "payload": "x"} for at in range(3)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in EVENTS))
    return lambda *arguments, **options: messager(*arguments, cwd=tmp_path, **options)


@pytest.mark.parametrize(
    ("exp_id", "quoted"), [("game-1", "game-1"), ("实验 2", "'实验 2'"), ("it's", """'it'"'"'s'""")]
)
def test_the_command_that_repairs_can_be_pasted(run: Run, tmp_path: Path, exp_id: str, quoted: str) -> None:
    run("import", "a.jsonl", "--exp", exp_id)
    with sqlite3.connect(tmp_path / "messager.db") as connection:
        connection.execute("UPDATE experiment SET status = 'open', closed_at = NULL")
        connection.execute("UPDATE recorder SET ended_at = NULL, pid = 4194305")
    connection.close()
    (problem,) = json.loads(run("status", "--json").stdout)["problems"]
    assert problem["remedy"] == f"messager repair {quoted}"
    assert f"`messager repair {quoted}`" in run("verify", "--all").stdout
    assert run(*shlex.split(problem["remedy"])[1:]).returncode == 0
    assert f"`messager events {quoted} --kind gap`" in run("verify", "--all").stdout


def test_commands_name_files_so_that_they_can_be_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "--store '/my runs/a.db'`" in str(ScrubUnfinished("/my runs/a.db", "no room"))
    assert "--store /runs/a.db`" in str(ScrubUnfinished("/runs/a.db", "no room"))
    assert "--store '/my runs/a.db' db" in str(WrongRevision("/my runs/a.db", "0001", "0002", newer=False))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "my tools" / "messager")])
    assert _own_name() == "'my tools/messager'"


def on_a_terminal(folder: Path, *arguments: str, **env: str) -> str:
    """Return the output of a verb on a terminal."""
    there, here = pty.openpty()
    outside = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    given = {**outside, "TERM": "xterm", **env}
    process = ForkedProgram(forks.COMMAND_LINE, arguments, folder, given, stdout=here, stderr=here)
    os.close(here)
    written = b""
    while True:
        try:
            piece = os.read(there, 10000)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(there)
    process.wait(60)
    return written.decode()


@pytest.mark.parametrize(
    ("env", "coloured"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "0"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_go_where_they_are_not_wanted(run: Run, tmp_path: Path, env: dict[str, str], coloured: bool) -> None:
    run("import", "a.jsonl", "--exp", "game-1")
    for words in ("events game-1", "info nobody", "--help", "ls --nonsense"):
        written = on_a_terminal(tmp_path, *words.split(), **env)
        assert ("\x1b[" in written) == coloured, (words, written)


def test_a_pack_that_is_imported_is_told_from_an_unknown_format(run: Run, tmp_path: Path) -> None:
    run("import", "a.jsonl", "--exp", "game-1")
    run("pack", "game-1", "-o", "a.pack")
    one_line(run("import", "a.pack", "--exp", "x"), 2, "a.pack, line 1", "`messager unpack`")
    (tmp_path / "b.jsonl").write_text('{"format": "messager/99"}\n')
    one_line(run("import", "b.jsonl", "--exp", "x"), 2, "'messager/99' is not known")


def test_a_tag_that_was_not_there_cannot_be_taken_off_in_silence(run: Run) -> None:
    run("import", "a.jsonl", "--exp", "game-1", "--tag", "paper")
    done = run("tag", "game-1", "--remove", "nope", "--remove", "paper")
    assert (done.returncode, done.stdout) == (0, "game-1: no tags\n")
    assert done.stderr == "game-1 had no tag 'nope'\n"


@pytest.mark.parametrize(("pattern", "fits"), [("*:agents:1:chat", True), ("exps/+/agents/#", False), ("nope*", False)])
def test_a_replay_says_that_a_pattern_fits_no_channel(run: Run, redis: RedisServer, pattern: str, fits: bool) -> None:
    run("import", "a.jsonl", "--exp", "game-1")
    for words in (("--dry-run",), ("--speed", "max")):
        done = run("replay", "game-1", "--channel", pattern, *words, "--broker", redis.url)
        assert done.returncode == 0
        assert (f"--channel {pattern}: game-1 has no such channel" in done.stderr) != fits


@pytest.mark.parametrize(
    ("words", "unknown"),
    [
        (["--agent", "99"], "--agent 99: game-1 has no such agent\n"),
        (
            ["--from", "nobody", "--channel", "x"],
            "--channel x: game-1 has no such channel\n--from nobody: game-1 has no",
        ),
        (["--channel", "*"], ""),
    ],
)
def test_an_unknown_agent_or_channel_is_noted_by_every_verb_that_filters(
    run: Run, words: list[str], unknown: str
) -> None:
    run("import", "a.jsonl", "--exp", "game-1")
    for verb in (["events", "game-1"], ["export", "game-1", "-o", "x.jsonl"], ["replay", "game-1", "--dry-run"]):
        done = run(*verb, *words)
        assert done.returncode == 0 and done.stderr.startswith(unknown), verb
        assert ("no such" in done.stderr) == bool(unknown)


def test_the_history_says_where_a_store_is(run: Run) -> None:
    done = run("db", "history", "--store", "other.db")
    assert done.returncode == 0 and "this store" not in done.stdout and "there is none" in done.stderr
    run("db", "upgrade", "0001", "--store", "other.db")
    for arguments in (("db", "history", "--store", "other.db"), ("--store", "other.db", "db", "history")):
        done = run(*arguments)
        (line,) = (line for line in done.stdout.splitlines() if "this store" in line)
        assert line.startswith("0001  ") and done.stderr == ""


def test_the_help_is_named_once(run: Run) -> None:
    done = run("foo")
    one_line(done, 2, "there is no verb 'foo' (see `messager --help`)")
    assert done.stderr.count("--help") == 1
    one_line(run("reply"), 2, "there is no verb 'reply'. Did you mean replay? (see `messager --help`)")
