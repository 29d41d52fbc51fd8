"""Provenance of a recording: host, process, code, versions, command line."""

from __future__ import annotations

import os
import platform
import socket
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import messager.start
from messager.calls.exchange import inside
from messager.credentials import command_line
from messager.variables import ALL_HTTP, ALSO, COMPAT, RUN

_GIT_SECONDS = 5
_PACKAGES = ("messager", "redis", "paho-mqtt", "sqlalchemy", "asyncpg", "agentsociety", "agentscope")


@dataclass(frozen=True, slots=True)
class Process:
    """A process, as in the row of a recorder."""

    host: str
    pid: int
    boot_id: str | None

    @staticmethod
    def is_running(pid: int) -> bool:
        """Return whether a process of this number runs on this host. A zombie does not run."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except OSError:
            pass  # a process of another user
        try:
            state = (
                Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
            )  # the name may contain any character
        except (OSError, IndexError):
            return True  # no /proc
        return state not in (b"Z", b"X")


@lru_cache(maxsize=1)
def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def this_process() -> Process:
    """Return this process. Not cached, because a fork has another pid."""
    return Process(socket.gethostname(), os.getpid(), _boot_id())


def circumstances() -> dict[str, Any]:
    """Return git commit and dirty flag, versions, command line, host, and the run (`messager run`), if there is one.

    Blocks while git runs; call it in a thread.
    """
    versions = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "versions": versions,
        "command": command_line(sys.orig_argv),
    }
    if run := os.environ.get(RUN):
        facts["run"] = run
        facts["run_with"] = {name: value for name in (ALSO, ALL_HTTP, COMPAT) if (value := os.environ.get(name))}
    if messager.start.seed_of_run is not None:
        facts["seed"] = messager.start.seed_of_run
    commit = _git("rev-parse", "HEAD")
    if commit is not None:
        facts["git"] = {"commit": commit, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    return facts


def _git(*arguments: str) -> str | None:
    try:
        with inside():  # not a program of the user
            done = subprocess.run(
                ["git", *arguments],
                capture_output=True,
                text=True,
                timeout=_GIT_SECONDS,
                check=True,
                stdin=subprocess.DEVNULL,
            )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
