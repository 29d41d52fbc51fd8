"""Meta that a recorder adds: git commit, command, host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from messager_store.experiments.provenance import circumstances, command_line, this_process


def test_a_command_line_is_kept_without_its_secrets() -> None:
    for given, kept in [
        (["run", "redis://user:hunter2@h:1/0"], ["run", "redis://***@h:1/0"]),
        (["run", "--redis=redis://:hunter2@h"], ["run", "--redis=redis://***@h"]),
        (["run", "--password", "hunter2", "x"], ["run", "--password", "***", "x"]),
        (["run", "--api-key=hunter2"], ["run", "--api-key=***"]),
        (["run", "OPENAI_API_KEY=hunter2"], ["run", "OPENAI_API_KEY=***"]),
        (["run", "redis://user:p@ss@h/0"], ["run", "redis://***@h/0"]),
        (["run", "redis://token@h"], ["run", "redis://***@h"]),
        (["run", "redis://h/0?username=u&pw=hunter2"], ["run", "redis://h/0?username=***&pw=***"]),
        (["run", "--passphrase", "hunter2", "--pwd=hunter2"], ["run", "--passphrase", "***", "--pwd=***"]),
        (["run", "--access-key", "hunter2", "--jwt", "hunter2"], ["run", "--access-key", "***", "--jwt", "***"]),
        (["run", "--bearer", "hunter2", "--dsn", "hunter2"], ["run", "--bearer", "***", "--dsn", "***"]),
        (["run", "-H", "Authorization: Bearer hunter2"], ["run", "-H", "Authorization: Bearer ***"]),
        (["run", "--max-tokens", "4096", "--author", "Ann"], ["run", "--max-tokens", "4096", "--author", "Ann"]),
        (["run", "plain", "--seed", "7", "a@b?c=d"], ["run", "plain", "--seed", "7", "a@b?c=d"]),
    ]:
        assert command_line(given) == kept


def test_the_git_commit_and_whether_it_was_changed_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "git" not in circumstances()
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    Path("config").write_text("1")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    clean = circumstances()["git"]
    assert len(clean["commit"]) == 40 and clean["dirty"] is False
    Path("config").write_text("2")
    assert circumstances()["git"] == {"commit": clean["commit"], "dirty": True}


def test_host_versions_and_command_line_are_noted() -> None:
    facts = circumstances()
    assert facts["host"] and facts["command"]
    assert {"python", "sqlite", "messager", "redis", "sqlalchemy"} <= facts["versions"].keys()


def test_a_process_knows_whether_another_runs() -> None:
    here = this_process()
    assert here.pid == os.getpid()
    assert here.is_running(here.pid)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert not here.is_running(gone.pid)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not tell")
def test_a_process_that_was_killed_is_gone_although_its_parent_has_not_asked_how_it_ended() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline()
    assert this_process().is_running(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    assert not this_process().is_running(child.pid)
    os.kill(child.pid, 0)  # which takes signals
    child.stdout.close()
    child.wait()
