"""The filters of the command line are those of `Selection`, the same for every verb."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import click
import pytest

from messager_store.cli import cli
from messager_store.cli.filters import _NAMES
from messager_store.cli.verbs import VERBS
from messager_store.log.selection import Filters, Selection
from tests.store.cli.conftest import PutImported
from tests.support import messager


def test_command_line_and_library_have_the_same_filters() -> None:
    assert set(_NAMES) == set(Filters.__annotations__) == set(inspect.signature(Selection).parameters)


def test_a_verb_that_selects_events_has_every_filter() -> None:
    for verb in VERBS:
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        names = {parameter.name for parameter in command.params}
        assert "channels" not in names or names.issuperset(_NAMES), verb


@pytest.fixture
def talk(tmp_path: Path, put_imported: PutImported) -> Path:
    lines = [
        {"ts": at * 1_000_000_000, "channel": "c", "from_id": at % 2, "to_id": 1 - at % 2, "payload": {"content": text}}
        for at, text in enumerate(["hello", "where is the fire?", "at the mill", "Ｆｉｒｅ!", "bye"], 1)
    ]
    lines.append({"ts": 9_000_000_000, "channel": "d", "from_id": 5, "to_id": "1", "payload": "no JSON"})
    put_imported(tmp_path, lines, ("--exp", "talk"))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        (["--grep", "FIRE"], [2, 4]),
        (["--grep", "^(at|bye)", "--regex"], [3, 5]),
        (["--where", "content ~ fire", "--from", "0"], [2, 4]),
        (["--between", "0", "1", "--since", "4"], [5]),
        (["--between", "5", "1"], [9]),
        (["--no-to"], []),
        (["--to", '"1"', "--no-to"], [9]),
        (["--no-from", "--from", "5"], [9]),
        (["--around", "2+-1s"], [2, 3, 4]),
        (["--last-per", "channel"], [5, 9]),
        (["--last-per", "agent"], [4, 5, 9]),
        (["--limit", "0"], []),
        (["--known-to", "1", "--before", "3", "--grep", "fire"], [2]),
        (["--grep", "mill", "-C", "1"], [2, 3, 4]),
    ],
)
def test_each_filter_reaches_the_selection(talk: Path, options: list[str], seconds: list[int]) -> None:
    done = messager("events", "talk", "--json", *options, cwd=talk)
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    assert [entry["ts"] // 1_000_000_000 for entry in entries] == seconds, done.stderr
    if "-C" in options:
        assert [entry["selected"] for entry in entries] == [False, True, False]


def test_skipped_payloads_are_counted_and_groups_are_separated(talk: Path) -> None:
    done = messager("events", "talk", "--where", "content=hello", cwd=talk)
    assert "--where: 1 payload skipped, as not JSON" in done.stderr
    done = messager("events", "talk", "--grep", "hello", "--grep", "bye", "-C", "1", cwd=talk)
    assert done.stdout.splitlines()[3] == "--"


@pytest.mark.parametrize(
    "arguments",
    [
        ["events", "-C", "3"],
        ["events", "-C", "3", "--json"],
        ["events", "--messages", "--last-per", "channel"],
        ["count"],
        ["delays"],
        ["export", "-o", "copy.jsonl"],
        ["replay", "--dry-run", "--to-exp", "other", "--redis", "redis://127.0.0.1:1"],
    ],
)
def test_a_skipped_payload_is_counted_once_by_each_verb(talk: Path, arguments: list[str]) -> None:
    verb, *options = arguments
    done = messager(verb, "talk", *options, "--where", "content=hello", cwd=talk)
    assert "--where: 1 payload skipped, as not JSON" in done.stderr, done.stderr


def test_a_skipped_payload_of_each_side_of_a_comparison_is_counted(talk: Path) -> None:
    assert messager("import", "a.jsonl", "--exp", "again", cwd=talk).returncode == 0
    done = messager("diff", "talk", "again", "--where", "content=hello", cwd=talk)
    assert "--where: 2 payloads skipped, as not JSON" in done.stderr, done.stderr


def test_a_long_group_of_matches_is_not_separated(tmp_path: Path) -> None:
    told = [("c", "yes")] * 2500 + [("d", "no"), ("d", "yes")] + [("c", "no")] * 3 + [("c", "yes")]
    lines = [{"ts": at, "channel": channel, "payload": text} for at, (channel, text) in enumerate(told, 1)]
    (tmp_path / "talk.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert messager("import", "talk.jsonl", "--exp", "talk", cwd=tmp_path).returncode == 0
    printed = messager("events", "talk", "--grep", "yes", "-C", "1", cwd=tmp_path).stdout.splitlines()
    heading, rest = printed[0], printed[1:]
    assert "1970" in heading
    assert [at for at, line in enumerate(rest) if line == "--"] == [2501, 2504]
    assert len(rest) == 2501 + 1 + 2 + 1 + 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["events", "talk", "--where", "price >"], "a number or a text must follow > at character 8"),
        (["events", "talk", "--regex"], "--regex is a way to read --grep: give the regular expression with --grep"),
        (["events", "talk", "--follow", "--around", "1"], "--around: --follow prints events as they are recorded"),
        (["events", "talk", "--between", "1"], "--between"),
        (["events", "talk", "--known-to", "1"], "--known-to and --before need each other"),
        (["replay", "talk", "--last-per", "agent"], "--last-per: a replay publishes every message of its range"),
        (["events", "talk", "--last-per"], "(see `messager events --help`)"),
        (["db", "upgrade", "--foo"], "(see `messager db upgrade --help`)"),
        (["diff", "talk", "talk", "-C", "1"], "--context: messages are compared in order"),
        (
            ["replay", "talk", "--limit", "1", "--dry-run"],
            "--limit: a replay publishes every message of its range",
        ),
    ],
)
def test_a_wrong_filter_is_one_line(talk: Path, arguments: list[str], message: str) -> None:
    done = messager(*arguments, cwd=talk)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [(["events", "talk", "-n", "2"], 3), (["count", "talk", "-n", "1", "--by", "from"], 3), (["ls", "-n", "1"], 2)],
)
def test_n_limits_what_is_printed(talk: Path, arguments: list[str], lines: int) -> None:
    assert len(messager(*arguments, cwd=talk).stdout.splitlines()) == lines


def test_n_limits_the_differences(talk: Path) -> None:
    (talk / "other.jsonl").write_text((talk / "a.jsonl").read_text().replace('"content": "', '"content": "oh '))
    assert messager("import", "other.jsonl", "--exp", "other", cwd=talk).returncode == 0
    given = ["diff", "talk", "other", "--json"]
    every, two = (json.loads(messager(*given, *more, cwd=talk).stdout) for more in ([], ["-n", "2"]))
    assert len(every["differences"]) == 5 and len(two["differences"]) == 2


def test_a_path_that_no_payload_has_is_noted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "channel": "c", "payload": "{\\"day\\": 1}"}\n')
    assert messager("import", "a.jsonl", "--exp", "e1", cwd=tmp_path).returncode == 0
    for where, notes in (("daay=1", True), ("day=2", False), ("day == 1", False)):
        for verb in (("events", "e1"), ("count", "e1")):
            done = messager(*verb, "--where", where, cwd=tmp_path)
            assert ("--where: no payload has daay\n" in done.stderr) == notes and done.returncode == 0, done.stderr
    assert "no payload has $.dya\n" in messager("count", "e1", "--by", "$.dya", cwd=tmp_path).stderr
    assert "no payload has" not in messager("count", "e1", "--by", "$.day", cwd=tmp_path).stderr
