"""Environments with the real packages of frameworks, for tests of `make nightly`."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support import ROOT

FOLDER = ROOT / "build" / "frameworks"
_INSTALL_SECONDS = 900


def python_with(*requirements: str) -> Path:
    """Return the Python of an environment that has these packages and this project.

    It is made once for each set of packages and Python. Skips the test if a package cannot be installed.
    """
    name = "+".join(requirements).replace("==", "-").replace("[", "-").replace("]", "")
    folder = FOLDER / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    python, ready = folder / "bin" / "python", folder / "ready"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several tests may make it at the same time
        if not ready.exists():
            venv.create(folder, with_pip=True, clear=True)
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            for wanted in (requirements, ("-e", str(ROOT))):
                done = subprocess.run([*install, *wanted], capture_output=True, text=True, timeout=_INSTALL_SECONDS)
                if done.returncode:
                    pytest.skip(f"{' '.join(requirements)} cannot be installed: {done.stderr.strip()[-300:]}")
            ready.touch()
    return python


def run_example(name: str, store: Path, *requirements: str) -> list[str]:
    """Run a program of `examples/` with these packages as the experiment `e1`, and return the lines that it prints."""
    environment = {**os.environ, "MESSAGER_STORE": str(store)}
    command = [python_with(*requirements), ROOT / "examples" / f"{name}.py", "e1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
