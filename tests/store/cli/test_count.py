"""`messager count`: tables that fit the terminal, whatever was recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.store.cli.conftest import PutImported
from tests.support import messager
from tests.support.command_line import one_line

Count = Callable[..., Any]
S = 1_000_000_000
BEGAN = 1_772_352_000 * S
"""2026-03-01 08:00 UTC."""


@pytest.fixture
def count(tmp_path: Path, put_imported: PutImported) -> Count:
    """Import lines, and return a function that counts them."""

    def call(lines: list[dict[str, Any]], *arguments: str, columns: int = 80, exp: str = "e1", **env: str) -> Any:
        if lines:
            put_imported(tmp_path, lines, ("--exp", exp))
        env = {"COLUMNS": str(columns), **env}
        return messager("count", exp, *arguments, cwd=tmp_path, env=env)

    return call


def said(seconds: float, from_id: Any = 1, to_id: Any = 2, channel: str = "c", payload: Any = "x") -> dict[str, Any]:
    ts = BEGAN + int(seconds * S)
    return {"ts": ts, "channel": channel, "from_id": from_id, "to_id": to_id, "payload": payload}


TALK = [said(at, "ann", "bob") for at in range(3)] + [said(9, "bob", "ann"), said(10, 5, "5"), said(11, "5", 5)]


def test_two_dimensions_give_a_matrix_with_totals(count: Count) -> None:
    done = count(TALK, "--sort", "name")
    assert done.stdout.splitlines() == [
        'FROM \\ TO  5  "5"  ann  bob  TOTAL',
        "5          ·    1    ·    ·      1",
        '"5"        1    ·    ·    ·      1',
        "ann        ·    ·    ·    3      3",
        "bob        ·    ·    1    ·      1",
        "TOTAL      1    1    1    3      6",
    ]
    assert done.stderr == "6 messages (6 B) of e1\n"


def test_one_dimension_gives_bars_and_the_rest_as_a_sum(count: Count) -> None:
    done = count(TALK, "--by", "from", "-n", "2")
    assert done.stdout.splitlines() == [
        "FROM        MESSAGES",
        "ann                3  " + "█" * 50,
        "5                  1  " + "█" * 16 + "▋",
        "and 2 more         2  " + "█" * 33 + "▎",
    ]


def test_a_time_gives_a_row_for_each_step_and_one_for_a_silence(count: Count) -> None:
    done = count([said(0), said(21), said(3600)], "--by", "10s", "--max-gap", "1m")
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == [
        "TIME",
        "2026-03-01 08:00:00",
        "2026-03-01 08:00:10",
        "2026-03-01 08:00:20",
        "┆ 59 min 30 s ┆",
        "2026-03-01 09:00:00",
    ]


def test_a_time_beside_another_dimension_gives_sparklines_without_long_silences(count: Count) -> None:
    lines = [said(at) for at in (0, 0.5, 10, 20, 3600)] + [said(21, channel="d"), said(3610, channel="d")]
    done = count(lines, "--by", "channel,10s", "--max-gap", "1m")
    assert done.stdout.splitlines() == [
        "CHANNEL  MESSAGES  2026-03-01 08:00:00 … 2026-03-01 09:00:10",
        "c               5  █▄▄┆ 59 min 30 s ┆▄ ",
        "d               2    ▄┆ 59 min 30 s ┆ ▄",
    ]
    assert "1 character is 10 s; the highest 2; 1 silence over 60 s cut (┆)" in done.stderr
    assert count([], "--by", "10s,channel", "--max-gap", "1m").stdout == done.stdout


@pytest.mark.parametrize("columns", [60, 140])
def test_no_line_is_wider_than_the_terminal(count: Count, columns: int) -> None:
    lines = [
        said(
            at * 1.7, f"agent-{at % 31}", f"火事-{at % 41}", f"exps:{'ab' * 18}:agents:{at % 25}:chat", {"n": "日" * at}
        )
        for at in range(60)
    ]
    for by in ("from,to", "channel,from", "channel", "$.n", "channel,1s", "1s"):
        done = count(lines, "--by", by, columns=columns)
        lines = []  # they are imported
        assert max(map(cell_len, done.stdout.splitlines())) <= columns
        if by in ("from,to", "channel,from"):
            assert " more  TOTAL" in done.stdout and "columns left out at this width" in done.stderr


def test_what_a_matrix_leaves_out_stands_in_it_as_a_sum(count: Count) -> None:
    lines = [said(at, "hub" if at % 2 else "spoke", f"agent-{at % 50:02}") for at in range(200)]
    head, *body = count(lines, "--sort", "name", columns=60).stdout.splitlines()
    assert head.split()[3] == "agent-00" and " more  TOTAL" in head
    for line in body:
        *numbers, total = [0 if cell == "·" else int(cell) for cell in line.split()[1:]]
        assert sum(numbers) == total


HOSTILE = "\x1b[31mred\x1b]0;title\x07\n\r\t\u202e\u0000"


def test_recorded_names_cannot_control_the_terminal(count: Count) -> None:
    mark = {"ts": BEGAN, "kind": "mark", "meta": {"name": HOSTILE, "fields": {}}}
    lines = [mark, said(1, HOSTILE, [HOSTILE], HOSTILE.replace("\x00", ""), {"n": HOSTILE})]
    for by in ("from,to", "channel", "mark", "channel,1s", "$.n", "agent"):
        done = count(lines, "--by", by, columns=200)
        lines = []
        assert "red" in done.stdout, done.stderr
        assert all(char.isprintable() or char == "\n" for char in done.stdout + done.stderr)
        assert len(done.stdout.splitlines()) <= 3


def test_a_terminal_without_blocks_gets_ascii(count: Count) -> None:
    for lines, by in ((TALK, "from,to"), ([], "from"), ([], "channel,1s")):
        done = count(lines, "--by", by, PYTHONIOENCODING="ascii", columns=30)
        assert done.returncode == 0 and done.stdout.isascii(), done.stderr


def test_json_has_all_groups_with_the_types_of_their_keys(count: Count) -> None:
    found = json.loads(count(TALK, "--json").stdout)
    assert {key: value for key, value in found.items() if key != "rows"} == {
        "by": ["from", "to"],
        "messages": 6,
        "payload_bytes": 6,
        "skipped": 0,
    }
    assert found["rows"][0] == {"from": "ann", "to": "bob", "messages": 3, "payload_bytes": 3}
    assert [(row["from"], row["to"]) for row in found["rows"][1:]] == [(5, "5"), ("5", 5), ("bob", "ann")]
    (first, *_) = json.loads(count([], "--by", "minute", "--json", "--events").stdout)["rows"]
    assert first == {"ts": BEGAN, "time": "2026-03-01T08:00:00.000000000Z", "events": 6, "payload_bytes": 6}


def test_filters_select_what_is_counted(count: Count) -> None:
    done = count(TALK, "--by", "to", "--from", "ann", "--from", "bob", "--since", "1", "--bytes")
    assert [line.split()[:3] for line in done.stdout.splitlines()] == [
        ["TO", "BYTES"],
        ["bob", "2", "B"],
        ["ann", "1", "B"],
    ]


def test_an_empty_selection_prints_no_table(count: Count) -> None:
    done = count(TALK, "--from", "nobody")
    assert (done.returncode, done.stdout) == (0, "")
    assert "--from nobody: e1 has no such agent" in done.stderr and "0 messages (0 B) of e1" in done.stderr
    assert json.loads(count([], "--from", "nobody", "--json").stdout)["rows"] == []


def test_payloads_that_are_not_json_are_counted(count: Count) -> None:
    done = count([*TALK, said(20, payload={"price": 3})], "--by", "$.price")
    assert done.stdout.splitlines()[1].split()[:2] == ["3", "1"]
    assert "1 message (12 B) of e1, 6 payloads not JSON left out" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--by", "sender"],
            ["cannot count by 'sender'. Give channel, channel[1], from, to, kind, agent, pair, mark, minute"],
        ),
        (["--by", "from,to,kind"], ["Give one dimension or two different ones"]),
        (["--by", "minute", "--max-gap", "soon"], ["--max-gap: 'soon' is not a duration"]),
        (["--by", ""], ["cannot count by ''"]),
    ],
)
def test_a_wrong_dimension_is_one_line(count: Count, arguments: list[str], words: list[str]) -> None:
    one_line(count(TALK, *arguments), 2, *words)


DAYS = [said(at, str(at % 2), payload={"day": day}) for at, day in enumerate([10, 2, 2, 2, 1.5, 10, 2])]


def test_a_field_of_numbers_is_in_numeric_order_unless_another_is_asked_for(count: Count) -> None:
    def days(*arguments: str) -> list[str]:
        return [line.split()[0] for line in count([], "--by", "$.day", *arguments).stdout.splitlines()[1:]]

    count(DAYS)
    assert days() == ["1.5", "2", "10"]
    assert days("--bytes") == ["1.5", "2", "10"]
    assert days("--sort", "size") == ["2", "10", "1.5"]
    assert count([], "--by", "from,$.day").stdout.splitlines()[0].split()[3:] == ["1.5", "2", "10", "TOTAL"]


def test_times_are_in_their_order_unless_another_is_asked_for(count: Count) -> None:
    def times(*arguments: str) -> list[list[str]]:
        found = count([], "--by", "2s", "--where", "day=2", *arguments).stdout.splitlines()[1:]
        return [line.split()[1:3] for line in found]

    count(DAYS)
    assert times() == [["08:00:00", "1"], ["08:00:02", "2"], ["08:00:04", "·"], ["08:00:06", "1"]]
    assert times("--sort", "size") == [["08:00:02", "2"], ["08:00:00", "1"], ["08:00:06", "1"]]


@pytest.mark.parametrize(
    ("step", "times"), [("500ms", ["08:00:00.0", "08:00:00.5"]), ("1us", ["08:00:00.000000", "08:00:00.500000"])]
)
def test_times_below_a_second_have_the_digits_of_the_step(count: Count, step: str, times: list[str]) -> None:
    lines = count([said(0), said(0.5)], "--by", step).stdout.splitlines()[1:]
    assert [line.split()[1] for line in lines if line[0] == "2"] == times


def test_a_gap_without_a_timeline_is_refused(count: Count) -> None:
    one_line(count(TALK, "--by", "from", "--max-gap", "5m"), 2, "--max-gap: there are no silences to cut")


def test_an_experiment_without_marks_says_so(count: Count) -> None:
    assert "e1 has no marks" in count(TALK, "--by", "mark,from").stderr
    assert "marks" not in count([], "--by", "from").stderr
    marked = {"ts": BEGAN + 99 * S, "kind": "mark", "meta": {"name": "late", "fields": {}}}
    assert "marks" not in count([*TALK, marked], "--by", "mark", exp="marked").stderr


@pytest.mark.parametrize(
    ("kinds", "unit"),
    [(["received"], "receptions"), (["sent"], "messages"), (["sent", "received"], "events"), (["blocked"], "messages")],
)
def test_receptions_are_not_called_messages(count: Count, kinds: list[str], unit: str) -> None:
    lines = [said(0) | {"kind": kind} for kind in ("sent", "received", "received", "blocked", "blocked")]
    given = [word for kind in kinds for word in ("--kind", kind)]
    done = count(lines, "--by", "channel", *given)
    assert done.stdout.splitlines()[0].split() == ["CHANNEL", unit.upper()]
    assert f" {unit} (" in done.stderr or f" {unit[:-1]} (" in done.stderr


GAMES = [f"exps:jsai2026_truck_freeform5-game{number}:broadcast:agent-chat" for number in range(1, 8)]


@pytest.mark.parametrize("columns", [60, 140])
@pytest.mark.parametrize("by", ["from,channel", "channel,1m"])
def test_channels_in_a_table_can_be_told_apart(count: Count, by: str, columns: int) -> None:
    lines = [said(at, channel=channel) for at, channel in enumerate(GAMES)]
    shown = count(lines, "--by", by, columns=columns).stdout
    names = re.findall(r"…?\S*(game[0-9])(?![0-9])", shown)
    assert len(names) == len(set(names)) and len(names) >= (3 if by == "from,channel" else 7)
    assert max(map(cell_len, shown.splitlines())) <= columns
