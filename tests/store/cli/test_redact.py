"""`messager redact` and `messager export --redact --pseudonymise` in separate processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.store.cli.conftest import PutImported
from tests.support import asked, messager
from tests.support.command_line import one_line

Run = Callable[..., Any]
LINES = [
    {
        "ts": 1,
        "channel": "exps:e:agents:7:agent-chat",
        "from_id": "Alice",
        "to_id": 7,
        "payload": {"content": "pin no-1234-x"},
    },
    {"ts": 2, "kind": "received", "channel": "exps:e:agents:7:agent-chat", "payload": {"content": "pin no-1234-x"}},
    {"ts": 3, "channel": "news", "payload": "nothing"},
    {"ts": 4, "kind": "mark", "meta": {"name": "tick", "fields": {"pin": "no-1234-x"}}},
]


@pytest.fixture
def run(tmp_path: Path, put_imported: PutImported) -> Run:
    put_imported(tmp_path, LINES, ("--exp", "e1"))
    return lambda *arguments, **options: messager(*arguments, cwd=tmp_path, **options)


REDACT = ("redact", "e1", "--where", "contains=no-1234-x", "--why", "asked to")


def rows(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("events", "e1", "--json").stdout.splitlines()]


def test_redact_says_what_it_did_and_the_other_verbs_show_it(run: Run, tmp_path: Path) -> None:
    head = json.loads(run("info", "e1", "--json").stdout)["head"]
    done = run(*REDACT, "--who", "Bo", "--yes")
    assert done.returncode == 0, done.stderr
    assert "redacted 3 events of e1; its head is " in done.stdout
    assert "(1 sent, 1 received, 1 mark)" in done.stderr and "exps:e:agents:7:agent-chat: 2" in done.stderr
    assert [row.get("redacted") for row in rows(run)] == [True, True, None, True]
    assert run("events", "e1").stdout.count("[redacted]") == 3
    (told,) = json.loads(run("info", "e1", "--json").stdout)["redactions"]
    assert (told["who"], told["why"], told["events"], told["head_before"]) == ("Bo", "asked to", 3, head)
    assert "3 events on 20" in run("info", "e1").stdout and "by Bo: asked to" in run("info", "e1").stdout
    assert run("verify", "e1").returncode == 0
    old = run("verify", "e1", "--head", head)
    assert old.returncode == 1 and "that was its head before the redaction of" in old.stdout
    assert b"no-1234-x" not in (tmp_path / "messager.db").read_bytes()
    again = run("redact", "e1", "--where", "channel=exps:*", "--why", "x", "--yes")
    assert again.returncode == 0 and "nothing to do: 2 events" in again.stdout
    finished = run("redact", "--scrub")
    assert finished.returncode == 0 and "rewrote" in finished.stdout


def test_redact_asks_first_and_leaves_all_as_it_is_without_a_yes(run: Run) -> None:
    one_line(run(*REDACT, stdin=None, input=""), 2, "no terminal", "--yes")
    assert "redacted" not in json.dumps(rows(run))


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("y\n", 0)])
def test_redact_goes_by_the_answer(run: Run, tmp_path: Path, answer: str, code: int) -> None:
    ended, stdout, stderr = asked(tmp_path, answer, *REDACT)
    assert ended == code and "Erase them permanently? [y/N]" in stderr
    assert ("nothing was redacted" in stdout) == (code == 1)
    assert len([row for row in rows(run) if row.get("redacted")]) == (0 if code else 3)


def test_a_dry_run_of_redact_only_says_what_it_would_do(run: Run) -> None:
    done = run("redact", "e1", "--where", "kind=sent", "--where", "agent=7", "--dry-run")
    assert done.returncode == 0 and "1 event of e1 would be erased" in done.stderr
    assert "redacted" not in json.dumps(rows(run))


def test_wrong_uses_of_redact_are_told_in_one_line(run: Run) -> None:
    cases: list[tuple[tuple[str, ...], list[str]]] = [
        ((), ["name an experiment"]),
        (("e1", "--why", "x"), ["--where"]),
        (("e1", "--where", "colour=red", "--why", "x"), ["'colour'", "channel, agent, from, to, kind"]),
        (("e1", "--where", "channel", "--why", "x"), ["KEY=VALUE"]),
        (("e1", "--where", "contains=", "--why", "x"), ["KEY=VALUE"]),
        (("e1", "--where", "kind=shout", "--why", "x", "--yes"), ["unknown kind shout"]),
        (("e1", "--where", "matches=(", "--why", "x", "--yes"), ["not a regular expression"]),
        (("e1", "--where", "since=whenever", "--why", "x", "--yes"), ["whenever"]),
        (("e1", "--where", "cursor=1", "--why", "x", "--yes"), ["cursor"]),
        (("e1", "--where", "kind=sent", "--yes"), ["--why"]),
        (("e1", "--where", "kind=sent", "--why", " ", "--yes"), ["--why"]),
        (("no-such", "--where", "kind=sent", "--why", "x", "--yes"), ["no-such"]),
        (("e1", "--scrub"), ["combine it with --store only"]),
        (("e1", "--where", "contains=no-1234-x", "--why", "pin no-1234-x", "--yes"), ["why is kept"]),
    ]
    for arguments, words in cases:
        one_line(run("redact", *arguments), 2, *words)
    assert "redacted" not in json.dumps(rows(run))


def test_redact_ends_with_1_where_nothing_fits(run: Run) -> None:
    done = run("redact", "e1", "--where", "contains=nobody said this", "--why", "x", "--yes")
    assert done.returncode == 1 and "no event of e1 matches" in done.stdout


def test_an_export_can_be_made_for_others(run: Run, tmp_path: Path) -> None:
    done = run("export", "e1", "-o", "b.jsonl", "--redact", "content", "--redact", "pin", "--pseudonymise")
    assert done.returncode == 0, done.stderr
    assert "exported 4 events" in done.stderr and "3 payloads redacted, 1 of them completely" in done.stderr
    assert "read the file before you share it: names in texts" in done.stderr
    text = (tmp_path / "b.jsonl").read_text()
    assert "no-1234-x" not in text and "Alice" not in text and "nothing" not in text
    assert run("import", "b.jsonl", "--exp", "copy").returncode == 0
    assert run("verify", "copy").returncode == 0
    assert "no-1234-x" in json.dumps(rows(run))


@pytest.mark.parametrize("verb", ["export", "report"])
def test_a_copy_for_others_tells_how_many_payloads_were_redacted(run: Run, verb: str) -> None:
    done = run(verb, "e1", "-o", "b.html" if verb == "report" else "b.jsonl", "--redact", "content")
    assert "payloads redacted, 1 of them completely: not JSON" in done.stderr
    done = run(verb, "e1", "-o", "b.html" if verb == "report" else "b.jsonl", "--agent", "Alice", "--redact", "nosuch")
    assert "0 payloads redacted: none has a value at these paths" in done.stderr


def test_an_export_with_a_path_that_is_none_writes_nothing(run: Run, tmp_path: Path) -> None:
    for path in ("", "a..b", "."):
        one_line(run("export", "e1", "-o", "b.jsonl", "--redact", path), 2, "is not a path")
    assert not (tmp_path / "b.jsonl").exists()


@pytest.mark.parametrize("verb", ["export", "pack"])
def test_nothing_is_written_over_a_store(run: Run, tmp_path: Path, verb: str) -> None:
    there = "--store", "runs"  # a name that the suffix does not protect
    assert run("import", "a.jsonl", "--exp", "e1", *there).returncode == 0
    (tmp_path / "runs-spool").mkdir(exist_ok=True)
    for ending in ("", "-wal", "-shm", "-spool/x"):
        one_line(run(verb, "e1", "-o", f"runs{ending}", *there), 2, "belongs to the store", "-o")
    assert len(run("events", "e1", *there).stdout.splitlines()) > len(LINES)
    assert run(verb, "e1", "-o", "runs-copy", *there).returncode == 0
