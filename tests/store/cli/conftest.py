"""Command line with a Redis server of its own, and with an imported experiment."""

from __future__ import annotations

import json
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


@pytest.fixture
def imported(run: Run, tmp_path: Path) -> Run:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    done = run("import", "a.jsonl", "--exp", "game-1", "--name", "first", "--tag", "t1", "--meta", "seed=7")
    assert (done.returncode, done.stdout) == (0, "")
    assert "imported 4 events as game-1 into " + str(tmp_path / "messager.db") in done.stderr
    return run
