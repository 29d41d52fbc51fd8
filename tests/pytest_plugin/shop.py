"""A project with two agents, and pytest runs in it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import messager_pytest.fixture  # noqa: F401  # loaded before the runs in this process, which forget what they load

AGENTS = """
import asyncio
import json

import pytest

PRICES = {"apple": 2, "pear": 3}


async def seller(messager):
    await messager.subscribe_and_start_listening([messager.get_subtopic_channel(3, "*")])
    while True:
        for message in await messager.fetch_messages():
            asked = json.loads(message["data"])
            answer = {"from": 3, "content": f"{asked['content']}: {PRICES[asked['content']]}"}
            await messager.send_message(messager.get_agent_chat_channel(asked["from"]), answer, 3, asked["from"])
        await asyncio.sleep(0.01)


async def buyer(messager):
    await messager.subscribe_and_start_listening([messager.get_subtopic_channel(7, "*")])
    for fruit in ("apple", "pear"):
        await messager.send_message(messager.get_agent_chat_channel(3), {"from": 7, "content": fruit}, 7, 3)
        while not await messager.fetch_messages():
            await asyncio.sleep(0.1)
"""
TEST = """
@pytest.mark.recording("shop.jsonl")
def test_the_seller_answers_as_it_did(replay):
    replay(3, seller)
"""


def said(at: int, who: int, to: int, content: str, **fields: Any) -> dict[str, Any]:
    """Return the line of a message, in a recording without schedule."""
    channel = f"exps:shop:agents:{to}:agent-chat"
    return {
        "ts": at,
        "channel": channel,
        "from_id": who,
        "to_id": to,
        "payload": {"from": who, "content": content},
    } | fields


TALK = [said(1, 7, 3, "apple"), said(2, 3, 7, "apple: 2"), said(3, 7, 3, "pear"), said(4, 3, 7, "pear: 3")]


class Shop:
    """Project of a user in a folder of its own: `tests/test_shop.py` and `tests/recordings/shop.jsonl`."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        self._monkeypatch = monkeypatch
        self.path = pytester.path
        self.recording = self.path / "tests" / "recordings" / "shop.jsonl"
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr("sys.argv", ["pytest"])
        # With CI or BUILD_NUMBER pytest prints a failure a second time, in its summary.
        for name in ("CI", "BUILD_NUMBER", "MESSAGER_STORE", "PYTEST_ADDOPTS"):
            monkeypatch.delenv(name, raising=False)

    def write(self, tests: str = TEST, agents: str = AGENTS, *, name: str = "test_shop.py") -> None:
        """Write a test file."""
        path = self.path / "tests" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(agents + tests)

    def record(self, lines: list[dict[str, Any]] | str, path: Path | None = None) -> None:
        """Write a recording."""
        path = path or self.recording
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines if isinstance(lines, str) else "".join(json.dumps(line) + "\n" for line in lines))

    def events(self, path: Path | None = None) -> list[dict[str, Any]]:
        """Return the lines of a recording without its header."""
        lines = [json.loads(line) for line in (path or self.recording).read_text().splitlines()]
        return [line for line in lines if "ts" in line]

    def contents(self, path: Path | None = None) -> list[str]:
        """Return what was said according to a recording."""
        return [line["payload"]["content"] for line in self.events(path) if line.get("kind", "sent") == "sent"]

    def run(
        self, *arguments: str, plugins: tuple[str, ...] = ("messager",), own_process: bool = False
    ) -> pytest.RunResult:
        """Run pytest with these plugins; with others than the one under test, in a process of its own."""
        self._monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        words = ["-p", "no:cacheprovider", *(word for plugin in plugins for word in ("-p", plugin)), *arguments]
        if own_process or len(plugins) > 1:
            return self._pytester.runpytest_subprocess(*words, timeout=60)
        return self._pytester.runpytest_inprocess(*words, "-W", "ignore::pytest.PytestAssertRewriteWarning")


def changed(old: str, new: str, text: str = AGENTS) -> str:
    """Return the agents with a part of their text replaced."""
    assert old in text
    return text.replace(old, new)


def text_of(result: pytest.RunResult) -> str:
    """Return what a run printed, without the margin of pytest and without times."""
    lines = [re.sub(r"^E   ?", "", line) for line in result.outlines]
    return re.sub(r" in \d+\.\d+s", "", os.linesep.join(lines)).replace(os.linesep, "\n")
