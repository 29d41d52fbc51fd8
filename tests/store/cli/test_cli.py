"""The command line in separate processes: output, streams and exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from messager.testing import RedisServer, redis_server
from messager_store.cli.verbs import VERBS
from messager_store.db.schema import HEAD_REVISION
from tests.support import MESSAGER, forks, messager
from tests.support.command_line import LINES, Run, one_line
from tests.support.forked_program import ForkedProgram


def test_help_names_every_verb_and_each_verb_has_its_own(run: Run) -> None:
    text = run("--help").stdout
    for verb, entry in VERBS.items():
        assert entry.help in text and f"{entry.section}:" in text
        done = run(verb, "--help")
        assert done.returncode == 0 and done.stdout.startswith(f"Usage: messager {verb}")
    assert run("--version").stdout.startswith("messager 0.")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['messager', '--help']\n"
        "from messager_store.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = ('sqlalchemy', 'redis', 'alembic', 'pydantic', 'rich', 'messager')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_info_says_that_a_file_may_hold_several_runs(run: Run, tmp_path: Path) -> None:
    lines = ({"ts": at, "channel": f"exps:{at % 2}:agents:{at}:chat"} for at in range(4))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run("import", "a.jsonl", "--exp", "all").returncode == 0
    done = run("import", "a.jsonl", "--exp", "game", "--split-by", "channel[1]")
    assert "imported 4 events as 2 experiments (game-0, ...)" in done.stderr
    assert "of 2 experiments (exps:ID:...): if they are several runs, import" in run("info", "all").stderr
    assert run("info", "game-1").stderr == ""


def test_ls_lists_and_finds(imported: Run, tmp_path: Path) -> None:
    imported("import", "a.jsonl", "--exp", "other", "--tag", "t2")
    text = imported("ls")
    assert text.stdout.splitlines()[0].split() == ["EXP_ID", "NAME", "STATUS", "BEGUN", "LENGTH", "EVENTS", "TAGS"]
    assert "2 experiments in " + str(tmp_path) in text.stderr

    def found(*arguments: str) -> list[str]:
        return [row["exp_id"] for row in json.loads(imported("ls", "--json", *arguments).stdout)]

    assert found() == ["game-1", "other"]
    assert found("--tag", "t2") == ["other"]
    assert found("--name", "fir") == ["game-1"]
    assert found("--since", "1h") == ["game-1", "other"]
    assert found("--since", "2999-01-01") == []
    one_line(imported("ls", "--since", "whenever"), 2, "whenever")


def test_info_has_what_is_promised(imported: Run) -> None:
    data = json.loads(imported("info", "first", "--json").stdout)
    promised = (
        "exp_id name tags meta status events kinds channels agents recorders "
        "first_ts last_ts duration_s payload_bytes gaps head"
    )
    assert set(promised.split()) <= data.keys()
    assert (data["exp_id"], data["tags"], data["status"], data["events"]) == ("game-1", ["t1"], "closed", 4)
    assert (data["kinds"]["sent"], data["channels"], data["agents"], data["duration_s"]) == (3, 3, 3, 2.0)
    assert data["meta"]["seed"] == 7 and data["meta"]["imported"]["file"] == "a.jsonl" and len(data["head"]) == 64
    text = imported("info", "@last").stdout
    assert data["head"] in text and "messager.db" in text


def test_events_are_readable_and_cannot_harm_a_terminal(imported: Run) -> None:
    done = imported("events", "game")
    assert "h\u00e9 \u65e5\u672c" in done.stdout and "tick n=1" in done.stdout
    assert "\x1b" not in done.stdout and "\x00" not in done.stdout
    assert "4 events" in done.stderr


def test_events_as_json_has_what_is_promised(imported: Run) -> None:
    rows = [json.loads(line) for line in imported("events", "game-1", "--json").stdout.splitlines()]
    assert [row["payload"] for row in rows[:2]] == [LINES[0]["payload"], "plain"]
    assert rows[2]["payload_base64"] == "AP8bWzMxbQ==" and rows[2]["channel_base64"] == "/w=="
    promised = "cursor ts time recorder seq kind channel from_id to_id derived payload"
    assert set(promised.split()) <= rows[0].keys()
    assert (rows[0]["cursor"], rows[0]["from_id"], rows[1]["from_id"]) == ("1700000000000000000:1:1", 1, "2")
    assert rows[0]["time"] == "2023-11-14T22:13:20.000000000Z"

    def seqs(*arguments: str) -> list[int]:
        done = imported("events", "game-1", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["seq"] for line in done.stdout.splitlines()]

    assert seqs("--kind", "mark") == [4]
    assert seqs("--channel", "exps:g:agents:?:*") == [1, 2]
    assert seqs("--exclude", "exps:*") == [3, 4]
    assert seqs("--agent", "2") == [1, 2]
    assert seqs("--agent", '"2"') == [2]
    assert seqs("--since", "1s", "--until", "mark:tick") == [2, 3]
    assert seqs("--after", rows[2]["cursor"]) == [4]
    assert seqs("--limit", "2") == [1, 2]
    assert seqs("--messages") == [1, 2, 3]
    assert seqs("--messages", "--limit", "1", "--since", "1s") == [2]


def test_tag_and_close(imported: Run) -> None:
    assert imported("tag", "game-1", "x", "y", "--remove", "t1").stdout == "game-1: x y\n"
    assert json.loads(imported("info", "game-1", "--json").stdout)["tags"] == ["x", "y"]
    assert "was closed already" in imported("close", "game-1").stdout
    one_line(imported("tag", "game-1", " "), 2, "cannot be a tag")


def test_diff_compares_each_sender_on_its_own_on_request(imported: Run) -> None:
    imported("import", "a.jsonl", "--exp", "b")
    found = json.loads(imported("diff", "game-1", "b", "--by-sender", "--json").stdout)
    assert found["equal"] is True and found["channels"] >= 1
    assert "sender and channel pair" in imported("diff", "game-1", "b", "--by-sender").stdout


def test_record_replay_diff_verify_and_export(imported: Run, tmp_path: Path, redis: RedisServer) -> None:
    record = ["--redis", redis.url, "record", "--exp", "again", "--max-events", "3", "--close", "--name", "tapped"]
    with ForkedProgram(forks.COMMAND_LINE, record, tmp_path) as tap:
        assert tap.stderr is not None
        assert tap.stderr.readline().startswith("recording again from redis://127.0.0.1")
        done = imported("replay", "game-1", "--speed", "100", "--wait-for-subscribers", "1", "--json")
        report = json.loads(done.stdout)
        assert tap.wait(60) == 0
        assert "recorded 3 messages of again" in tap.stderr.read()
    promised = "published skipped no_subscriber duration_s held_back_s requested_speed achieved_speed lag_ms"
    assert set(promised.split()) <= report.keys() and report["lag_ms"].keys() == {"p50", "p99", "max"}
    assert (report["published"], report["skipped"], report["no_subscriber"]) == (3, 1, 0)
    assert report["requested_speed"] == 100.0 and 0 < report["achieved_speed"] <= 100.5
    assert imported("diff", "game-1", "again").returncode == 0
    assert json.loads(imported("diff", "game-1", "again", "--json").stdout)["equal"] is True
    verified = imported("verify", "--all")
    assert verified.returncode == 0 and verified.stdout.count("ok ") == 2
    assert verified.stderr.startswith("not checked: the projections")
    head = json.loads(imported("info", "again", "--json").stdout)["head"]
    assert imported("verify", "again", "--head", head).returncode == 0
    assert imported("verify", "again", "--head", "0" * 64).returncode == 1
    imported("export", "again", "-o", "again.jsonl.gz")
    imported("import", "again.jsonl.gz", "--exp", "third")
    imported("export", "third", "-o", "third.jsonl.gz")
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "third.jsonl.gz").read_bytes()
    exported = imported("export", "third", "-o", "-").stdout.splitlines()
    assert json.loads(exported[0])["name"] == "tapped" and len(exported) == 4


def test_diff_shows_the_first_difference_and_ends_with_one(imported: Run, tmp_path: Path) -> None:
    changed = [dict(line) for line in LINES]
    changed[1]["payload"] = "changed"
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed))
    imported("import", "b.jsonl", "--exp", "b")
    done = imported("diff", "game-1", "b")
    assert done.returncode == 1
    assert "1 of 3 channels differ" in done.stdout
    assert "A 1700000001000000000:1:2  plain" in done.stdout and "B 1700000001000000000:1:2  changed" in done.stdout
    [difference] = json.loads(imported("diff", "game-1", "b", "--json").stdout)["differences"]
    assert (difference["index_a"], difference["a"]["payload"], difference["b"]["payload"]) == (0, "plain", "changed")
    assert imported("diff", "game-1", "b", "--exclude", "*agents:1:*").returncode == 0


def test_verify_names_what_is_wrong_and_ends_with_one(imported: Run, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "messager.db") as connection:
        connection.execute("UPDATE event SET ts = ts + 1 WHERE id & 1023 = 2")
    connection.close()
    done = imported("verify", "game-1")
    assert done.returncode == 1 and "the event of seq 2 was changed" in done.stdout
    assert json.loads(imported("verify", "game-1", "--json").stdout)["ok"] is False
    assert json.loads(imported("verify", "--all", "--json").stdout)[0]["problems"]
    one_line(imported("verify"), 2, "--all")


def test_replay_options_reach_the_library(imported: Run) -> None:
    def planned(*arguments: str) -> dict[str, int]:
        done = imported("replay", "game-1", "--dry-run", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        channels: dict[str, int] = json.loads(done.stdout)["channels"]
        return channels

    assert planned("--channel", "exps:*", "--to-exp", "h") == {
        "exps:h:agents:2:agent-chat": 1,
        "exps:h:agents:1:agent-chat": 1,
    }
    assert planned("--exclude", "*agents:2*", "--map", "exps:g:*=x:*", "--agent", "2") == {"x:agents:1:agent-chat": 1}
    assert planned("--since", "1s", "--until", "2s") == {"exps:g:agents:1:agent-chat": 1}
    one_line(imported("replay", "game-1", "--kind", "mark"), 2, "never on the wire")
    looped = json.loads(imported("replay", "game-1", "--speed", "max", "--loop", "3", "--json").stdout)
    assert (looped["published"], looped["loops"]) == (9, 3)
    fast = json.loads(imported("replay", "game-1", "--max-gap", "1ms", "--json").stdout)
    assert fast["published"] == 3 and fast["recorded_s"] == 0.002
    text = imported("replay", "game-1", "--speed", "max").stdout
    assert "published      3 messages" in text and "requested: max" in text


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_recording_cleanly(run: Run, tmp_path: Path, redis: RedisServer, signal_: int) -> None:
    line = ["--redis", redis.url, "--store", "tap.db", "record", "ctrl:*", "--exp", "c"]
    with ForkedProgram(forks.COMMAND_LINE, line, tmp_path) as tap:
        assert tap.stderr is not None
        assert "recording" in tap.stderr.readline()
        tap.send_signal(signal_)
        assert tap.wait(60) == 0
    data = json.loads(run("info", "c", "--store", "tap.db", "--json").stdout)
    assert data["recorders"][0]["state"] == "ended" and data["status"] == "open"
    assert data["recorders"][0]["patterns"] == ["ctrl:*"]
    assert run("verify", "c", "--store", "tap.db").returncode == 0


def test_ctrl_c_elsewhere_is_130(imported: Run, tmp_path: Path, redis: RedisServer) -> None:
    from redis import Redis

    with Redis(port=redis.port) as client:

        def looks() -> int:
            """Return the number of CLIENT calls, with which a replay counts subscribers, over all subcommands."""
            calls = client.info("commandstats")
            return sum(calls[name]["calls"] for name in calls if name.startswith("cmdstat_client"))

        before = looks()
        line = ["replay", "game-1", "--loop", "0", "--wait-for-subscribers", "99", "--redis", redis.url]
        with ForkedProgram(forks.COMMAND_LINE, line, tmp_path) as replay:
            try:
                while looks() < before + 10:
                    assert replay.poll() is None
                replay.send_signal(signal.SIGINT)
                _, stderr = replay.communicate(timeout=60)
            finally:
                replay.kill()
    assert replay.returncode == 130 and "Traceback" not in stderr


def test_follow_prints_what_is_recorded_until_the_experiment_closes(
    run: Run, tmp_path: Path, redis: RedisServer
) -> None:
    from redis import Redis

    record = ["--redis", redis.url, "record", "f:*", "--exp", "f", "--max-events", "20", "--close"]
    with ForkedProgram(forks.COMMAND_LINE, record, tmp_path) as tap:
        assert tap.stderr is not None
        tap.stderr.readline()
        with ForkedProgram(forks.COMMAND_LINE, ["events", "f", "--follow", "--json"], tmp_path) as follow:
            assert follow.stdout is not None
            with Redis(port=redis.port) as client:
                for number in range(20):
                    client.publish("f:1", f"{number}")
            assert [json.loads(line)["payload"] for line in follow.stdout] == [str(number) for number in range(20)]
            assert (follow.wait(60), tap.wait(60)) == (0, 0)


def test_db_verbs(run: Run, tmp_path: Path) -> None:
    one_line(run("db", "current"), 3, "there is none")
    assert run("db", "upgrade").returncode == 0
    assert run("db", "current").stdout == f"{HEAD_REVISION}\n"
    assert "0001" in run("db", "history").stdout
    assert run("db", "check").returncode == 0
    one_line(run("db", "downgrade", "base", input="y\n"), 2, "add --yes")
    assert run("db", "current").stdout == f"{HEAD_REVISION}\n"
    assert run("db", "downgrade", "base", "--yes").returncode == 0
    assert run("db", "current").stdout == "none\n"
    assert run("db", "check").returncode == 1
    one_line(run("ls"), 3, "it does not exist")
    one_line(run("db", "upgrade", "nonsense"), 2, "nonsense")
    assert run("db", "upgrade").returncode == 0
    assert run("ls").returncode == 0
    with sqlite3.connect(tmp_path / "messager.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    one_line(run("ls"), 2, "9999", HEAD_REVISION, "another version")


def test_a_reader_that_has_seen_enough_is_no_error(imported: Run, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"ts": at, "channel": "c", "payload": "x" * 100}) + "\n" for at in range(20_000))
    (tmp_path / "many.jsonl").write_text(lines)
    imported("import", "many.jsonl", "--exp", "many")
    shell = " ".join(f"'{word}'" for word in MESSAGER) + " events many --json; echo $? >&2"
    done = subprocess.run(
        ["sh", "-c", f"({shell}) | head -n 1"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == "0\n" and len(done.stdout.splitlines()) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_an_output_that_takes_no_more_is_told_and_is_no_negative_answer(imported: Run, tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps({"ts": 1, "channel": "c", "payload": "x" * 100_000}) + "\n")
    imported("import", "b.jsonl", "--exp", "big")
    first = "--help, ls --help, ls, ls --json, info big, events big, events big --json, export big -o -, pack big -o -"
    later = "verify big, status, diff big big, db current, replay big --dry-run, tag big full"
    for verb in f"{first}, {later}".split(", "):
        with open("/dev/full", "wb") as full:
            code, _, stderr = forks.run(verb.split(), tmp_path, dict(os.environ), 30, full.fileno())
        said = stderr.decode().strip().splitlines()
        assert code == 3 and b"Traceback" not in stderr, (verb, stderr)
        assert said[-1] == "messager: cannot write to standard output: No space left on device", verb


def test_channels_as_they_are_shown_are_patterns_that_fit(run: Run, tmp_path: Path) -> None:
    line = {"ts": 1, "channel": "exps:mine:agents:7:chat", "payload": "x"}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n" + json.dumps({**line, "channel": "exps:o:news"}) + "\n")
    run("import", "a.jsonl", "--exp", "mine")
    text = run("events", "mine").stdout
    assert "*:agents:7:chat" in text and "exps:o:news" in text
    assert "1 event " in run("events", "mine", "--channel", "*:agents:7:chat").stderr


def test_recording_tells_when_redis_goes_and_comes_back_and_when_it_is_closed_under_it(tmp_path: Path) -> None:
    from redis import Redis

    with redis_server() as server:
        record = ["record", "--exp", "r", "--redis", server.url]
        with ForkedProgram(forks.COMMAND_LINE, record, tmp_path) as tap:
            assert tap.stderr is not None
            tap.stderr.readline()
            server.stop(kill=True)
            assert "is lost; trying again" in tap.stderr.readline()
            server.start()
            assert "again; messages may be missing" in tap.stderr.readline()
            assert messager("close", "r", "--force", cwd=tmp_path).returncode == 0
            with Redis(port=server.port) as client:
                while tap.poll() is None:
                    client.publish("c", "x")
            assert tap.returncode == 2
            assert "is closed and takes no more events" in tap.stderr.read()


def test_a_polite_kill_ends_the_demo_with_its_redis(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [*MESSAGER, "demo", "--ticks", "50"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None
    port = int(demo.stdout.readline().split()[-1])
    demo.send_signal(signal.SIGTERM)
    demo.communicate(timeout=60)
    assert demo.returncode == 130
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 1)
