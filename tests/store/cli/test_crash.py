"""After a crash, on the command line: drain, repair, close."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support import asked, messager
from tests.support.command_line import Run
from tests.support.forked_program import ForkedProgram

CRASH = """
import asyncio, os, signal, sqlite3, sys
from messager import MessageRecord
from messager_store import EventLog, Recorder

async def main():
    async with EventLog.open("messager.db") as log, Recorder(log, "e1", durability=sys.argv[1]) as recorder:
        recorder.after(MessageRecord("sent", recorder.clock.now(), "c", b"committed"))
        await recorder.flush()
        other = sqlite3.connect("messager.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        for number in range(50):
            recorder.after(MessageRecord("sent", recorder.clock.now(), "c", b"spooled"))
        while recorder.spooled < 50:
            await asyncio.sleep(0.05)
        recorder.after(MessageRecord("sent", recorder.clock.now(), "c", b"lost"))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Folder in which a recorder was killed while the store was locked."""
    (tmp_path / "crash.py").write_text(textwrap.dedent(CRASH))
    done = subprocess.run(
        [sys.executable, "crash.py", "strict"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -9, done.stderr
    return tmp_path


def test_drain_then_repair_then_close(crashed: Path) -> None:
    def run(*arguments: str) -> Any:
        return messager(*arguments, cwd=crashed)

    assert "messager repair e1" in run("verify", "e1").stdout
    waits = run("repair")
    assert waits.returncode == 1 and "messager drain" in waits.stdout
    refused = run("close", "e1")
    assert (refused.returncode, refused.stdout) == (2, "") and "messager drain" in refused.stderr
    drained = run("drain")
    assert drained.returncode == 0 and "50 events of e1" in drained.stdout and "messager repair" in drained.stdout
    assert not (crashed / "messager.db-spool").exists()
    assert run("drain").stderr.startswith("no spools in")
    again = run("drain", "--spool", "messager.db-spool")
    assert (again.returncode, again.stderr) == (0, "no spools in messager.db-spool\n")
    [known] = json.loads(run("repair", "--json").stdout)
    assert (known["recorder"], known["events"], known["spool"]) == (1, 51, None)
    assert "all sent ones are logged" in known["missing"]
    assert run("repair").stderr == "nothing to repair\n"
    verified = run("verify", "e1")
    assert verified.returncode == 0 and "was repaired" in verified.stdout
    assert run("close", "e1").returncode == 0
    rows = [json.loads(line) for line in run("events", "e1", "--json").stdout.splitlines()]
    assert [row["payload"] for row in rows if row["kind"] == "sent"] == ["committed"] + ["spooled"] * 50


def test_close_repairs_by_itself(crashed: Path) -> None:
    assert messager("drain", "--json", cwd=crashed).returncode == 0
    closed = messager("close", "e1", cwd=crashed)
    assert closed.returncode == 0 and "repaired" in closed.stdout and "is closed" in closed.stdout


def test_what_drain_cannot_read_stays_and_is_told(crashed: Path) -> None:
    [spool] = (crashed / "messager.db-spool").iterdir()
    content = bytearray(spool.read_bytes())
    content[content.index(b"\n") + 3] ^= 255  # a length
    spool.write_bytes(content)
    done = messager("drain", cwd=crashed)
    assert done.returncode == 1 and "damaged from byte" in done.stdout and spool.exists()
    spool.write_bytes(b"\x1b[31mno spool\n")
    done = messager("drain", cwd=crashed)
    assert done.returncode == 1 and "its first line is not that of a spool" in done.stdout and "\x1b" not in done.stdout


def test_wrong_uses_get_one_line(tmp_path: Path) -> None:
    for arguments, code in ((("drain",), 3), (("repair",), 3), (("repair", "e1"), 3), (("drain", "e1"), 2)):
        done = messager(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    recorded = messager("record", "--exp", "e", "--durability", "eventual", cwd=tmp_path)
    assert recorded.returncode == 2 and "'buffered', 'strict'" in recorded.stderr


@pytest.mark.parametrize(
    "verb", [("rm", "game-1"), ("compact",), ("redact", "game-1", "--where", "kind=sent", "--why", "x")]
)
def test_ctrl_c_ends_a_question_and_the_verb(imported: Run, tmp_path: Path, verb: tuple[str, ...]) -> None:
    def interrupted(process: ForkedProgram) -> None:
        while process.returncode is None:  # again where it came in the moment before the answer was read
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)

    code, _, stderr = asked(tmp_path, "", *verb, meanwhile=interrupted)
    assert code == 130 and "[y/N]" in stderr and "Traceback" not in stderr, stderr
    assert imported("verify", "game-1").returncode == 0


def test_drain_finds_spools_in_the_folders_that_recorders_named(crashed: Path) -> None:
    (crashed / "messager.db-spool").rename(crashed / "far")
    [spool] = (crashed / "far").iterdir()
    with sqlite3.connect(crashed / "messager.db") as connection:
        connection.execute("UPDATE recorder SET spool = ?", (str(spool),))
    connection.close()
    assert "50 events of e1" in messager("drain", cwd=crashed).stdout
