"""`messager demo` works without a server or a store set up before."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from tests.support import messager


def test_the_demo_does_the_main_job_and_leaves_a_file_to_look_at(tmp_path: Path) -> None:
    done = messager("demo", "--ticks", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "every byte as recorded, in order" in done.stdout and "Try next" in done.stdout
    assert "run again with the model stopped: 16 messages and 16 calls, word for word" in done.stdout
    # everything it tells people to try works
    tries = [line.strip().split()[1:] for line in done.stdout.splitlines() if line.startswith("  messager ")]
    assert len(tries) == 7
    for arguments in tries:
        again = messager(*arguments, cwd=tmp_path)
        assert again.returncode == 0, (arguments, again.stderr)
    store = ("--store", "messager-demo.db")
    data = json.loads(messager("info", "@last", "--json", *store, cwd=tmp_path).stdout)
    assert len(data["recorders"]) == 4 and data["status"] == "closed"
    # five ticks, and the subscriptions and the closing of four Messagers
    assert data["kinds"]["mark"] == 5 + 4 + 4 and data["kinds"]["blocked"] > 0 and data["kinds"]["sent"] > 10
    rows = [
        json.loads(line) for line in messager("events", "@last", "--json", *store, cwd=tmp_path).stdout.splitlines()
    ]
    surveys = [row for row in rows if (row["channel"] or "").endswith(":user-survey") and row["kind"] == "sent"]
    paybacks = [row for row in rows if (row["channel"] or "").endswith(":user-payback") and row["kind"] == "received"]
    assert len(surveys) == len(paybacks) == 8
    assert surveys[0]["derived"] == ["from_id", "to_id"] and paybacks[0]["from_id"] is None
    assert any(
        "content" in json.loads(json.loads(row["payload"]).get("content", "{}")) for row in rows[5:20] if row["payload"]
    )
    with sqlite3.connect(tmp_path / "messager-demo.db") as connection:
        delivered, received = connection.execute(
            "SELECT sum(receivers), sum(kind = 'received') FROM event_view WHERE exp_id = ?", [data["exp_id"]]
        ).fetchone()
    connection.close()
    assert delivered == received > 10, "it ended before all that was sent had arrived"
    # again: another experiment in the same file
    assert messager("demo", "--ticks", "1", cwd=tmp_path).returncode == 0
    assert len(json.loads(messager("ls", "--json", *store, cwd=tmp_path).stdout)) == 6
