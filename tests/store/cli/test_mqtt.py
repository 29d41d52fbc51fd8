"""The command line over MQTT: recording, following and replaying there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from messager.testing import MqttServer, free_port
from tests.support import Proxy, messager


def test_what_is_followed_is_chosen_by_a_filter_too(tmp_path: Path) -> None:
    lines = [{"ts": at, "channel": f"w/{at}/{'xy'[at % 2]}", "payload": f"p{at}"} for at in range(4)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert messager("import", "a.jsonl", "--exp", "e", cwd=tmp_path).returncode == 0
    done = messager("events", "e", "--follow", "--channel", "w/+/y", "--json", cwd=tmp_path)
    assert [json.loads(line)["channel"] for line in done.stdout.splitlines()] == ["w/1/y", "w/3/y"], done.stderr


def test_a_replay_with_messages_that_mqtt_refuses_names_them_and_ends_with_one(
    mqtt: MqttServer, tmp_path: Path
) -> None:
    lines = [{"ts": at, "channel": f"irc:#{at}", "payload": "x"} for at in range(12)]
    lines += [{"ts": 20, "channel": "exps:e:a", "payload": "x"}, {"ts": 21, "channel": "irc:#0", "payload": "x"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert messager("import", "a.jsonl", "--exp", "e", cwd=tmp_path).returncode == 0

    def run(*words: str) -> Any:
        done = messager("--broker", mqtt.url, "replay", "e", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (1, ""), done.stderr
        return done.stdout

    shown = run()
    assert "published      1 message " in shown and "refused        13 messages, which were not published" in shown
    assert "no subscriber  unknown" in shown and "by the broker" not in shown
    assert "refused: irc:#0 (2 messages from 0:1:1 on): " in shown and "irc:#9 (1 message" in shown
    assert "irc:#10" not in shown and "and 2 more" in shown
    report = json.loads(run("--json"))
    assert (report["published"], report["no_subscriber"], report["failed"], report["unknown"]) == (1, None, 13, 0)
    one = report["failures"][0]
    assert (one["channel"], one["outcome"], one["messages"], one["first"]) == ("irc:#0", "refused", 2, "0:1:1")
    assert "wildcards" in one["reason"] and len(report["failures"]) == 10
    shown = run("--dry-run")
    assert (
        "would publish 1 message, and skip 0 events" in shown
        and "13 messages, certainly" in shown
        and "wildcards" in shown
    )
    assert json.loads(run("--dry-run", "--json"))["failed"] == 13


@pytest.mark.parametrize(("scheme", "pattern"), [("mqtt", "a/#/b"), ("MQTT", ""), ("mqtts", "$share/g/t")])
def test_a_pattern_that_no_topic_fits_is_told_before_anything_is_connected_to_or_made(
    scheme: str, pattern: str, tmp_path: Path
) -> None:
    url = f"{scheme}://127.0.0.1:{free_port()}"
    done = messager("record", "fine/#", pattern, "--exp", "x", "--broker", url, cwd=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert "cannot subscribe to" in done.stderr and list(tmp_path.iterdir()) == []


async def test_a_replay_that_loses_its_connection_says_what_is_unknown_and_ends_with_three(
    mqtt: MqttServer, tmp_path: Path
) -> None:
    times = (0, 500_000_000, 60_000_000_000)  # the connection is lost before the last one is due
    lines = [{"ts": ts, "channel": f"exps:e:t{at}", "payload": f"p{at}"} for at, ts in enumerate(times)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert messager("import", "a.jsonl", "--exp", "e", cwd=tmp_path).returncode == 0
    async with Proxy(mqtt.port).running() as proxy:
        for words in (["--json"], []):
            proxy.requests, proxy.cut_answer_to = b"", b"p1"
            broker = f"mqtt://127.0.0.1:{proxy.port}"
            done = await asyncio.to_thread(messager, "replay", "e", "--broker", broker, *words, cwd=tmp_path)
            assert done.returncode == 3
            *notes, error = done.stderr.splitlines()
            assert error.startswith("messager: the answer of mqtt://") and error.endswith(
                "; the outcome of 1 is unknown"
            )
            if words:
                report = json.loads(done.stdout)
                assert (report["published"], report["unknown"], report["failed"], notes) == (1, 1, 0, [])
                assert [(one["channel"], one["outcome"]) for one in report["failures"]] == [("exps/e/t1", "unknown")]
            else:
                assert done.stdout == "" and "stopped after 1 messages" in notes[0]
                assert "unknown: exps/e/t1 (1 message from " in notes[1]
