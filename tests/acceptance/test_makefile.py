"""The Makefile finds a Python, and makes the virtual environment anew where it does not fit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

NEW = "-m venv .venv"


def planned(place: Path, *variables: str) -> str:
    """Return what `make demo` would run in this folder."""
    shutil.copy(ROOT / "Makefile", place)
    shutil.copy(ROOT / "pyproject.toml", place)
    command = ["make", "--no-print-directory", "-n", "demo", *variables]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=True, timeout=60).stdout


def test_an_environment_of_another_place_or_interpreter_is_made_anew(tmp_path: Path) -> None:
    place = tmp_path / "one place"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / ".venv"], check=True)
    (place / ".venv" / "bin" / "pip").write_text(f"#!{place}/.venv/bin/python\n")  # without a download
    assert NEW not in planned(place) and "pip install" in planned(place)
    assert NEW in planned(place, "PYTHON=/usr/bin/python3" if sys.base_prefix != "/usr" else "PYTHON=/bin/false")
    moved = place.rename(tmp_path / "another place")
    assert NEW in planned(moved)
    (moved / ".venv" / "bin" / "pip").write_text(f"#!{moved}/.venv/bin/python\n")
    assert NEW not in planned(moved)
    for link in (moved / ".venv" / "bin").glob("python*"):  # its interpreter was removed
        link.unlink()
        link.symlink_to("/nowhere/python3")
    assert NEW in planned(moved)


def test_a_python_that_is_too_old_is_told_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python2"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    done = subprocess.run(["make", "demo", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        f"Python 3.11 or later is needed. None of these is: {old}. Name one: make demo PYTHON=/path/to/python3"
    )
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
