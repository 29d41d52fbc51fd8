"""What a killed process leaves beside its output is removed by the next one that writes there."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from messager_store.formats import temporary as module
from messager_store.formats.output_file import open_output
from messager_store.formats.temporary import temporary

KILLED = """
import sys
from pathlib import Path
from messager_store.formats.temporary import temporary
with temporary(Path(sys.argv[1])) as (_, file), temporary(Path(sys.argv[1]), folder=True) as (_, folder):
    (folder / "part").write_text("x")
    print(file, folder, sep="\\n", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed_and_what_a_live_one_writes_is_not(tmp_path: Path) -> None:
    target = tmp_path / ("x" * 249 + ".jsonl")
    arguments = [sys.executable, "-c", KILLED, str(target)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        made = {Path(process.stdout.readline().strip()) for _ in range(2)}
        assert set(tmp_path.iterdir()) == made
        with open_output(target) as file:
            file.write(b"new")
        assert set(tmp_path.iterdir()) == made | {target}
        process.send_signal(signal.SIGKILL)
    with open_output(target) as file:
        file.write(b"newer")
    assert [*tmp_path.iterdir()] == [target] and target.read_bytes() == b"newer"


def test_only_what_is_certainly_of_a_dead_process_of_this_host_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a"
    with temporary(target) as (_, path):
        name = path.name
    (tmp_path / name.replace(".a.", ".b.")).touch()
    monkeypatch.setattr(module, "_HOST", "elsewhere")
    with temporary(target) as (handle, path):
        kept = path.rename(tmp_path / f"{path.name}x")
        os.fchmod(handle, 0)
    monkeypatch.undo()
    (tmp_path / f"{name}-link").symlink_to(target)
    os.mkfifo(tmp_path / f"{name}-pipe")
    others = {*tmp_path.iterdir()} - {tmp_path / f"{name}-pipe"}
    with temporary(target):
        pass
    assert kept in others and set(tmp_path.iterdir()) == others


def test_a_file_that_was_removed_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = fcntl.flock

    def flock(handle: int, operation: int) -> None:
        monkeypatch.undo()
        [path] = tmp_path.iterdir()
        path.unlink()
        plain(handle, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with temporary(tmp_path / "a") as (handle, path):
        assert os.path.samestat(os.stat(path), os.fstat(handle))
    assert [*tmp_path.iterdir()] == []
