"""Text of differences."""

from __future__ import annotations

import json
from typing import Any

import pytest

from messager_store import Event, Match
from messager_store.cli.commands.diff import _show, command
from messager_store.queries.comparison import CONTEXT, Comparison, Difference
from messager_store.queries.text_diff import LEAD, LONGEST

LOREM = "lorem ipsum dolor sit amet " * 300


def said(payload: str | bytes, ts: int = 1) -> Event:
    return Event(ts, 1, 1, "sent", "c", payload if isinstance(payload, bytes) else payload.encode())


def difference(a: str | bytes | None, b: str | bytes | None) -> Difference:
    return Difference("c", 0, None if a is None else said(a), None if b is None else said(b), None)


def lines_of(a: str | bytes | None, b: str | bytes | None, **how: Any) -> dict[str, str]:
    return {sign: line.removeprefix("1:1:1  ") for sign, line in difference(a, b).lines(**how)}


def test_long_texts_are_cut_around_the_first_character_that_differs() -> None:
    start = LOREM[:3608]
    lines = lines_of(start + "blue" + LOREM, start + "red" + LOREM)
    assert lines["A"] == f"…{start[-LEAD:]}blue{LOREM}"[: LONGEST + 1] + "…"
    assert lines["B"] == f"…{start[-LEAD:]}red{LOREM}"[: LONGEST + 1] + "…"
    assert lines["~"] == "differs at character 3,609"


def test_a_text_that_only_goes_on_differs_where_the_other_ends() -> None:
    lines = lines_of(LOREM, LOREM + "!")
    assert lines["A"] == "…" + LOREM[-LEAD:] and lines["B"] == lines["A"] + "!"
    assert lines["~"] == f"differs at character {len(LOREM) + 1:,}"


def test_full_cuts_nothing_and_still_says_where() -> None:
    lines = lines_of(LOREM + "a", LOREM + "b", full=True)
    assert lines == {"A": LOREM + "a", "B": LOREM + "b", "~": f"differs at character {len(LOREM) + 1:,}"}


def test_short_texts_are_shown_whole_without_a_place() -> None:
    assert lines_of("x" * 390 + "a", "x" * 390 + "b") == {"A": "x" * 390 + "a", "B": "x" * 390 + "b"}


def test_texts_are_shown_as_events_shows_them() -> None:
    a, b = (json.dumps({"n": 1, "content": f"\u4f60\u597d {word}"}) for word in ("blue", "red"))
    assert "\\u4f60" in a
    assert lines_of(a, b) == {
        "A": "你好 blue",
        "B": "你好 red",
        "~": 'differs in $.content: "你好 blue" in A, "你好 red" in B',
    }


def test_the_values_at_the_first_path_that_differs_are_shown_also_if_the_texts_do_not_contain_them() -> None:
    a, b = '{"id": 1, "content": "hello"}', '{"content": "yo", "id": 1.0, "more": 2}'
    assert lines_of(a, b) == {"A": "hello", "B": "yo", "~": "differs in $.id: 1 in A, 1.0 in B"}
    assert lines_of('{"content": "a", "n": 1}', '{"content": "a"}')["~"] == "differs in $.n: 1 in A, no value in B"
    long = lines_of(*(json.dumps({"id": at, "content": f"{LOREM}{at}"}) for at in (1, 2)))
    assert long["~"] == "differs in $.id: 1 in A, 2 in B" and long["A"] == f"…{LOREM[-LEAD:]}1"


def test_payloads_are_shown_where_the_decoded_texts_are_alike() -> None:
    a, b = '{"content": "same", "n": 1}', '{"content": "same", "n": 2}'
    assert lines_of(a, b) == {"A": a, "B": b, "~": "differs in $.n: 1 in A, 2 in B"}
    assert lines_of('{"content": "\\u4f60"}', '{"content": "你"}') == {
        "A": '{"content": "\\u4f60"}',
        "B": '{"content": "你"}',
    }
    assert lines_of(b"\xff", rb"\xff") == {"A": r"b'\xff'", "B": r"b'\\xff'"}


def test_the_path_continues_inside_a_string_that_contains_json() -> None:
    a, b = ({"content": json.dumps({"day": day})} for day in (1, 2))
    assert difference(json.dumps(a), json.dumps(b)).path == "$.content.day"
    assert difference(json.dumps(a), json.dumps({"content": '{"day":1}'})).path == "$.content"


def test_both_values_are_shown_under_a_match_and_cut_around_their_difference() -> None:
    def place(a: Any, b: Any, match: Match, **how: Any) -> str:
        found = Difference("c", 0, said(json.dumps(a)), said(json.dumps(b)), None, match=match)
        return dict(found.lines(**how)).get("~", "")

    match = Match(ignore=["id"])
    assert place({"id": 1, "n": [1]}, {"id": 2, "n": [1, 2]}, match) == "differs in $.n[1]: no value in A, 2 in B"
    assert place([LOREM], {"id": 2}, match) == "differs in $"
    a, b = {"id": "x" * 500, "n": LOREM + "a"}, {"id": "y" * 500, "n": LOREM + "b"}
    cut = place(a, b, match)
    assert cut.startswith("differs in $.n: …") and cut.count(LOREM[-LEAD + 1 :]) == 2 and len(cut) < 4 * LEAD
    assert place(a, b, match, full=True).count(LOREM) == 2
    assert place({"\x1b[31m": "\x1b"}, {"\x1b[31m": "\x07"}, match).isprintable()


@pytest.mark.parametrize(
    ("a", "b", "path"),
    [
        ({"items": [1, {}, {"name": "x"}]}, {"items": [1, {}, {"name": "y"}]}, "$.items[2].name"),
        ({"a": 1}, {"a": 1, "b": 2}, "$.b"),
        ({"a": 1, "b": 2}, {"b": 2}, "$.a"),
        ({"a": [1]}, {"a": [1, 2]}, "$.a[1]"),
        ({"a": 1}, {"a": 1.0}, "$.a"),
        ({"a": 1}, {"a": True}, "$.a"),
        ({"a": {}}, {"a": []}, "$.a"),
        ({"odd key": 1}, {"odd key": 2}, '$["odd key"]'),
        ({"a": float("nan"), "b": 1}, {"a": float("nan"), "b": 2}, "$.b"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, None),
        ([1], [2], "$[0]"),
        ("a", {"a": 1}, None),
    ],
)
def test_the_path_is_that_of_the_first_value_that_differs(a: Any, b: Any, path: str | None) -> None:
    assert difference(json.dumps(a), json.dumps(b)).path == path


def test_what_no_json_reader_takes_has_no_path() -> None:
    deep = '{"a":' * 100_000
    assert difference(deep + "1" + "}" * 100_000, deep + "2" + "}" * 100_000).path is None
    assert difference(b'{"a": "\xff"}', b'{"a": "\xfe"}').path is None
    assert difference(None, "{}").path is None


def test_nothing_recorded_reaches_a_terminal_as_it_is() -> None:
    bad = "\x1b[31m\x07\u202e"
    lines = lines_of(json.dumps({bad: bad}), json.dumps({bad: bad + "!"}))
    assert all(line.isprintable() for line in lines.values()) and r"1b[31m\u0007\u202e" + '"]:' in lines["~"]
    before = Difference("c", 1, said(bad), None, said(bad), said(bad))
    assert all(line.isprintable() for _, line in before.lines())


def test_the_messages_around_a_difference_are_shown_by_their_beginnings() -> None:
    around = Difference("c", 1, said("a"), said("b"), said(LOREM), said(LOREM), said(LOREM))
    begun = f"1:1:1  {LOREM[:CONTEXT]}…"
    assert around.lines() == [(" ", begun), ("A", "1:1:1  a"), ("B", "1:1:1  b"), ("a", begun), ("b", begun)]
    assert around.lines(full=True)[0] == (" ", f"1:1:1  {LOREM}")


def test_the_verb_prints_the_lines_cut_or_full(capsys: pytest.CaptureFixture[str]) -> None:
    result = Comparison("one", "two", 1, 1, 1, 1, [difference(LOREM + "a", LOREM + "b")])
    _show(result, full=False)
    cut = capsys.readouterr().out
    assert f"\n  ~ differs at character {len(LOREM) + 1:,}\n" in cut and LOREM not in cut
    _show(result, full=True)
    assert f"\n  A 1:1:1  {LOREM}a\n  B 1:1:1  {LOREM}b\n  ~ differs" in capsys.readouterr().out


def test_the_help_explains_every_sign() -> None:
    long = Difference("c", 1, said(LOREM + "a"), said(LOREM + "b"), said(""), said(""), said(""))
    signs = [sign for sign, _ in long.lines()]
    assert signs == [" ", "A", "B", "~", "a", "b"]
    assert command.help is not None
    words = " ".join(command.help.split())
    assert "none for the last equal message" in words
    assert "A and B for the first" in words and "~ for the place" in words
    assert "a and b for the next" in words


def test_runs_that_only_their_exp_ids_keep_apart_are_told_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    result = Comparison("one", "two", 1, 1, 2, 2, exp_ids=("a", "b'\x1b"))
    _show(result, full=False)
    shown = capsys.readouterr()
    verdict, hint = shown.out.splitlines()
    assert "different" in verdict and hint.endswith("""B of b'\\x1b; compare them with --to-exp 'b'"'"'\\x1b'""")
    result.exp_ids = None
    _show(result, full=False)
    assert "--to-exp" not in capsys.readouterr().out


def differing(number: int) -> Comparison:
    found = [Difference(f"c{n}", n, said("x"), None, None, None, None, 1000 + n, n) for n in range(number)]
    return Comparison("one", "two", 9, 9, number, number, found[:100])


def test_many_channels_are_a_table_before_the_first_few_in_detail(capsys: pytest.CaptureFixture[str]) -> None:
    _show(differing(4), full=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[2:7]] == [
        ["CHANNEL", "A", "B", "SAME"],
        *([f"c{n}", f"1,00{n}", str(n), str(n)] for n in range(4)),
    ]
    assert lines[8] == "c0, message 1 (A has 1,000, B 0)"
    assert [line for line in lines[8:] if ", message " in line][1:] == [
        "c1, message 2 (A has 1,001, B 1)",
        "c2, message 3 (A has 1,002, B 2)",
    ]
    assert lines[-1].startswith("and 1 more channel:")


def test_few_channels_need_no_table_and_very_many_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    _show(differing(3), full=False)
    assert "CHANNEL" not in capsys.readouterr().out
    _show(differing(1200), full=False)
    shown = capsys.readouterr().out
    assert "\nand 1,100 more\n" in shown and "c99 " in shown and "c100 " not in shown


def test_a_comparison_is_put_into_words() -> None:
    found = Difference("c\x1b", 1, said(LOREM + "a"), said(LOREM + "b"), said("0"), said("2"), None, 3, 2)
    result = Comparison("one", "two", 1003, 2, 2, 1, [found], redacted=1)
    assert str(result).splitlines() == [
        "different  one: 1,003 messages, two: 2 messages (1 redacted, not compared); 1 of 2 channels differ",
        "",
        r"c\x1b, message 2 (A has 3, B 2)",
        "    1:1:1  0",
        f"  A 1:1:1  …{LOREM[-LEAD:]}a",
        f"  B 1:1:1  …{LOREM[-LEAD:]}b",
        f"  ~ differs at character {len(LOREM) + 1:,}",
        "  a 1:1:1  2",
    ]
    assert str(Comparison("one", "two", 1, 1, 1)) == "equal  one: 1 message, two: 1 message, on 1 channel"


def test_of_many_differences_the_words_have_the_first() -> None:
    words = str(differing(150))
    assert words.count(", message ") == 3 and words.endswith("\n\nand 147 more channels")
    assert "\n  B (no message: it ends here)\n" in words


def test_what_pytest_prints_of_a_comparison_names_the_first_difference() -> None:
    shown = repr(differing(150))
    assert shown == (
        "<Comparison different  one: 9 messages, two: 9 messages; 150 of 150 channels differ; "
        "first c0, message 1 (A has 1,000, B 0)>"
    )
    assert repr(Comparison("one", "two")) == "<Comparison equal  one: 0 messages, two: 0 messages, on 0 channels>"
