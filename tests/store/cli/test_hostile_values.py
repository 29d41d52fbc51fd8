"""Values that no option can have: one line, exit code 1, 2 or 3, no traceback."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from messager_store import cli
from tests.store.cli.conftest import PutImported
from tests.support.command_line import LINES

LONG = "x" * 300
HOSTILE: list[tuple[tuple[str, ...], int, str]] = [
    (("events", "game-1", "-C", str(2**63)), 2, "is more than 1,000,000,000,000,000,000"),
    (("ls", "-n", "9" * 400), 2, "is more than 1,000,000,000,000,000,000"),
    (("ls", "-n", "9" * 5000), 2, "is not a valid integer"),
    (("db", "upgrade", ""), 2, "is empty"),
    (("db", "downgrade", "", "--yes"), 2, "is empty"),
    (("record", "--exp", "x", "--duration", "nan"), 2, "nan is not a number of up to 1,000,000,000 seconds"),
    (("record", "--exp", "x", "--duration", "1e400"), 2, "inf is not a number of up to"),
    (("status", "--idle", "nan"), 2, "nan is not a number of up to"),
    (("replay", "game-1", "--max-gap", "99999999999d"), 2, "is too long"),
    (("replay", "game-1", "--speed", "1e400"), 2, "is not a speed"),
    (("export", "game-1", "-o", ""), 2, "is empty"),
    (("export", "game-1", "-o", f"{LONG}.jsonl"), 2, "File name too long"),
    (("export", "game-1", "-o", "/dev/full"), 3, "No space left"),
    (("import", "\udcff", "--exp", "x"), 2, "No such file"),
    (("gather", LONG, "--store", "other.db"), 1, ""),
    (("drain", "--spool", LONG), 2, "File name too long"),
    (("info", "x" * 100_000), 2, "`messager ls` lists the experiments."),
]


@pytest.mark.parametrize("words", [words for words, _, _ in HOSTILE], ids=lambda words: f"{words}"[:60])
def test_a_hostile_value_gets_one_line(
    put_imported: PutImported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: tuple[str, ...]
) -> None:
    _, code, reason = next(case for case in HOSTILE if case[0] == words)
    put_imported(tmp_path, LINES, ("--exp", "game-1"))
    done = ran(words, tmp_path, monkeypatch, capsys)
    assert done[0] == code and reason in done[1] and len(done[1]) < 2500
    assert done[1].count("\n") <= 1 and "Traceback" not in done[1]


def ran(words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> tuple[int, str]:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["messager", *words])
    return cli._run(), capsys.readouterr().err


def test_an_error_of_the_system_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, text in (
        (PermissionError(13, "Permission denied", "a file"), "messager: a file: Permission denied\n"),
        (OSError(5, "Input/output error"), "messager: Input/output error\n"),
        (MemoryError(), "messager: there is not enough memory\n"),
    ):
        monkeypatch.setattr(cli.cli, "main", lambda error=error, **_: (_ for _ in ()).throw(error))
        assert ran(("ls",), tmp_path, monkeypatch, capsys) == (3, text)


def test_check_of_a_newer_store_does_not_advise_an_upgrade(
    put_imported: PutImported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_imported(tmp_path, LINES, ("--exp", "game-1"))
    with sqlite3.connect(tmp_path / "messager.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["messager", "db", "check"])
    assert cli._run() == 1
    shown = capsys.readouterr().out
    assert "at revision 9999" in shown and "another version" in shown and "upgrade" not in shown
