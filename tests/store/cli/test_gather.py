"""`messager gather` in separate processes: its table, its refusals and its exit codes."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from messager_store import EventLog
from messager_store.recording.closing import close
from tests.support import messager
from tests.support.command_line import one_line
from tests.support.logs import sent

pytestmark = pytest.mark.sqlite


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """Folder with two parts of an experiment; the clock of the second host is behind that of the broker."""
    now = time.time_ns()
    for name, offset in (("a", None), ("b", 1_500_000)):
        async with EventLog.open(str(tmp_path / f"{name}.db")) as log:
            of = await log.create_experiment("town")
            row = {"host": f"host-{name}", "broker_offset": offset, "started_at": now}
            writer = await log.register(of, role="messager", row=row)
            await log.append(writer, [sent(now), sent(now + 1)])
            await log.touch(writer, ended_at=now + 2)
            await close(log, of)
    return tmp_path


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_old_and_new_ordinals_and_clocks_are_shown(folder: Path) -> None:
    done = messager("gather", "a.db", "b.db", "a.db", "--store", "all.db", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    skipped, title, columns, first, second, summary = lines(done.stdout)
    assert skipped[0] == "skipped" and title == ["town"] and columns[2:5] == ["HOST", "THERE", "HERE"]
    assert (first[0], *first[2:]) == ("a.db", "host-a", "1", "1", "2", "0", "ended")
    assert (second[0], *second[2:]) == ("b.db", "host-b", "1", "2", "2", "0", "+1.5", "ms", "ended")
    assert " ".join(summary).startswith("town is closed, 4 events copied, and has the head ")
    assert messager("verify", "town", "--head", summary[-1], "--store", "all.db", cwd=folder).returncode == 0


def test_the_head_before_is_shown_if_the_experiment_was_closed(folder: Path) -> None:
    before = lines(messager("gather", "a.db", "--store", "all.db", cwd=folder).stdout)[-1][-1]
    done = messager("gather", "a.db", "b.db", "--store", "all.db", cwd=folder)
    assert lines(done.stdout)[-1] == ["it", "had", "been", "closed,", "with", "the", "head", before]


def test_damage_and_what_is_no_store_are_told_with_exit_code_1(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "b.db")) as connection, connection:
        connection.execute("UPDATE event SET payload = x'00'")
    done = messager("gather", "a.db", "b.db", "none.db", "--store", "all.db", "--json", cwd=folder)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    [town] = found["experiments"]
    assert [part["recorders"][0]["damage"] for part in town["parts"]] == [
        None,
        "recorder 1, batch at seq 1: the event of seq 1 was changed, or its check",
    ]
    assert (town["status"], "there is no store" in found["not_read"][0]["reason"]) == ("open", True)
    done = messager("gather", "a.db", "b.db", "--store", "all.db", cwd=folder)
    assert done.returncode == 1 and "damaged  " in done.stdout and "the event of seq 1 was changed" in done.stdout


def test_a_dry_run_creates_no_store(folder: Path) -> None:
    done = messager("gather", "a.db", "b.db", "--store", "all.db", "--dry-run", cwd=folder)
    assert done.returncode == 0 and [line[4] for line in lines(done.stdout)[2:4]] == ["new", "new"]
    assert not (folder / "all.db").exists()


def test_an_unknown_experiment_is_wrong_use(folder: Path) -> None:
    one_line(messager("gather", "a.db", "--exp", "city", "--store", "all.db", cwd=folder), 2, "'city'", "messager ls")


async def test_an_unclean_end_is_told_with_its_remedy(tmp_path: Path) -> None:
    async with EventLog.open(str(tmp_path / "c.db")) as log:
        of = await log.create_experiment("town")
        writer = await log.register(of, role="messager", row={"started_at": 1})
        await log.append(writer, [sent(1)])
        await log.touch(writer, heartbeat_at=2)
    done = messager("gather", "c.db", "--store", "all.db", cwd=tmp_path)
    assert done.returncode == 0 and "recorder 1 ended uncleanly" in done.stdout
    [remedy] = re.findall(r"`messager (repair town --store .*?)`", done.stdout)
    assert messager(*remedy.split(), cwd=tmp_path).returncode == 0
    done = messager("gather", "c.db", "--store", "all.db", cwd=tmp_path)
    assert done.returncode == 0 and "uncleanly" not in done.stdout
