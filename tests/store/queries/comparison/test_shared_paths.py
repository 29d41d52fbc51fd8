"""Paths in which most of the changed messages differ only."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from messager_store import Event, Match
from messager_store.queries.comparison.channel_differences import Kind
from messager_store.queries.comparison.result import Difference
from messager_store.queries.comparison.shared_paths import SharedPaths, shared_paths
from tests.support import messager


def differences(
    pairs: Iterable[tuple[Any, Any]], match: Match | None = None, kind: Kind = "changed"
) -> list[Difference]:
    def event(value: Any) -> Event:
        return Event(1, 1, 1, "sent", "c", value if isinstance(value, bytes) else json.dumps(value).encode())

    return [Difference("c", kind, event(a), event(b), 0, 0, match=match) for a, b in pairs]


def timed(number: int, *extra: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    """Return pairs that differ in the time only, and others."""
    return [({"t": at, "content": "hi"}, {"t": at + 0.5, "content": "hi"}) for at in range(number)] + list(extra)


def blocks(number: int) -> tuple[Any, Any]:
    """Return a message with a time of its own and one for each block, in two runs."""
    one, other = ({"at": begin, "said": begin, "blocks": [{"at": begin}] * number} for begin in (1, 2))
    return one, other


SAID = ({"t": 1, "content": "hi"}, {"t": 2, "content": "bye"})


def test_the_paths_are_those_of_more_than_half_of_at_least_three_messages() -> None:
    for found, expected in [
        (differences(timed(5)), SharedPaths(("t",), 5, 5)),
        (differences(timed(3, SAID, SAID)), SharedPaths(("t",), 3, 5)),
        (differences(timed(2, SAID, SAID)), None),
        (differences(timed(2)), None),
        (differences(timed(5), kind="moved"), None),
        (differences(timed(5), Match(bytes_only=True)), SharedPaths(("t",), 5, 5)),
        (differences([SAID] * 4), SharedPaths(("content", "t"), 4, 4)),
        (differences([SAID] * 4, Match(ignore=["t"])), SharedPaths(("content",), 4, 4)),
        (differences([(b"a", b"b")] * 4), None),
        (differences([(b'{"a": 1}', b'{"a":1}')] * 4), None),
        (differences([(dict.fromkeys("abcd", 1), dict.fromkeys("abcd", 2))] * 4), None),
        (differences([({"x": [{"y z": 1}]}, {"x": [{"y z": 2}]})] * 3), SharedPaths(('**["y z"]',), 3, 3)),
        (differences([blocks(5)] * 3), SharedPaths(("**.at", "said"), 3, 3)),
        (differences([blocks(200)] * 3), None),
        (
            differences([({"a": 1, "b": 1}, {"b": 2, "a": 2}), ({"b": 1, "a": 1}, {"b": 2, "a": 2})] * 2),
            SharedPaths(("a", "b"), 4, 4),
        ),
    ]:
        assert shared_paths(found) == expected


def written(folder: Path, exp: str, seconds: float, key: str, count: int = 30) -> None:
    lines = [
        {"ts": at, "channel": "c", "payload": {"id": [{key: at + seconds}], "said": "bye" if at == 7 else f"hi {at}"}}
        for at in range(count)
    ]
    if exp == "b":
        lines[7]["payload"] = {"id": [{key: 7}], "said": "something else"}
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert messager("import", "run.jsonl", "--exp", exp, cwd=folder).returncode == 0


@pytest.mark.sqlite
def test_the_note_of_the_command_gives_options_that_leave_the_paths_out(tmp_path: Path) -> None:
    written(tmp_path, "a", 0, "sent at")
    written(tmp_path, "b", 0.5, "sent at")
    done = messager("diff", "a", "b", cwd=tmp_path)
    [note] = [line for line in done.stderr.splitlines() if "differ only" in line]
    assert note.startswith('19 of the first 20 changed messages differ only in **["sent at"]: --ignore ')
    whole = messager("diff", "a", "b", "-n", "100", cwd=tmp_path).stderr
    assert '29 of the 30 changed messages differ only in **["sent at"]: ' in whole
    options = shlex.split(note.partition(": ")[2].removesuffix(" compares the rest"))
    done = messager("diff", "a", "b", *options, cwd=tmp_path)
    assert "29 equal, 1 changed" in done.stdout and "differ only" not in done.stderr
