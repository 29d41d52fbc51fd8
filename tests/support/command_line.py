"""Command line in tests: a small import file, and the contract of errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]
"""Runs `messager` with arguments."""

LINES = [
    {"ts": 1_700_000_000_000_000_000, "channel": "exps:g:agents:2:agent-chat", "from_id": 1, "to_id": 2},
    {"ts": 1_700_000_001_000_000_000, "channel": "exps:g:agents:1:agent-chat", "from_id": "2", "payload": "plain"},
    {"ts": 1_700_000_002_000_000_000, "channel_base64": "/w==", "payload_base64": "AP8bWzMxbQ=="},
    {"ts": 1_700_000_002_000_000_000, "kind": "mark", "meta": {"name": "tick", "fields": {"n": 1}}},
]
LINES[0]["payload"] = json.dumps({"content": json.dumps({"content": "h\u00e9 \u65e5\u672c"})})
"""Lines of an import file."""


def one_line(done: Any, code: int, *words: str) -> None:
    """Check the contract of errors: one line on standard error, no traceback, this exit code."""
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("messager: "), done.stderr
    for word in words:
        assert word in lines[0], lines[0]
