"""Traffic of realistic size, imported, verified, replayed at full speed, recorded again and compared.

Set MESSAGER_TEST_DATA to a folder of `.jsonl.gz` files to use those instead of generated ones (see `support.traffic`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from messager.testing import RedisServer
from tests.support import forks, messager
from tests.support.forked_program import ForkedProgram
from tests.support.traffic import FILES, lines_of, made

SUBSCRIBER = """
import asyncio, base64, json, sys
from redis.asyncio import Redis

async def main(port, count):
    client = Redis(port=port)
    pubsub = client.pubsub()
    await pubsub.psubscribe("*")
    left = count
    async for message in pubsub.listen():
        if message["type"] == "psubscribe":
            print("ready", flush=True)
        elif message["type"] == "pmessage":
            print(base64.b64encode(message["channel"]).decode(), base64.b64encode(message["data"]).decode())
            left -= 1
            if not left:
                break
    await pubsub.aclose()
    await client.aclose()

asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("file", FILES or [None], ids=lambda file: file.name if file else "made")
def test_traffic_is_imported_replayed_byte_for_byte_and_recorded_again_the_same(
    redis: RedisServer, store: str, tmp_path: Path, file: Path | None, nightly: bool
) -> None:
    source = file or made(tmp_path, 30_000 if nightly else 5_000)
    lines = lines_of(source)
    in_order = sorted(range(len(lines)), key=lambda at: (lines[at]["ts"], at))
    expected = [(lines[at]["channel"].encode(), lines[at]["payload"].encode()) for at in in_order]

    settings = {"MESSAGER_STORE": store, "MESSAGER_REDIS": redis.url}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = messager(*arguments, cwd=tmp_path, env=settings)
        return done

    assert run("import", str(source), "--exp", "source").returncode == 0
    assert run("verify", "source").returncode == 0
    record = ["record", "--exp", "again", "--max-events", str(len(lines))]
    tap = ForkedProgram(forks.COMMAND_LINE, record, tmp_path, {**os.environ, **settings})
    assert tap.stderr is not None and "recording" in tap.stderr.readline()
    with (tmp_path / "heard.txt").open("w") as heard:
        subscriber = subprocess.Popen(
            [sys.executable, "-c", SUBSCRIBER, str(redis.port), str(len(lines))], stdout=heard
        )
        replay = run("replay", "source", "--speed", "max", "--wait-for-subscribers", "2", "--json")
        assert replay.returncode == 0, replay.stderr
        assert subscriber.wait(120) == 0
    said = tap.communicate(timeout=120)[1]
    assert tap.returncode == 0, said
    report = json.loads(replay.stdout)
    assert (report["published"], report["skipped"], report["no_subscriber"]) == (len(lines), 0, 0)

    import base64

    found = [
        tuple(base64.b64decode(word) for word in line.split(" "))
        for line in (tmp_path / "heard.txt").read_text().splitlines()
        if line != "ready"
    ]
    assert found == expected
    assert run("diff", "source", "again").returncode == 0
    assert run("verify", "again").returncode == 0
