"""Each verb in a process that has loaded no module of this project.

This shows missing imports that the forks of other tests hide. The libraries are loaded once, which takes most of the
time of a start.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from messager.testing import RedisServer
from messager_store.cli.verbs import VERBS

EACH_LINE = """
import gc
import json
import os
import sys

import alembic.command
import pydantic
import redis.asyncio
import sqlalchemy.ext.asyncio

assert not [name for name in sys.modules if name.startswith("messager")]
gc.freeze()
for words in json.loads(sys.argv[1]):
    process = os.fork()
    if process == 0:
        from messager_store.cli import main

        sys.argv = ["messager", *words]
        sys.exit(main())
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code == 0, (words, code)
"""
"""Runs every line in a fork, until one fails."""

IN_MAKE_TEST = {"import", "events", "replay", "report", "verify"}
"""Verbs that import most of the packages; `make nightly` starts all."""
ELSEWHERE = {"demo", "hook", "record", "reproduce", "run", "view"}
"""Verbs that other tests start as processes."""

LINES = [
    ("import", "a.jsonl", "--exp", "e1"),
    ("import", "a.jsonl", "--exp", "e2"),
    ("ls",),
    ("info", "e1"),
    ("events", "e1"),
    ("delays", "e1"),
    ("delays", "e1", "--replies"),
    ("problems", "e1"),
    ("count", "e1", "--by", "channel,minute"),
    ("sql", "e1", "select text from messages"),
    ("replay", "e1", "--speed", "max", "--to-exp", "again"),
    ("diff", "e1", "e2"),
    ("export", "e1", "-o", "b.jsonl"),
    ("report", "e1", "-o", "e1.html"),
    ("fork", "e1", "--into", "e1-fork", "--live", "none"),
    ("tag", "e1", "paper"),
    ("close", "e1"),
    ("verify", "--all"),
    ("redact", "e2", "--where", "contains=plain", "--why", "asked to", "--yes"),
    ("pack", "e1", "-o", "e1.pack"),
    ("unpack", "e1.pack", "--store", "other.db"),
    ("gather", "other.db", "--store", "gathered.db"),
    ("drain",),
    ("repair",),
    ("status",),
    ("rm", "e2", "--yes"),
    ("prune", "--older-than", "1d", "--yes"),
    ("compact", "--yes"),
    ("cache",),
    ("db", "check"),
    ("db", "upgrade"),
]


def test_every_verb_imports_what_it_needs(tmp_path: Path, redis: RedisServer, nightly: bool) -> None:
    assert {words[0] for words in LINES} | ELSEWHERE == set(VERBS)
    line = {"ts": 1, "channel": "exps:e:agents:1:x", "payload": {"content": "plain"}}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    lines = [["--redis", redis.url, *words] for words in LINES if nightly or words[0] in IN_MAKE_TEST]
    done = subprocess.run(
        [sys.executable, "-c", EACH_LINE, json.dumps(lines)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
