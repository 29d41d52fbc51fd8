"""Verbs that print a table print the same rows as CSV and JSON, and -n means the same in each form."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from tests.store.cli.conftest import PutImported
from tests.support import messager
from tests.support.command_line import one_line

LINES = [
    {"ts": 10**9 * second, "channel": f"c{to}", "from_id": 1, "to_id": to, "payload": "hi", "kind": kind}
    for second, (to, kind) in enumerate(((2, "sent"), (2, "received"), (3, "sent"), (3, "received"), (3, "sent")))
]
TABLES = [
    (("ls",), ["exp_id", "name", "tags"], None),
    (("count", "a"), ["from", "to", "messages", "payload_bytes"], "rows"),
    (("delays", "a"), ["from", "to", "basis", "number"], "rows"),
    (("problems", "a"), ["problem", "reason", "time"], "details"),
    (("diff", "a", "c"), ["channel", "kind"], "differences"),
    (("diff", "a", "b", "--summary"), ["channel", "from", "to"], "pairs"),
    (("sql", "a", "select channel, from_id from messages"), ["channel", "from_id"], None),
]


@pytest.fixture
def run(tmp_path: Any, put_imported: PutImported) -> Any:
    put_imported(tmp_path, LINES, ("--exp", "a"), ("--exp", "b", "--name", "another", "--meta", "x=1"))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(line | {"payload": "ho"}) + "\n" for line in LINES[:2]))
    return lambda *words: messager(*words, cwd=tmp_path)


def rows_of(text: str, rows: str | None) -> list[Any]:
    """Return the rows of an answer, in CSV with the titles, in JSON those under the key `rows`."""
    if not text.startswith(("{", "[")):
        return list(csv.reader(io.StringIO(text)))
    if rows is None and text.startswith("{"):
        return [json.loads(line) for line in text.splitlines()]
    data = json.loads(text)
    return list(data if rows is None else data[rows])


@pytest.mark.parametrize(("words", "titles", "rows"), TABLES, ids=[" ".join(words[:2]) for words, _, _ in TABLES])
def test_csv_has_a_line_of_titles_and_the_rows_of_json(
    run: Any, words: tuple[str, ...], titles: list[str], rows: str | None
) -> None:
    assert run("import", "c.jsonl", "--exp", "c").returncode == 0
    table = rows_of(run(*words, "--csv").stdout, rows)
    assert table[0][: len(titles)] == titles
    assert len(table) - 1 == len(rows_of(run(*words, "--json").stdout, rows)) > 0
    if words[0] != "problems":
        assert len(rows_of(run(*words, "--csv", "-n", "1").stdout, rows)) == 2
        assert len(rows_of(run(*words, "--json", "-n", "1").stdout, rows)) == 1
    one_line(run(*words, "--csv", "--json"), 2, "--csv and --json cannot be combined")
