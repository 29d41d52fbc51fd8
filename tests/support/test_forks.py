"""Forks, in which most tests of the command line run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import forks, messager


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["ls"],
        ["nonsense"],
        ["import", b"\xff.jsonl", "--exp", "x"],
        ["import", "a.jsonl", "--exp", "\u65e5"],
    ],
)
def test_a_fork_does_what_a_process_does(words: list[str], tmp_path: Path) -> None:
    done = []
    for options in ({}, {"text": True}):  # with options it is a process
        folder = tmp_path / ("process" if options else "fork")
        folder.mkdir()
        (folder / "a.jsonl").write_text('{"ts": 1, "channel": "c", "payload": "x"}\n')
        ended = messager(*words, cwd=folder, **options)
        done.append((ended.returncode, ended.stdout, ended.stderr.replace(str(folder), "")))
    assert done[0] == done[1]


@pytest.mark.parametrize("name", ["PYTHONWARNINGS", "LC_ALL"])
def test_what_python_reads_at_its_start_takes_a_new_process(name: str) -> None:
    assert forks.fits({**forks._STARTED_WITH, "MESSAGER_STORE": "x"})
    assert not forks.fits({**forks._STARTED_WITH, name: "another"})
