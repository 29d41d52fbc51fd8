"""The output of --json is JSON that any program reads, also if values are NaN or Infinity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Run

EVENTS = """\
{"ts": 1700000000000000000, "channel": "c", "from_id": 1, "payload": "{\\"price\\": NaN, \\"who\\": [1e999]}"}
{"ts": 1700000000000000001, "channel": "c", "from_id": 1, "payload": "{\\"price\\": -1e999}"}
{"ts": 1700000000000000002, "kind": "mark", "meta": {"name": "tick", "fields": {"n": NaN}}}
"""


@pytest.fixture
def odd(run: Run, tmp_path: Path) -> Run:
    (tmp_path / "a.jsonl").write_text(EVENTS)
    assert run("import", "a.jsonl", "--exp", "odd").returncode == 0
    return run


def strict(text: str) -> Any:
    """Parse JSON as other programs do."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_count_names_not_a_number(odd: Run) -> None:
    rows = strict(odd("count", "odd", "--by", "$.price", "--json").stdout)["rows"]
    assert {row["$.price"] for row in rows} == {"NaN", "-Infinity"}
    rows = strict(odd("count", "odd", "--by", "$.who", "--json").stdout)["rows"]
    assert [row["$.who"] for row in rows if row["$.who"]] == [["Infinity"]]


def test_events_and_statements_name_it_too(odd: Run) -> None:
    mark = strict(odd("events", "odd", "--json").stdout.splitlines()[-1])
    assert mark["meta"]["fields"] == {"n": "NaN"}
    assert strict(odd("sql", "odd", "select 9e999 as a, -9e999 as b", "--json").stdout) == {
        "a": "Infinity",
        "b": "-Infinity",
    }
