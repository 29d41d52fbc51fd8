"""Each verb in a new process, which shows missing imports that the forks of other tests would hide."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from messager.testing import RedisServer
from messager_store.cli.verbs import VERBS
from tests.support import MESSAGER

ELSEWHERE = {"demo", "record"}
"""Verbs that other tests start as processes."""

LINES = [
    ("import", "a.jsonl", "--exp", "e1"),
    ("import", "a.jsonl", "--exp", "e2"),
    ("ls",),
    ("info", "e1"),
    ("events", "e1"),
    ("index", "--all"),
    ("replay", "e1", "--speed", "max", "--to-exp", "again"),
    ("diff", "e1", "e2"),
    ("export", "e1", "-o", "b.jsonl"),
    ("fork", "e1", "--into", "e1-fork", "--live", "none"),
    ("tag", "e1", "paper"),
    ("close", "e1"),
    ("verify", "--all"),
    ("redact", "e2", "--where", "contains=plain", "--why", "asked to", "--yes"),
    ("pack", "e1", "-o", "e1.pack"),
    ("unpack", "e1.pack", "--store", "other.db"),
    ("gather", "other.db", "--store", "gathered.db"),
    ("index", "e1"),
    ("drain",),
    ("repair",),
    ("status",),
    ("rm", "e2", "--yes"),
    ("prune", "--older-than", "1d", "--yes"),
    ("compact", "--yes"),
    ("db", "check"),
    ("db", "upgrade"),
]


def test_every_verb_imports_what_it_needs(tmp_path: Path, redis: RedisServer) -> None:
    assert {words[0] for words in LINES} | ELSEWHERE == set(VERBS)
    line = {"ts": 1, "channel": "exps:e:agents:1:x", "payload": {"content": "plain"}}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    for words in LINES:
        done = subprocess.run(
            [*MESSAGER, "--redis", redis.url, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (words, done.stderr)
