"""Output and exit codes of `messager delays` and `messager problems`."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from rich.cells import cell_len

from examples.town import main as make_town
from tests.store.cli.test_reading import on_a_terminal
from tests.support import messager

pytestmark = pytest.mark.sqlite


@pytest.fixture(scope="module")
def town_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("town") / "messager.db"
    asyncio.run(make_town(str(file)))
    return file


@pytest.fixture
def town(town_file: Path, tmp_path: Path) -> Path:
    """Folder with a copy of the store of examples/town.py."""
    shutil.copyfile(town_file, tmp_path / "messager.db")
    return tmp_path


def call(town: Path, *words: str) -> CompletedProcess[str]:
    return messager(*words, cwd=town)


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table."""
    return [[cell for cell in line.split("  ") if cell] for line in text.splitlines()]


def test_a_line_per_kind_says_how_many_and_why(town: Path) -> None:
    done = call(town, "problems", "town")
    assert done.returncode == 1, done.stderr
    assert [[cell.strip() for cell in row] for row in rows(done.stdout)] == [
        ["PROBLEM", "NUMBER", "WHY"],
        ["never arrived", "9", "7 nobody listened, 1 dropped, 1 in a gap"],
        ["missed", "0"],
        ["arrived twice", "20", "*:agents:doctor:* and *:agents:doctor:agent-chat"],
        ["late", "1", "recorder 2"],
        ["blocked", "5", "Quarrel"],
        ["failed", "1", "not_sent"],
        ["gap", "1", "recorder 2"],
        ["unclean end", "1", "recorder 3"],
    ]


def test_verbose_output_has_a_line_for_each_problem_in_text_and_json(town: Path) -> None:
    lines = call(town, "problems", "town", "-v").stdout.split("\n\n")[0].splitlines()
    printed = [json.loads(line) for line in call(town, "problems", "town", "-v", "--json").stdout.splitlines()]
    summary = printed.pop()
    assert len(lines) == len(printed) == sum(n for kind in summary["problems"].values() for n in kind.values()) == 38
    assert lines[2] == (
        "never arrived  2026-03-01 08:01:58.500  baker > miller  *:agents:miller:agent-chat  "
        "it was sent in a gap of recorder 2: The bridge is blocked."
    )
    for line, problem in zip(lines, printed, strict=True):
        assert line.startswith(problem["problem"])
        assert problem["text"].replace("exps:town:", "*:") in line
        if "message" in problem:
            assert line.endswith(problem["message"]["text"])


def test_the_summary_of_json_has_the_first_problems_of_each_kind(town: Path) -> None:
    done = call(town, "problems", "town", "--json", "--from", "teacher")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert found["problems"].keys() == {"never arrived", "arrived twice"}
    assert {one["message"]["from_id"] for one in found["details"]} == {"teacher"}


@pytest.mark.parametrize(
    ("words", "code"), [(["--channel", "*:news"], 0), (["--grep", "fire"], 1), (["--late", "1m"], 1)]
)
def test_the_exit_code_says_whether_there_are_problems(town: Path, words: list[str], code: int) -> None:
    assert call(town, "problems", "town", *words).returncode == code


def test_delivery_times_are_a_row_per_pair_or_channel_and_a_total(town: Path) -> None:
    lines = call(town, "delays", "town", "--channel", "*:news", "--channel", "*smith*").stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["FROM", "TO", "NUMBER"],
        ["doctor", "smith", "9"],
        ["miller", "smith", "8"],
        ["-", "-", "6"],
        ["total", "23", "2.16"],
    ]
    done = call(town, "delays", "town", "--by", "channel", "-n", "1")
    assert len(done.stdout.splitlines()) == 3
    assert "6 more rows: -n 7 prints all" in done.stderr and "9 sendings without a delivery" in done.stderr


def test_reply_times_say_how_they_are_known(town: Path) -> None:
    lines = call(town, "delays", "town", "--replies", "--between", "miller", "baker").stdout.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["WHO", "TO", "BASIS", "NUMBER"],
        ["miller", "baker", "heard", "9"],
        ["baker", "miller", "heard", "8"],
        ["total", "heard", "17", "2.69"],
    ]


def test_json_has_the_rows_in_nanoseconds(town: Path) -> None:
    found = json.loads(call(town, "delays", "town", "--json").stdout)
    assert found["undelivered"] == 9
    assert found["total"]["number"] == sum(row["number"] for row in found["rows"]) == 94
    [late] = [row for row in found["rows"] if row["key"] == ["miller", "baker"]]
    assert 2_400_000_000 < late["max"] < 2_500_000_000


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["delays", "town", "--kind", "sent"], "--kind"),
        (["delays", "town", "-C", "1"], "--context"),
        (["delays", "town", "--replies", "--last-per", "agent"], "--last-per"),
        (["problems", "town", "--limit", "5"], "--limit"),
        (["problems", "town", "--late", "soon"], "--late"),
    ],
)
def test_filters_that_have_no_effect_are_refused(town: Path, words: list[str], reason: str) -> None:
    done = call(town, *words)
    assert done.returncode == 2 and reason in done.stderr, done.stderr


def test_control_sequences_of_recorded_text_are_not_printed(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {
            "ts": 1,
            "kind": "sent",
            "channel": "c\x1b]0;x\x07",
            "from_id": "a\x1b]0;x\x07",
            "to_id": "b",
            "payload": "\x1b]0;x\x07",
        },
        {"ts": 2, "kind": "blocked", "channel": "c", "payload": "x", "meta": {"interceptor": "\x1b]0;x\x07"}},
        {"ts": 3, "kind": "received", "channel": "other", "payload": "x"},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert messager("import", "a.jsonl", "--exp", "e", cwd=tmp_path).returncode == 0
    done = messager("problems", "e", "-v", cwd=tmp_path)
    assert done.returncode == 1 and "\x1b" not in done.stdout, done.stdout
    assert len(done.stdout.split("\n\n")[0].splitlines()) == 2


@pytest.fixture
def group_chat(tmp_path: Path) -> Path:
    """An import without receptions and recipients, as of the chat of a game."""
    lines = [{"ts": at, "kind": "sent", "channel": "c", "from_id": at % 3, "payload": f"{at}"} for at in range(1, 10)]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert messager("import", "chat.jsonl", "--exp", "chat", cwd=tmp_path).returncode == 0
    return tmp_path


def test_arrivals_are_a_dash_and_no_zero_if_no_listener_was_recorded(group_chat: Path) -> None:
    done = call(group_chat, "problems", "chat")
    found = {row[0].strip(): row[1].strip() for row in rows(done.stdout)[1:]}
    assert {kind for kind, number in found.items() if number == "-"} == {
        *("never arrived", "missed", "arrived twice", "late"),
    }
    assert set(found.values()) == {"-", "0"}
    assert done.returncode == 0 and "no listener was recorded" in done.stderr
    summary = json.loads(call(group_chat, "problems", "chat", "--json").stdout)
    assert (summary["examined"], summary["problems"]) == (False, {})
    assert json.loads(call(group_chat, "problems", "chat", "-v", "--json").stdout)["examined"] is False
    delays = call(group_chat, "delays", "chat")
    assert delays.returncode == 0 and not delays.stdout
    assert delays.stderr.splitlines() == ["no deliveries: no listener was recorded"]


def test_a_group_chat_is_said_to_have_no_recipients_and_the_note_names_the_filters_that_find_its_messages(
    group_chat: Path,
) -> None:
    done = call(group_chat, "events", "chat", "--between", "1", "2")
    [first, second, _] = done.stderr.splitlines()
    assert first == "--between: no message of chat names a recipient, as in a group chat"
    assert second == "for the messages of both agents, give: --from 1 --from 2"
    filters = second.partition(": ")[2].split()
    entries = [json.loads(line) for line in call(group_chat, "events", "chat", "--json", *filters).stdout.splitlines()]
    assert [entry["from_id"] for entry in entries] == [1, 2] * 3
    done = call(group_chat, "events", "chat", "--to", "1")
    assert "--to: no message of chat names a recipient, as in a group chat" in done.stderr
    done = call(group_chat, "delays", "chat", "--replies", "--between", "1", "2")
    assert "no replies: no message of the experiment names a recipient, as in a group chat" in done.stderr
    assert "in the other direction" not in done.stderr


def test_experiments_with_recipients_have_no_note_of_a_group_chat(town: Path) -> None:
    for words in (["events", "town", "--between", "doctor", "mayor"], ["events", "town", "--to", "nobody"]):
        assert "group chat" not in call(town, *words).stderr
    done = call(town, "delays", "town", "--replies", "--from", "nobody")
    assert "group chat" not in done.stderr and "in the other direction" in done.stderr


def test_lines_about_problems_are_cut_to_the_terminal(town: Path) -> None:
    text = on_a_terminal(town, "problems", "town", "-v", COLUMNS="80", LINES="25", NO_COLOR="1")
    lines = re.split(r"[\r\n]|\x1b\[[0-9?]*[A-Za-z]", text)
    lines = [line for line in lines if line and "of 224 events" not in line]
    lines = lines[: next(at for at, line in enumerate(lines) if line.startswith("PROBLEM"))]
    assert lines[0] == "2026-03-01" and len(lines) == 39
    assert max(map(cell_len, lines)) == 80
    shown = [line.split("  ") for line in lines if line.startswith("arrived twice")]
    assert shown and all("doctor" in row[3] for row in shown)
