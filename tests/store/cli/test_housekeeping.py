"""Verbs of maintenance in separate processes: questions, output, refusals and exit codes."""

from __future__ import annotations

import ctypes
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog
from tests.store.cli.conftest import PutImported
from tests.store.maintenance.test_housekeeping import spooled
from tests.support import asked, messager
from tests.support.command_line import one_line

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, put_imported: PutImported) -> Run:
    lines = [{"ts": at, "channel": "c", "payload": "x" * 200} for at in range(500)]
    put_imported(tmp_path, lines, *(("--exp", exp_id, "--tag", exp_id) for exp_id in ("game-1", "game-2")))
    return lambda *arguments, **options: messager(*arguments, cwd=tmp_path, **options)


def names(run: Run) -> list[str]:
    return [row["exp_id"] for row in json.loads(run("ls", "--json").stdout)]


def head(run: Run, exp_id: str, *options: str) -> str:
    return str(json.loads(run("info", exp_id, "--json", *options).stdout)["head"])


def test_a_pack_brings_the_head_along(run: Run, tmp_path: Path) -> None:
    known = head(run, "game-1")
    done = run("pack", "game-1", "-o", "a.pack.gz")
    assert (done.returncode, done.stdout) == (0, f"game-1 has the head {known}\n")
    assert "packed 500 events of game-1 into a.pack.gz" in done.stderr
    done = run("unpack", "a.pack.gz", "--head", known[:12], "--store", "other.db")
    assert (done.returncode, done.stdout) == (0, f"game-1 has the head {known}\n")
    assert f"unpacked 500 events into {tmp_path / 'other.db'}" in done.stderr
    assert run("verify", "game-1", "--head", known, "--store", "other.db").returncode == 0
    piped = run("pack", "game-1", "-o", "-", text=False)
    assert json.loads(piped.stdout.splitlines()[0]) == {"format": "messager-pack/1"}
    done = run("unpack", "-", "--exp", "piped", "--store", "third.db", input=piped.stdout, text=False)
    assert done.returncode == 0 and head(run, "piped", "--store", "third.db") == known


def test_what_cannot_be_unpacked_is_told_in_one_line(run: Run, tmp_path: Path) -> None:
    run("pack", "game-1", "-o", "a.pack")
    for options in ((), ("--exp", "x")):
        one_line(run("unpack", "a.pack", *options), 2, "here already, in the experiment 'game-1'", "--store")
    run("import", "a.jsonl", "--exp", "game-1", "--store", "o.db")
    one_line(run("unpack", "a.pack", "--store", "o.db"), 2, "'game-1' exists already", "--exp")
    run("rm", "game-1", "--yes", "--store", "o.db")
    one_line(run("unpack", "a.jsonl", "--exp", "x"), 2, "messager import")
    one_line(run("unpack", "messager.db"), 2, "messager.db, line 1: not a pack")
    one_line(run("unpack", "missing.pack"), 2, "No such file")
    one_line(run("unpack", "a.pack", "--head", "abc"), 2, "not a head")
    data = (tmp_path / "a.pack").read_bytes()
    (tmp_path / "b.pack").write_bytes(data.replace(b"xxx", b"xyx", 1))
    one_line(run("unpack", "b.pack", "--store", "o.db"), 2, "b.pack, line", "seq 1 was changed", "Nothing was imported")
    assert json.loads(run("ls", "--json", "--store", "o.db").stdout) == []
    one_line(run("pack", "game-1", "-o", "no/such/folder"), 2, "cannot write")
    one_line(run("pack", "nobody", "-o", "x"), 2, "no experiment 'nobody'")


def _as_others_may() -> None:
    """Give up root's right to write everywhere: CAP_DAC_OVERRIDE, out of what the next program may have."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="only Linux takes a right from root")
@pytest.mark.parametrize(
    "which",
    [
        "while it is recorded",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ("file and folder", "file", "folder")),
    ],
)
def test_a_store_that_may_only_be_read_answers_and_takes_nothing(run: Run, tmp_path: Path, which: str) -> None:
    store = tmp_path / "kept" / "messager.db"
    store.parent.mkdir()
    (tmp_path / "messager.db").rename(store)
    owner = sqlite3.connect(store) if which == "while it is recorded" else None
    if owner is not None:
        with owner:
            owner.execute("UPDATE experiment SET name='new' WHERE exp_id='game-1'")  # still in the -wal file
    there = sorted(path.name for path in store.parent.iterdir())
    if which != "folder":
        for path in store.parent.iterdir():
            path.chmod(0o444)
    if which != "file":
        store.parent.chmod(0o555)

    def asked_of(*words: str) -> Any:
        return run("--store", str(store), *words, preexec_fn=_as_others_may)

    try:
        listed = asked_of("ls", "--json")
        assert listed.returncode == 0, listed.stderr
        assert [row["name"] for row in json.loads(listed.stdout)] == ["new" if owner else None, None]
        for words in ("verify --all", "status"):
            done = asked_of(*words.split())
            assert done.returncode == 0, (words, done.stderr)
        for words in ("tag game-1 x", "compact --yes"):
            done = asked_of(*words.split())
            assert done.returncode == 3 and "you may read it, but not write it" in done.stderr, (words, done.stderr)
        assert sorted(path.name for path in store.parent.iterdir()) == there
    finally:
        store.parent.chmod(0o755)
        if owner is not None:
            owner.close()


def test_rm_says_what_goes_and_asks(run: Run, tmp_path: Path) -> None:
    code, stdout, stderr = asked(tmp_path, "n\n", "rm", "game-1", "game-2")
    assert code == 1 and "Remove them from" in stderr and "nothing was removed" in stderr
    title, first, second = [line for line in stdout.splitlines() if line.strip()]
    assert title.split()[:3] == ["EXP_ID", "NAME", "STATUS"] and "ON DISK" in title
    assert first.startswith("game-1") and "500" in first and "100.0 kB" in first and len(first) == len(second)
    assert "2 experiments, 1,000 events" in stderr
    assert names(run) == ["game-1", "game-2"]
    code, stdout, stderr = asked(tmp_path, "y\n", "rm", "game-1")
    assert code == 0 and "removed game-1: 500 events" in stdout and "messager compact" in stderr
    assert names(run) == ["game-2"]


def test_nobody_to_answer_is_no_yes(run: Run) -> None:
    for arguments in (("rm", "game-1"), ("prune", "--older-than", "0s"), ("compact",)):
        one_line(run(*arguments, input="y\n"), 2, "add --yes")
    assert names(run) == ["game-1", "game-2"]


def test_rm_without_asking_takes_no_prefix_and_nothing_where_one_is_unknown(run: Run) -> None:
    run("rm", "game-2", "--yes")
    one_line(run("rm", "game", "--yes"), 2, "only a prefix of 'game-1'")
    one_line(run("rm", "game-1", "gmae", "--yes"), 2, "no experiment 'gmae'")
    assert names(run) == ["game-1"]
    done = run("rm", "game-1", "game-1", "--yes")
    assert (done.returncode, done.stdout) == (0, "removed game-1: 500 events\n")
    assert names(run) == []


def test_prune_lists_and_removes_what_is_old(run: Run, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "messager.db") as connection:
        connection.execute("UPDATE experiment SET closed_at = closed_at - 40 * 86400 * 1000000000")
    connection.close()
    assert "nothing to remove" in run("prune", "--older-than", "50d", "--yes").stderr
    listed = json.loads(run("prune", "--older-than", "30d", "--keep-tag", "game-2", "--dry-run", "--json").stdout)
    assert [(row["exp_id"], row["events"], row["removed"]) for row in listed] == [("game-1", 500, False)]
    assert run("prune", "--older-than", "30d", "--dry-run").stdout.splitlines()[1].startswith("game-1")
    assert names(run) == ["game-1", "game-2"]
    one_line(run("prune", "--older-than", "ever"), 2, "--older-than", "1.5h")
    for bare in ("30", "0", "1.5", "", "30 "):
        one_line(run("prune", "--older-than", bare, "--yes"), 2, "--older-than", "with a unit, such as 30d")
    assert names(run) == ["game-1", "game-2"], "thirty days are not thirty seconds"
    one_line(run("prune", "--older-than", "30d", "--json"), 2, "--dry-run or --yes")
    code, _, stderr = asked(tmp_path, "n\n", "prune", "--older-than", "30d")
    assert code == 1 and "Remove 2 experiments" in stderr and names(run) == ["game-1", "game-2"]
    done = run("prune", "--older-than", "30d", "--keep-tag", "game-2", "--yes", "--json")
    assert [row["removed"] for row in json.loads(done.stdout)] == [True]
    assert names(run) == ["game-2"]


def test_what_was_tagged_while_the_question_was_open_is_not_pruned(run: Run, tmp_path: Path) -> None:
    question = ("prune", "--older-than", "0s")
    code, stdout, stderr = asked(tmp_path, "y\n", *question, meanwhile=lambda _: run("tag", "game-1", "paper"))
    assert code == 0 and "removed game-2" in stdout and "not removed" in stderr and "game-1" in stderr
    assert names(run) == ["game-1"]


def test_a_tag_that_keeps_nothing_is_told(run: Run) -> None:
    one_line(
        run("prune", "--older-than", "0s", "--keep-tag", "game-1", "--keep-tag", "Game-2", "--yes"),
        2,
        "no experiment has the tag 'Game-2'",
    )
    assert names(run) == ["game-1", "game-2"]


async def test_an_experiment_whose_events_wait_in_a_spool_is_not_removed_unless_forced(
    run: Run, tmp_path: Path
) -> None:
    async with EventLog.open(str(tmp_path / "messager.db")) as log:
        path = await spooled(log, "waits")
    done = run("prune", "--older-than", "0s", "--open", "--keep-tag", "game-1", "--keep-tag", "game-2", "--yes")
    assert done.returncode == 0 and names(run) == ["game-1", "game-2", "waits"]
    assert f"waits has events in {path}" in done.stderr and "messager drain" in done.stderr
    one_line(run("rm", "waits", "--yes"), 2, f"waits has events in {path}", "messager drain", "--force")
    assert run("rm", "waits", "--yes", "--force").returncode == 0
    assert names(run) == ["game-1", "game-2"]


def test_compact_says_what_it_takes_and_gives_back(run: Run, tmp_path: Path) -> None:
    run("rm", "game-1", "--yes")
    code, stdout, stderr = asked(tmp_path, "n\n", "compact")
    assert code == 1 and "nothing was done" in stderr
    assert [line.split()[0] for line in stdout.splitlines() if line.strip()] == ["store", "on", "free", "needs"]
    size = (tmp_path / "messager.db").stat().st_size
    done = run("compact", "--yes")
    assert done.returncode == 0 and "given back" in done.stdout
    assert (tmp_path / "messager.db").stat().st_size < size
    assert run("verify", "--all").returncode == 0


def test_status_is_for_cron(run: Run, tmp_path: Path) -> None:
    done = run("status")
    assert done.returncode == 0 and "no problems" in done.stdout and "0 open, 2 closed" in done.stdout
    quiet = run("status", "--quiet")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    data = json.loads(run("status", "--json").stdout)
    assert data["ok"] and data["closed"] == 2 and data["problems"] == []
    with sqlite3.connect(tmp_path / "messager.db") as connection:
        connection.execute("UPDATE experiment SET status = 'open', closed_at = NULL WHERE exp_id = 'game-1'")
        connection.execute("UPDATE recorder SET ended_at = NULL, pid = 4194305 WHERE experiment_id = 1")
    connection.close()
    done = run("status", "-q")
    assert done.returncode == 1 and "messager repair game-1" in done.stdout.splitlines()[-1]
    assert any(line.startswith("dead   game-1") for line in done.stdout.splitlines())
    data = json.loads(run("status", "--json").stdout)
    assert not data["ok"] and data["problems"][0]["remedy"] == "messager repair game-1"
    one_line(run("status", "--store", "missing.db"), 3, "it does not exist")
    assert run("repair", "game-1").returncode == 0
    assert run("status").returncode == 0
    assert run("status", "--min-free", str(10**9)).returncode == 1
