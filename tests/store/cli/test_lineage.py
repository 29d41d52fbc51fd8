"""Parents and forks in the verbs that show, remove and redact experiments."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, close
from messager_store.cli.tree import as_tree
from tests.support import messager
from tests.support.lineage import fork, parent
from tests.support.logs import filled, sent

Run = Callable[..., Any]


@pytest.fixture
async def run(tmp_path: Path) -> Run:
    """The verbs, in a folder whose store has exp-1, its forks exp-2 and exp-4, and exp-3, a fork of exp-2."""
    async with EventLog.open(str(tmp_path / "messager.db")) as log:
        await parent(log)
        await fork(log)
        await filled(log, [sent(1)], "another")
        await fork(log, "exp-2", "exp-3", at=None)
        await fork(log, into="exp-4", at=None)
    return lambda *arguments, **options: messager(*arguments, cwd=tmp_path, **options)


def first_column(text: str) -> list[str]:
    """Return what `ls` writes before the column NAME."""
    title, *lines = text.splitlines()
    return [line[: title.index("NAME")].rstrip() for line in lines]


def test_ls_shows_forks_as_a_tree_below_their_parent(run: Run) -> None:
    done = run("ls")
    assert first_column(done.stdout) == ["exp-1", "├ exp-2", "│ └ exp-3", "└ exp-4", "another"]
    assert "FORK OF" not in done.stdout and "5 experiments in " in done.stderr


def test_a_fork_whose_parent_is_not_listed_stands_by_itself_and_names_it(run: Run) -> None:
    done = run("ls", "-n", "3")
    assert first_column(done.stdout) == ["another", "exp-3", "exp-4"]
    title, *lines = done.stdout.splitlines()
    assert [line[title.index("FORK OF") :].strip() for line in lines] == ["-", "exp-2", "exp-1"]
    assert [row["exp_id"] for row in json.loads(run("ls", "-n", "3", "--json").stdout)] == ["another", "exp-3", "exp-4"]
    run("tag", "exp-1", "x")
    run("tag", "exp-3", "x")
    assert first_column(run("ls", "--tag", "x").stdout) == ["exp-1", "exp-3"]


def test_ls_in_json_keeps_its_order_and_has_the_parents(run: Run) -> None:
    rows = json.loads(run("ls", "--json").stdout)
    parents = {row["exp_id"]: row["parent"] and row["parent"]["exp_id"] for row in rows}
    assert list(parents.items()) == [
        *(("exp-1", None), ("exp-2", "exp-1"), ("another", None), ("exp-3", "exp-2"), ("exp-4", "exp-1")),
    ]
    assert set(rows[1]["parent"]) == {"exp_id", "head", "cursor"}


def test_a_long_line_of_forks_is_no_problem() -> None:
    rows: list[dict[str, Any]] = [
        {"exp_id": str(number), "parent": {"exp_id": str(number - 1)} if number else None} for number in range(3000)
    ]
    shown = as_tree(rows[::-1])
    assert [row["exp_id"] for _, row, _ in shown] == [row["exp_id"] for row in rows]
    assert shown[2][0] == "  └ "


def test_info_shows_the_parent_with_a_point_that_events_takes(run: Run) -> None:
    text = run("info", "exp-2").stdout
    [line] = [line for line in text.splitlines() if line.startswith("fork of")]
    parent = json.loads(run("info", "exp-2", "--json").stdout)["parent"]
    assert line.split(maxsplit=2)[2] == (
        f"exp-1 until 1970-01-01T00:00:00.000000004Z (4:2:2); its head was {parent['head'][:12]}"
    )
    assert run("events", "exp-1", "--until", parent["point"]).stderr.startswith("3 events of exp-1")
    shown = [line for line in run("info", "exp-1").stdout.splitlines() if line.startswith("fork")]
    assert [line.split()[1] for line in shown] == ["exp-2", "exp-4"]
    assert "fork" not in run("info", "another").stdout
    run("rm", "exp-1", "--yes")
    assert "exp-1 until 1970-01-01T00:00:00.000000004Z" in run("info", "exp-2").stdout
    assert "which is not in this store" in run("info", "exp-2").stdout


def test_the_removal_of_a_parent_is_allowed_and_says_which_forks_remain(run: Run) -> None:
    done = run("rm", "exp-1", "exp-4", "--yes")
    assert done.returncode == 0
    assert "exp-2 was forked from exp-1 and remains: it is complete by itself" in done.stderr
    assert "exp-4 was" not in done.stderr and "exp-3 was" not in done.stderr
    assert run("verify", "exp-2").returncode == 0


async def test_prune_says_which_forks_remain(run: Run, tmp_path: Path) -> None:
    async with EventLog.open(str(tmp_path / "messager.db")) as log:
        await close(log, await log.experiment("exp-1"))
    done = run("prune", "--older-than", "0s", "--yes")
    assert done.returncode == 0 and "removed exp-1" in done.stdout
    assert "exp-2 was forked from exp-1 and remains" in done.stderr and "exp-4 was forked" in done.stderr


def test_a_redaction_gives_the_commands_that_redact_the_copies(run: Run) -> None:
    words = ("redact", "exp-1", "--where", "contains=secret")
    assert "exp-2, a fork of exp-1, holds copies of 1 of them, which remain" in run(*words, "--dry-run").stderr
    done = run(*words, "--why", "asked to", "--yes")
    commands = [line.split("`")[1] for line in done.stderr.splitlines() if "holds copies" in line and "`" in line]
    assert commands == [
        f"messager redact {exp_id} --where redacted-in=exp-1 --why 'asked to'" for exp_id in ("exp-2", "exp-4")
    ]
    for command in commands:
        done = run(*shlex.split(command)[1:], "--yes")
        assert done.returncode == 0, done.stderr
    assert "exp-1, the parent" not in done.stderr
    further = run(*shlex.split(commands[0])[1:], "--yes").stderr
    assert "`messager redact exp-3 --where redacted-in=exp-2 --why 'asked to'` redacts them there" in further
    for exp_id in ("exp-1", "exp-2", "exp-4"):
        assert run("events", exp_id).stdout.count("[redacted]") == 1
        assert run("verify", exp_id).returncode == 0
