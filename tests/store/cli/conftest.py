"""Command line with a Redis server of its own, and with an imported experiment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from messager.testing import RedisServer
from tests.support import messager
from tests.support.command_line import LINES, Run


@pytest.fixture
def run(tmp_path: Path, redis: RedisServer) -> Run:
    def call(*arguments: str, **options: Any) -> Any:
        return messager(*arguments, cwd=tmp_path, env={"MESSAGER_REDIS": redis.url}, **options)

    return call


@pytest.fixture(scope="session")
def folder_of_import(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a file of `LINES`, and with the store into which it was imported."""
    folder = tmp_path_factory.mktemp("imported")
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    words = ("import", "a.jsonl", "--exp", "game-1", "--name", "first", "--tag", "t1", "--meta", "seed=7")
    done = messager(*words, cwd=folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert "imported 4 events as game-1 into " + str(folder / "messager.db") in done.stderr
    assert sorted(file.name for file in folder.iterdir()) == ["a.jsonl", "messager.db"]
    return folder


@pytest.fixture
def imported(run: Run, folder_of_import: Path, tmp_path: Path) -> Run:
    for name in ("a.jsonl", "messager.db"):
        shutil.copyfile(folder_of_import / name, tmp_path / name)
    return run
