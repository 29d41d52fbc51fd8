"""Output of the command line on a terminal."""

from __future__ import annotations

import io
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from messager_store.cli.commands.events import _Lines
from messager_store.cli.output import Column, cell, table
from messager_store.cli.progress import Progress
from messager_store.cli.replay_output import ReplayProgress
from messager_store.log.selection import Selection
from messager_store.replay.report import ReplayReport


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
    report = ReplayReport("e", 1.0, planned=7)
    with ReplayProgress(subscribers=3) as show:
        before = len(terminal.getvalue())
        show(report)
    assert "waiting for 3 subscribers" in terminal.getvalue()[:before]
    assert "replaying" in terminal.getvalue()[before:] and "0 of 7 messages" in terminal.getvalue()[before:]


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_line_of_an_event_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    time = "2026-03-01T10:00:00.123456789Z"
    entry: Any = SimpleNamespace(time=time, kind="received", from_id=1, to_id=2, channel="c" * 99, text="x" * 300)
    _Lines(Selection(), False, "e").show([entry])
    line = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()[1]
    assert len(line) == columns and line.endswith("x…")


ELSEWHERE = "exps:cac75be5-c4a1-47cf-b461-5d7be1b3c6c7:agents:3:agent-chat"


def line_of(channel: str, *, full: bool = False, **fields: Any) -> str:
    """Return the line of an event for the present standard output."""
    entry = {"time": "2026-03-01T10:00:00Z", "kind": "sent", "from_id": 1, "to_id": 2, "text": "hello", "meta": None}
    out: Any = sys.stdout
    _Lines(Selection(), full, "e").show([SimpleNamespace(**(entry | fields), channel=channel)])
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()[-1]


@pytest.mark.parametrize(
    ("columns", "channel", "shown"),
    [
        (93, ELSEWHERE, "  exps:cac75…agents:3:agent-chat  "),
        (80, ELSEWHERE, "  exps:cac…s:3:agent-chat  "),
        (80, "exps:e:agents:3:agent-chat", "  *:agents:3:agent-chat"),
        (200, ELSEWHERE, f"  {ELSEWHERE}  "),
        (93, "sensors/building-7/floor-2/room-12/temperature", "  sensors/bu…room-12/temperature  "),
        (93, "日" * 30, "  " + "日" * 5 + "…" + " " + "日" * 9 + "  "),
        (200, "exps:e:agents:3:agent-chat", "  *:agents:3:agent-chat  hello"),
    ],
)
def test_a_channel_that_is_cut_keeps_its_end(
    monkeypatch: pytest.MonkeyPatch, columns: int, channel: str, shown: str
) -> None:
    terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert shown in line_of(channel)


@pytest.mark.parametrize("full", [True, False])
def test_a_channel_is_not_cut_with_full_or_in_a_file(monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    terminal_of(monkeypatch)
    if not full:
        monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert f"  {ELSEWHERE}  hello" in line_of(ELSEWHERE, full=full)


@pytest.mark.parametrize(
    ("meta", "shown"),
    [
        ({"outcome": "unknown", "error": "Connection\x1b[31m lost"}, r"unknown (Connection\x1b[31m lost): hello"),
        ({"outcome": "refused"}, "refused: hello"),
        ({}, "  hello"),
        (None, "  hello"),
    ],
)
def test_a_message_that_failed_says_what_became_of_it(
    monkeypatch: pytest.MonkeyPatch, meta: dict[str, Any] | None, shown: str
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert line_of("c", kind="failed", meta=meta).endswith(shown)
    assert line_of("c", kind="sent", meta=meta).endswith("  hello")


@pytest.mark.parametrize(("total", "shown"), [(None, "1,000 events"), (4000, "1,000 of 4,000 events")])
@pytest.mark.parametrize("no_color", ["", "1"])
def test_progress_is_a_line_that_goes_again(
    monkeypatch: pytest.MonkeyPatch, total: int | None, shown: str, no_color: str
) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("NO_COLOR", no_color)
    with Progress("exporting") as progress:
        progress(1000, total)
    assert "exporting" in terminal.getvalue() and shown in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[1A\x1b[2K"), "the line is erased"
    assert ("\x1b[3" in terminal.getvalue()) == (not no_color)


def test_a_terminal_that_cannot_erase_a_line_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with Progress("exporting") as progress:
        progress(1000)
    assert "exporting" not in terminal.getvalue()


TITLES = [Column(title, at) for at, title in enumerate(("EXP_ID", "NAME", "EVENTS", "TAGS"))]
WIDE = [
    ("0a1b2c3d-0000-4000-8000-000000000001", "a name that somebody thought about", 12345, "baseline paper"),
    ("0a1b2c3d-0000-4000-8000-000000000002", "short", 7, "baseline"),
]


def columns_of(shown: str) -> list[str]:
    return re.sub(r"\x1b\[\d*m", "", shown).splitlines()


@pytest.mark.parametrize("columns", [120, 80, 60, 40])
def test_a_table_is_cut_where_the_terminal_is_narrow_and_experiments_can_still_be_told_apart(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [(exp_id[::-1], *rest) for exp_id, *rest in WIDE]  # they differ at their beginnings
    table(TITLES, rows)
    lines = columns_of(terminal.getvalue())
    assert max(map(len, lines)) <= columns
    assert all(
        line.index(cell(row[2])) + len(cell(row[2])) == lines[0].index("EVENTS") + 6
        for line, row in zip(lines[1:], rows, strict=True)
    )
    assert len({line.split("…")[0].split()[0] for line in lines[1:]}) == 2
    if columns >= 104:
        assert not any("…" in line for line in lines)


def test_exp_ids_that_only_their_ends_tell_apart_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", "40")
    table(TITLES, WIDE)
    assert [line.split()[0] for line in columns_of(terminal.getvalue())[1:]] == [row[0] for row in WIDE]


def test_a_table_that_goes_to_a_file_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    table(TITLES, WIDE)
    assert all(cell(value) in out.getvalue() for row in WIDE for value in row)
