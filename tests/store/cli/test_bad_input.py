"""Wrong use of the command line: one line with the remedy, and the exit code."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import click
import pytest

from messager.testing import free_port, redis_server
from messager_store import runtime_env
from messager_store.cli import cli
from messager_store.db.databases import for_store
from messager_store.errors import StoreError
from messager_store.run import Run as Opened
from tests.support.command_line import LINES, Run, one_line


def test_options_of_live_agents_need_live_agents(imported: Run) -> None:
    for option in ("--patience", "3"), ("--on-timeout", "stop"):
        one_line(imported("replay", "game-1", *option), 2, "are for live agents: add --live")
    assert "agent 99 says nothing in game-1" in imported("replay", "game-1", "--live", "99").stderr
    paced = imported("replay", "game-1", "--live", "1", "--speed", "2")
    assert paced.returncode == 2 and "live agents set the pace" in paced.stderr
    joins = imported(
        "replay", "game-1", "--live", "1", "--to-exp", "w", "--broker", f"redis://127.0.0.1:{free_port()}/0"
    )
    assert "with the exp_id w join with MESSAGER_REPLAY=game-1" in joins.stderr
    shown = imported("replay", "game-1", "--live", "1", "--dry-run").stdout
    assert "a dry run compares nothing" in shown and "equal" not in shown


def test_bad_input_gets_one_line_with_the_remedy(imported: Run, tmp_path: Path) -> None:
    one_line(imported("info", "gmae-1"), 2, "gmae-1", "Did you mean game-1")
    imported("import", "a.jsonl", "--exp", "game-2")
    one_line(imported("info", "game"), 2, "game-1, game-2")
    one_line(imported("record", "--exp", "game-1"), 2, "closed", "--if-exists new")
    one_line(imported("import", "a.jsonl", "--exp", "game-1"), 2, "exists already")
    one_line(imported("import", "a.jsonl", "--exp", "@last"), 2, "cannot be an exp_id")
    (tmp_path / "bad.jsonl").write_text(json.dumps(LINES[0]) + "\n{broken\n")
    one_line(imported("import", "bad.jsonl", "--exp", "bad"), 2, "bad.jsonl, line 2", "Nothing was imported")
    for speed in ("0", "-1", "fast", "nan", "", "5e-324", "1e308"):
        one_line(imported("replay", "game-1", "--speed", speed), 2, "is not a speed")
    one_line(imported("replay", "game-1", "--since", "whenever"), 2, "whenever", "mark:NAME")
    one_line(imported("replay", "game-1", "--map", "nonsense"), 2, "OLD=NEW")
    one_line(imported("replay", "game-1", "--max-gap", "-5"), 2, "not a duration")
    one_line(imported("events", "game-1", "--kind", "shout"), 2, "kinds are sent")
    one_line(imported("shout"), 2, "no verb 'shout'")
    one_line(imported("reply", "game-1"), 2, "Did you mean replay")
    one_line(imported("replay"), 2, "EXP", "messager replay --help")
    one_line(imported("record", "--exp", "x", "--broker", "http://h"), 2, "http://", "redis://", "mqtts://")
    (tmp_path / "notes.txt").write_text("dear diary " * 99)
    one_line(imported("ls", "--store", "notes.txt"), 2, "not an SQLite database")
    one_line(imported("ls", "--store", "mysql://u:hunter2@h/d"), 2, "sqlite")
    assert json.loads(imported("ls", "--json").stdout)[-1]["exp_id"] == "game-2"


EMPTY = (
    *(("--store", "", "ls"), ("rm", "game-1", "--yes", "--store", ""), ("diff", "a", "b", "--store-b", "")),
    *(("--broker", "", "ls"), ("replay", "a", "--broker", ""), ("replay", "a", "--control", "")),
    *(("export", "a", "-o", ""), ("pack", "a", "-o", ""), ("report", "a", "-o", ""), ("import", "", "--exp", "x")),
    *(
        ("unpack", ""),
        ("gather", ""),
        ("gather", "messager.db", ""),
        ("drain", "--spool", ""),
        ("status", "--spool", ""),
    ),
    *(("demo", "--store", ""), ("view", "--broker", ""), ("view", "--control", "")),
)


@pytest.mark.parametrize("words", EMPTY, ids=" ".join)
def test_an_empty_name_stands_for_no_default(words: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match="the name is empty"):
        cli.main(words, standalone_mode=False)


def test_an_empty_variable_stands_for_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("MESSAGER_STORE", "MESSAGER_BROKER"):
        monkeypatch.setenv(variable, "")
        with pytest.raises(click.UsageError, match=f"{variable} is empty"):
            cli.main(("record", "--exp", "x"), standalone_mode=False)
        monkeypatch.delenv(variable)
    for refused in (lambda: Opened(store=""), lambda: runtime_env(""), lambda: for_store("")):
        with pytest.raises(StoreError):
            refused()


def test_more_bad_input_gets_one_line_too(imported: Run, tmp_path: Path) -> None:
    one_line(imported("info", b"\xff"), 2, "not valid UTF-8")  # type: ignore[arg-type]
    one_line(imported("import", "a.jsonl", "--exp", "x", "--tag", b"\xff"), 2, "a tag")  # type: ignore[arg-type]
    assert imported("events", "game-1", "--agent=--5").returncode == 0
    one_line(imported("ls", "--store", "x://h:abc/db"), 2, "no store of scheme 'x' is known")
    one_line(imported("record", "--exp", "x", "--redis", "redis://h/0?foo=bar"), 2, "not a Redis URL")
    with sqlite3.connect(tmp_path / "theirs.db") as connection:
        connection.execute("CREATE TABLE users (id INTEGER)")
    connection.close()
    one_line(imported("db", "upgrade", "--store", "theirs.db"), 2, "users")
    for arguments in ((), ("db",)):
        done = imported(*arguments)
        assert done.returncode == 2 and done.stderr.startswith("Usage: messager") and done.stderr.count("\n") > 8


def test_verifying_a_damaged_file_is_a_negative_answer(imported: Run, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"ts": at, "channel": "c", "payload": "x" * 500}) + "\n" for at in range(3000))
    (tmp_path / "many.jsonl").write_text(lines)
    imported("import", "many.jsonl", "--exp", "many")
    path = tmp_path / "messager.db"
    data = bytearray(path.read_bytes())
    for at in range(4096 * 40, len(data), 4096):
        data[at : at + 64] = b"\xa5" * 64
    path.write_bytes(data)
    one_line(imported("verify", "many"), 1, "is damaged")


def test_what_is_out_of_reach_is_three_and_shows_no_password(imported: Run, tmp_path: Path) -> None:
    away = f"redis://user:hunter2@127.0.0.1:{free_port()}/0"
    for arguments in (("record", "--exp", "new"), ("replay", "game-1")):
        done = imported(*arguments, "--redis", away)
        one_line(done, 3, "cannot reach the broker at redis://127.0.0.1")
        assert "hunter2" not in done.stderr
    assert [row["exp_id"] for row in json.loads(imported("ls", "--json").stdout)] == ["game-1"]
    one_line(imported("ls", "--store", "missing.db"), 3, "missing.db", "it does not exist")
    assert not (tmp_path / "missing.db").exists()
    one_line(imported("import", "a.jsonl", "--exp", "x", "--store", "no/such/folder.db"), 3, "no folder")


def test_a_password_reaches_neither_store_nor_output(run: Run, tmp_path: Path) -> None:
    with redis_server("--requirepass", "hunter2") as server:
        url = server.url.replace("redis://", "redis://:hunter2@")
        done = run("record", "--exp", "s", "--redis", url, "--duration", "0.2")
        assert done.returncode == 0, done.stderr
        wrong = run("record", "--exp", "t", "--redis", url.replace("hunter2", "letmein"))
        one_line(wrong, 3)
    output = done.stderr + run("info", "s", "--json").stdout + wrong.stderr
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    for secret in ("hunter2", "letmein"):
        assert secret not in output and secret.encode() not in files


def test_mistakes_that_would_publish_on_the_wrong_channels_are_refused(imported: Run) -> None:
    for mapping in ("nosuch:*=new:*", "exps:g:*=new", "exps:g:agents:2:agent-chat="):
        one_line(imported("replay", "game-1", "--speed", "max", "--map", mapping), 2, "map")
    for to_exp in ("", "a b", "a:b", "a*", "@2"):
        one_line(imported("replay", "game-1", "--speed", "max", "--to-exp", to_exp), 2, "cannot be the experiment")
    one_line(imported("replay", "game-1", "--since", "2s", "--until", "1s"), 2, "is after the end")


def test_what_did_nothing_says_so(imported: Run, tmp_path: Path) -> None:
    one_line(imported("diff", "game-1", "game-1", "--channel", "foo"), 2, "nothing to compare")
    assert "nothing to publish" in imported("replay", "game-1", "--speed", "max", "--channel", "foo").stdout
    done = imported("replay", "game-1", "--speed", "max", "--channel", "exps:g:agents:2:*")
    assert done.returncode == 0 and "nobody was listening" in done.stderr
    (tmp_path / "empty.jsonl").write_text("\n")
    one_line(imported("import", "empty.jsonl", "--exp", "x"), 2, "it is empty")
    one_line(imported("verify", "game-1", "--head", "abc"), 2, "not a head")
    one_line(imported("ls", "--store", "sqlite://live.db"), 2, "three slashes")
    one_line(imported("ls", "--store", "no/such/live.db"), 3, "no folder")
