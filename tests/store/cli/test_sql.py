"""`messager sql` prints a table, CSV or JSON, and shows where a statement is wrong."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest

from messager_store.cli.output import Csv
from messager_store.cli.sql_output import JsonLines, Output, Table
from tests.store.cli.test_output import terminal_of
from tests.support.command_line import Run, one_line

VIEWS = ("events", "messages", "deliveries", "marks", "gaps")
COUNT = "select from_id, count(*) as messages from messages group by 1 order by 1 desc"
MANY = "select range + 1 as x, 'row ' || x as name from range({})"


def test_people_get_a_table(imported: Run) -> None:
    done = imported("sql", "game-1", COUNT)
    assert (done.returncode, done.stdout) == (
        0,
        "from_id  messages\n2               1\n1               1\n-               1\n",
    )


def test_a_long_table_ends_after_a_hundred_rows_and_says_so(imported: Run) -> None:
    done = imported("sql", "game-1", MANY.format(1000))
    assert len(done.stdout.splitlines()) == 101
    assert "the first 100 rows; there are more: -n N, --csv or --json" in done.stderr
    assert imported("sql", "game-1", MANY.format(100)).stderr == ""
    assert len(imported("sql", "game-1", MANY.format(1000), "-n", "500").stdout.splitlines()) == 501


def test_csv_and_json_have_every_row(imported: Run) -> None:
    done = imported("sql", "game-1", MANY.format(2500), "--csv")
    assert list(csv.reader(io.StringIO(done.stdout))) == [
        ["x", "name"],
        *([str(x), f"row {x}"] for x in range(1, 2501)),
    ]
    done = imported("sql", "game-1", MANY.format(2500), "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"x": x, "name": f"row {x}"} for x in range(1, 2501)
    ]
    assert len(imported("sql", "game-1", MANY.format(2500), "--json", "--limit", "3").stdout.splitlines()) == 3


def test_a_statement_may_come_from_standard_input(imported: Run) -> None:
    assert imported("sql", "game-1", "-", "--csv", input=f"{COUNT}\n-- the end\n").stdout.startswith(
        "from_id,messages\n"
    )


def test_the_place_of_an_error_is_marked(imported: Run) -> None:
    done = imported("sql", "game-1", "select *\nfrom\tmessages frm where x")
    assert done.returncode == 2 and done.stdout == ""
    line, mark, error = done.stderr.splitlines()
    assert error.startswith("messager: the statement cannot be run: ") and "line 2, column" in error
    assert line == "  from\\tmessages frm where x"
    assert line[mark.index("^") :].startswith("x")


def test_what_is_refused_is_one_line(imported: Run) -> None:
    one_line(imported("sql", "game-1", "delete from event"), 2, "it may only read")
    one_line(imported("sql", "game-1", "select 1; select 2"), 2, "more than one statement")
    one_line(imported("sql", "game-1", COUNT, "--csv", "--json"), 2, "cannot be combined")
    endless = "select sum(range) from range(1000000000000)"
    one_line(imported("sql", "game-1", endless, "--timeout", "0.2"), 2, "time limit of 0.2 s", "--timeout")
    for seconds in ("0", "-1", "nan", "1e300", "2147484"):
        one_line(imported("sql", "game-1", endless, "--timeout", seconds), 2, "is not possible", "at most 2147483")


def test_without_a_statement_the_views_and_their_columns_are_listed(imported: Run) -> None:
    views = json.loads(imported("sql", "game-1", "--json").stdout)
    assert tuple(views) == VIEWS
    assert [line.split()[0] for line in imported("sql", "game-1").stdout.splitlines()] == list(VIEWS)
    for view, names in views.items():
        done = imported("sql", "game-1", f"select * from {view}", "--csv")
        assert done.stdout.splitlines()[0].split(",") == names


def test_bytes_are_text_or_hex_and_control_characters_are_escaped(imported: Run) -> None:
    statement = (
        "select '\\xFF\\x1b'::blob as a, 'hi'::blob as b, chr(27) || '[31m' as c, null as d, 1.5::double as e, 7 as c"
    )
    assert imported("sql", "game-1", statement).stdout.splitlines()[1].split() == [
        *("hex:FF1B", "hi", "\\x1b[31m", "-", "1.5", "7")
    ]
    [row] = [json.loads(line) for line in imported("sql", "game-1", statement, "--json").stdout.splitlines()]
    assert row == {"a": "hex:FF1B", "b": "hi", "c": "\x1b[31m", "d": None, "e": 1.5, "c_2": 7}
    assert "\x1b" not in imported("sql", "game-1", statement, "--json").stdout


@pytest.mark.parametrize("output", [Csv(), Table(), JsonLines()])
def test_no_value_controls_a_terminal(monkeypatch: pytest.MonkeyPatch, output: Output) -> None:
    terminal = terminal_of(monkeypatch)
    assert sys.stdout is terminal
    output.begin(["a\x1b[2J", "b"])
    output.add([("\x1b[31m", b"\x1b[31m"), (["\x9b"], {"\x07": "\x07"})])
    output.end()
    text = terminal.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert all(char.isprintable() or char == "\n" for char in text) and "1b[2J" in text


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    output = Table()
    output.begin(["time", "text", "other"])
    output.add([("2026-03-01T10:00:00Z", "日" * 80, "x" * 80)])
    output.end()
    line = terminal.getvalue().splitlines()[1]
    from rich.cells import cell_len

    assert columns - 3 <= cell_len(line) <= columns
    assert line.startswith("2026-03-01T10:00" if columns > 60 else "2026-03-01") and line.count("…") >= 2


def test_a_terminal_too_narrow_for_a_table_gets_a_block_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    output = Table()
    output.begin([f"column{at}" for at in range(20)])
    output.add([[at * 10**12 for at in range(20)]] * 2)
    output.end()
    assert terminal.getvalue().count("column7") == 2
    assert "7000000000000" in terminal.getvalue()


def test_a_statement_that_begins_with_a_comment_gets_a_hint(imported: Run) -> None:
    statement = "-- how many?\nselect count(*) as messages from messages"
    one_line(imported("sql", "game-1", statement), 2, "looks like an option: put -- before it")
    assert imported("sql", "game-1", "--", statement).stdout.startswith("messages\n")
    one_line(imported("sql", "game-1", "--foo"), 2, "No such option '--foo'")
