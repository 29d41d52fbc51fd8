"""Command line with a Redis server of its own, and with an imported experiment."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from messager.testing import RedisServer
from tests.support import messager
from tests.support.command_line import LINES, Run

PutImported = Callable[..., None]


@pytest.fixture
def run(tmp_path: Path, redis: RedisServer) -> Run:
    def call(*arguments: str, **options: Any) -> Any:
        return messager(*arguments, cwd=tmp_path, env={"MESSAGER_REDIS": redis.url}, **options)

    return call


@pytest.fixture(scope="session")
def put_imported(tmp_path_factory: pytest.TempPathFactory) -> PutImported:
    """Function that puts a file of lines, and the store into which they were imported, into a folder.

    Equal imports are made once.
    """
    made: dict[str, Path] = {}

    def put(folder: Path, lines: Sequence[Any], *imports: Sequence[str]) -> None:
        key = json.dumps([lines, imports])
        if key not in made:
            source = tmp_path_factory.mktemp("imported")
            (source / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            for words in imports:
                done = messager("import", "a.jsonl", *words, cwd=source)
                assert (done.returncode, done.stdout) == (0, ""), done.stderr
                assert f"imported {len(lines)} event" in done.stderr and str(source / "messager.db") in done.stderr
            assert sorted(file.name for file in source.iterdir()) == ["a.jsonl", "messager.db"]
            made[key] = source
        for file in made[key].iterdir():
            shutil.copyfile(file, folder / file.name)

    return put


@pytest.fixture
def imported(run: Run, put_imported: PutImported, tmp_path: Path) -> Run:
    put_imported(tmp_path, LINES, ("--exp", "game-1", "--name", "first", "--tag", "t1", "--meta", "seed=7"))
    return run
