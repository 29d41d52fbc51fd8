"""Missing and broken drivers are reported in one line with the command that installs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from messager import drivers
from tests.support import MESSAGER, ROOT

EXTRAS = {"asyncpg": "postgres", "aiomqtt": "mqtt", "paho-mqtt": "mqtt"}
REQUIREMENTS = {package: drivers.requirement(package) for package in EXTRAS}
LISTS = [*MESSAGER, "--store", "postgresql://h/d", "ls"]
RECORDS = [*MESSAGER, "record", "--exp", "x", "--broker", "mqtt://127.0.0.1"]
CONNECTS = "import asyncio; from messager.mqtt import Messager; asyncio.run(Messager('127.0.0.1').connect())"
GOES_ON = """
import asyncio
from messager import MemoryBroker, Messager

async def main():
    async with Messager(MemoryBroker(), "e1") as messager:
        await messager.send_message("c", {"n": 1})
        print("sent")

asyncio.run(main())
"""


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder whose packages replace installed ones in every new process."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).strip(":"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stand_in(folder: Path, package: str, text: str) -> None:
    module = folder / package.partition("-")[0]
    module.mkdir()
    (module / "__init__.py").write_text(text)


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("package", "words", "text", "reason"),
    [
        ("asyncpg", LISTS, "raise ImportError('libpq.so:\\n  undefined symbol')", "libpq.so: undefined symbol"),
        pytest.param(
            *("paho-mqtt", RECORDS, "import asyncio; asyncio.gone"),
            "AttributeError(\"module 'asyncio' has no attribute 'gone'\")",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_one_that_cannot_be_imported_is_told_with_the_reason(
    ran: Path, package: str, words: list[str], text: str, reason: str
) -> None:
    stand_in(ran, package, text)
    done = run(words)
    remedy = f"`pip install --force-reinstall '{REQUIREMENTS[package]}'`"
    assert (done.returncode, done.stderr) == (2, f"messager: {package} cannot be imported ({reason}): {remedy}\n")


def test_a_messager_over_mqtt_raises_it_in_place_of_what_the_driver_would(ran: Path) -> None:
    stand_in(ran, "aiomqtt", "raise ImportError('no')")
    done = run([sys.executable, "-c", CONNECTS])
    assert done.stderr.splitlines()[-1].startswith("messager.errors.MissingDriver: aiomqtt cannot be imported (no): ")


def test_agents_that_are_to_be_recorded_go_on_without_it_and_a_line_says_why(
    ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "asyncpg cannot be imported (no): "
    stand_in(ran, "asyncpg", "raise ImportError('no')")
    monkeypatch.setenv("MESSAGER_STORE", "postgresql://h/d")
    done = run([sys.executable, "-c", GOES_ON])
    assert (done.returncode, done.stdout) == (0, "sent\n")
    assert re.fullmatch(rf"messager: e1 is not recorded: {re.escape(why)}.*'asyncpg>=0\.29'`\n", done.stderr)


@pytest.mark.parametrize("package", EXTRAS)
def test_the_hint_has_the_bounds_that_the_requirements_name(package: str) -> None:
    [asked] = [
        one
        for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][
            EXTRAS[package]
        ]
        if one.startswith(package)
    ]
    bounds, named = (text.removeprefix(package).split(",") for text in (asked, drivers.requirement(package)))
    assert sorted(bounds) == sorted(named)
