"""What the command line shows on a terminal."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from messager_store.cli.replay_ import _bar


class Terminal(io.StringIO):
    """A terminal of 80 columns that remembers what was written to it."""

    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In the test itself: pytest sets the streams anew after each fixture."""
    made = Terminal()
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("LINES", "25")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_a_replay_says_for_whom_it_waits_and_then_that_it_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    report: Any = SimpleNamespace(published=0, planned=7, loops=0, held_back_s=0.0, stalled_s=0.0, held_by=None)
    with _bar(quiet=False, subscribers=3) as show:
        assert show is not None
        before = len(terminal.getvalue())
        show(report)
    assert "waiting for 3 subscribers" in terminal.getvalue()[:before]
    assert "replaying" in terminal.getvalue()[before:] and "0/7" in terminal.getvalue()[before:]
