"""A verb whose caller has closed standard streams ends as usual, without a traceback."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import MESSAGER
from tests.support.command_line import Run


@pytest.mark.parametrize(
    ("arguments", "code", "closed"),
    [
        (["events", "game-1"], 0, ">&-"),
        (["sql", "game-1", "select 1"], 0, "<&- >&- 2>&-"),
        (["info", "none"], 2, "2>&-"),
    ],
)
def test_closed_streams_change_no_exit_code(
    imported: Run, tmp_path: Path, arguments: list[str], code: int, closed: str
) -> None:
    before = imported("events", "game-1").stdout
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *MESSAGER, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert imported("events", "game-1").stdout == before
