"""docs/reproducing.md: every program and every command on the page runs, and does what the page says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from messager.testing import RedisServer
from messager_store import EventLog
from tests.support import MESSAGER, ROOT

pytestmark = pytest.mark.sqlite

PAGE = (ROOT / "docs" / "reproducing.md").read_text()


def fenced(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[str]:
    """Return the blocks of commands on the page, in order."""
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    return [re.sub("^ {4}", "", block, flags=re.MULTILINE) for block in re.findall(r"(?:^ {4}\S.*\n)+", text, re.M)]


SETTING, RECORD, *AGAIN = commands()[0].splitlines()
"""The first block sets the environment, records, and reproduces."""


def ran(folder: Path, *lines: str) -> str:
    """Run commands in a shell, wait for all of them, and return what they print. Fails unless each succeeds."""
    script = "\n".join(["set -e", *lines, 'for job in $(jobs -p); do wait "$job"; done'])
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory, redis: RedisServer) -> Path:
    """Folder with the files of the page and its recording. Commands find this package and the server of the tests."""
    folder = tmp_path_factory.mktemp("page")
    shop, again = fenced("python")
    (folder / "shop.py").write_text(shop.replace('server="localhost"', f'server="127.0.0.1", port={redis.port}'))
    (folder / "again.py").write_text(again)
    [settings] = fenced("json")
    (folder / "replay.json").write_text(settings)
    (folder / "bin").mkdir()
    for name, words in (("messager", MESSAGER), ("python", [sys.executable])):
        quoted = " ".join(f"'{word}'" for word in words)
        exports = f"export PYTHONPATH='{ROOT}' MESSAGER_BROKER='{redis.url}'"
        (folder / "bin" / name).write_text(f'#!/bin/sh\n{exports}\nexec {quoted} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    assert RECORD.startswith("python shop.py exp-1")
    ran(folder, f"PATH={folder / 'bin'}:$PATH", SETTING, RECORD)
    return folder


@pytest.fixture
def folder(recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy of the folder with the recording."""
    monkeypatch.setenv("PATH", f"{recording / 'bin'}:{os.environ['PATH']}")
    return Path(shutil.copytree(recording, tmp_path / "page"))


def test_all_live_in_two_processes_are_equal_to_the_recording(folder: Path) -> None:
    shown = ran(folder, SETTING, *AGAIN)
    assert re.search(r"^equal +exp-1: 12 messages, exp-2: 12 messages", shown, re.MULTILINE), shown
    assert shown.count("6 messages expected, 6 matched, 0 different, 0 missing, 0 unexpected") == 2
    assert "plays agent 3 of exp-1" in shown and "plays agent 7 of exp-1" in shown


def test_one_live_agent_in_another_process_and_in_the_same_one(folder: Path) -> None:
    shown = ran(folder, SETTING, commands()[1])
    assert (
        "equal: 6 messages expected, 6 matched" in shown and "lockstep in the processes of the live agents" in shown
    ), shown
    assert ran(folder, "python again.py").split() == ["lockstep", "True", "None"]


@pytest.mark.nightly
def test_the_file_with_settings_is_read(folder: Path) -> None:
    shown = ran(folder, SETTING, commands()[2])
    assert (
        "equal: 6 messages expected, 6 matched" in shown and "lockstep in the processes of the live agents" in shown
    ), shown
    [report] = (folder / "reports").glob("*.json")
    assert json.loads(report.read_text())["matched"] == 6


@pytest.mark.nightly
def test_another_agent_fails_with_the_first_divergence(folder: Path) -> None:
    shop = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text(shop.replace("{len(heard)} gold", "{2 * len(heard)} gold"))
    heard = r" +heard [^\n]*apple[^\n]*\n(?: +heard [^\n]*\n)*"
    shown = rf"different: agent 3, message 1 of 6[^\n]*\n{heard} +recorded .*: 1 gold"
    with pytest.raises(AssertionError, match=shown):
        ran(folder, SETTING, commands()[1])


@pytest.mark.nightly
def test_a_fork_repeats_what_is_before_the_mark(folder: Path) -> None:
    fork, programs = commands()[3].splitlines()
    script = f"{SETTING}\nexec {fork}"
    process = subprocess.Popen(["bash", "-c", script], cwd=folder, stdout=-1, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None and "waiting for live programs" in process.stderr.readline()
        ran(folder, SETTING, programs)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0 and "prefix     complete" in stdout, stdout + stderr

    async def before_and_after() -> list[list[bytes]]:
        async with EventLog.open(str(folder / "runs.db"), create=False) as log:
            found = []
            for exp_id in ("exp-1", "exp-4"):
                sent = [e async for e in log.read(exp_id, kinds=["sent"], until="mark:offer", from_ids=[7])]
                found.append([event.payload for event in sent])
                found.append([event.payload async for event in log.read(exp_id, kinds=["sent"], from_ids=[7])])
            return found

    parent, _, fork_before, fork_all = asyncio.run(before_and_after())
    assert fork_before == parent and len(parent) == 3
    assert len(fork_all) == 6


def test_the_fields_of_the_file_with_settings_are_those_of_the_page() -> None:
    from messager_store.lockstep.settings import Settings

    table = PAGE.partition("| field | default |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == set(Settings.__dataclass_fields__)
