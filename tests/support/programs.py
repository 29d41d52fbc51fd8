"""Programs that some tests need and that pip does not install."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import playwright
import pytest

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
GIVEN_CHROMIUM = os.environ.get("MESSAGER_TEST_CHROMIUM")
"""File name of the browser to use instead of one of `CHROMIUM_NAMES` on PATH."""


def lacking(what: str, remedy: str) -> NoReturn:
    """Skip the test because a program is not there. Where CI is set, fail it."""
    reason = f"{what}: {remedy}"
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def chromium() -> str:
    """Return the file name of Chromium, else skip the test. Playwright, which drives it, needs its node."""
    if _contained_node() is None:
        lacking("Playwright does not run", "install the library that its node lacks (Debian: libatomic1)")
    for name in (GIVEN_CHROMIUM,) if GIVEN_CHROMIUM else CHROMIUM_NAMES:
        if found := shutil.which(name):
            return found
    lacking(
        f"{GIVEN_CHROMIUM} is no program" if GIVEN_CHROMIUM else "Chromium is not installed",
        "install it (Debian: apt-get install chromium), or set MESSAGER_TEST_CHROMIUM to its file name",
    )


@functools.cache
def _contained_node() -> str | None:
    """Return the node that Playwright contains; None if it lacks a library, which happens on small systems."""
    node = Path(playwright.__file__).parent / "driver" / "node"
    try:
        subprocess.run([node, "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return str(node)


def node() -> str:
    """Return the file name of node: the one that Playwright contains, or one on PATH; else skip the test."""
    if found := _contained_node() or shutil.which("node"):
        return found
    lacking("node is not installed", "install it, version 22 or later")
