"""What the command line says, and whether it can be used as it stands."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messager_store.cli.demo_ import _own_name
from messager_store.errors import ScrubUnfinished, WrongRevision
from tests.support import messager

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
