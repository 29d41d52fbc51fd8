"""Text of differences."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from messager_store import Event, Match
from messager_store.cli import comparison_output
from messager_store.cli.commands.diff import command
from messager_store.cli.comparison_output import ROWS, show_comparison
from messager_store.queries.comparison.channel_differences import Kind
from messager_store.queries.comparison.result import CONTEXT, ChannelCounts, Comparison, Counts, Difference
from messager_store.queries.comparison.text_diff import LEAD, LONGEST

LOREM = "lorem ipsum dolor sit amet " * 300


def said(payload: str | bytes, ts: int = 1) -> Event:
    return Event(ts, 1, 1, "sent", "c", payload if isinstance(payload, bytes) else payload.encode())


def difference(a: str | bytes | None, b: str | bytes | None) -> Difference:
    kind: Kind = "only_b" if a is None else "only_a" if b is None else "changed"
    of_a, of_b = (None if one is None else said(one) for one in (a, b))
    return Difference("c", kind, of_a, of_b, None if a is None else 0, None if b is None else 0)


def lines_of(a: str | bytes | None, b: str | bytes | None, **how: Any) -> dict[str, str]:
    """Return the lines by sign, without cursors and without the similarity."""
    lines = {sign: line.removeprefix("1:1:1  ") for sign, line in difference(a, b).lines(**how)}
    likeness, _, lines["~"] = lines["~"].partition(" similar")
    assert 0 <= int(likeness.removesuffix("%")) <= 100
    lines["~"] = lines["~"].removeprefix(", ")
    return {sign: line for sign, line in lines.items() if line}


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
        found = Difference("c", "changed", said(json.dumps(a)), said(json.dumps(b)), 0, 0, match=match)
        return dict(found.lines(**how))["~"].partition(" similar, ")[2]

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
    before = Difference("c", "only_a", said(bad), None, 1, None, before=said(bad), a_next=said(bad))
    assert all(line.isprintable() for _, line in before.lines())


def test_the_messages_around_a_difference_are_shown_by_their_beginnings() -> None:
    around = Difference(
        "c", "changed", said("a"), said("b"), 1, 1, 2, 2, None, "", said(LOREM), said(LOREM), said(LOREM)
    )
    begun = f"1:1:1  {LOREM[:CONTEXT]}…"
    assert around.lines() == [
        (" ", begun),
        ("A", "1:1:1  a"),
        ("B", "1:1:1  b"),
        ("~", "0% similar"),
        ("a", begun),
        ("b", begun),
    ]
    assert around.lines(full=True)[0] == (" ", f"1:1:1  {LOREM}")


def compared(*found: Difference, **more: Any) -> Comparison:
    """Return a comparison of one channel with these differences, all of one kind."""
    counts = Counts(1, **{found[0].kind: len(found)})
    rows = [ChannelCounts(one.channel, "", 9, 9, Counts(0, 0, 1), at) for at, one in enumerate(found)]
    return Comparison("one", "two", 9, 9, counts, len(rows), rows, list(found), **more)


def test_the_verb_prints_the_lines_cut_or_full(capsys: pytest.CaptureFixture[str]) -> None:
    result = compared(difference(LOREM + "a", LOREM + "b"))
    show_comparison(result, full=False)
    cut = capsys.readouterr().out
    assert f" similar, differs at character {len(LOREM) + 1:,}\n" in cut and LOREM not in cut
    show_comparison(result, full=True)
    assert f"\n  A 1:1:1  {LOREM}a\n  B 1:1:1  {LOREM}b\n  ~ " in capsys.readouterr().out


def test_the_help_explains_every_sign() -> None:
    neighbours = said(""), said(""), said("")
    long = Difference("c", "changed", said(LOREM + "a"), said(LOREM + "b"), 1, 1, 2, 2, None, "", *neighbours)
    assert [sign for sign, _ in long.lines()] == [" ", "A", "B", "~", "a", "b"]
    assert command.help is not None
    words = " ".join(command.help.split())
    assert "A and B for the messages of both sides" in words and "~ for how similar they are" in words
    assert "> for a moved message" in words and "the message before without a sign" in words
    assert "the next ones as a and b" in words


def test_exp_ids_that_count_as_the_same_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    result = Comparison("one", "two", 1, 1, Counts(1), 1, exp_ids=("a", "b'\x1b"))
    show_comparison(result, full=False)
    note = "channels of a are compared as channels of b'\\x1b (--keep-names turns that off)\n"
    assert capsys.readouterr().err == note


def test_a_channel_that_was_aligned_by_anchors_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    result = Comparison(
        "one", "two", 9, 9, Counts(0, 0, 9), 1, [ChannelCounts("c", "", 9, 9, Counts(0, 0, 9), 0, True)]
    )
    show_comparison(result, full=False)
    assert "c: behind the opening, less than a tenth is on both sides: aligned only by" in capsys.readouterr().out
    result.by_channel = [replace(result.by_channel[0], channel=f"c{n}") for n in range(9)]
    show_comparison(result, full=False)
    assert "c0, c1, c2 and 6 more channels: behind" in capsys.readouterr().out


def test_a_narrow_terminal_has_channels_without_what_all_begin_with(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"exps:a-long-name-of-an-experiment:agents:{agent}:chat" for agent in ("13", "14", "2")]
    result = differing(3, 1)
    result.by_channel = [replace(row, channel=name) for row, name in zip(result.by_channel, names, strict=True)]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    show_comparison(result, full=False)
    lines = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.endswith(" 0")]
    assert lines == ["…13:chat", "…14:chat", "…2:chat"]
    monkeypatch.setenv("COLUMNS", "200")
    show_comparison(result, full=False)
    assert names[0] in capsys.readouterr().out


def differing(number: int, shown: int) -> Comparison:
    """Return a comparison of channels with one message each that only A has."""
    rows = [ChannelCounts(f"c{n}", "", 1000 + n, n, Counts(n, only_a=1), n) for n in range(number)]
    found = [Difference(f"c{n}", "only_a", said(f"x{n}"), None, n, None, 1000 + n, n) for n in range(shown)]
    return Comparison("one", "two", 9, 9, Counts(5, only_a=number), number, rows, found)


def test_the_first_difference_precedes_the_table_of_channels_and_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    show_comparison(differing(4, 3), full=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("two: 9 messages; 5 equal, 4 only in A; 4 of 4 channels differ")
    assert lines[1:5] == ["", "c0: only in A, message 1 of 1,000 in A (B has 0)", "  A 1:1:1  x0", ""]
    assert [line.split() for line in lines[5:10]] == [
        ["CHANNEL", "A", "B", "EQUAL", "MOVED", "CHANGED", "ONLY", "A", "ONLY", "B"],
        *([f"c{n}", f"1,00{n}", str(n), str(n), "0", "0", "1", "0"] for n in range(4)),
    ]
    assert lines[10:] == [
        *("", "c1", "  A 2  x1", "", "c2", "  A 3  x2", ""),
        "and 1 more difference: see them with -n, --channel or --json",
    ]


def test_one_channel_needs_no_table_and_of_very_many_the_first_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    show_comparison(differing(1, 1), full=False)
    assert "CHANNEL" not in capsys.readouterr().out
    show_comparison(differing(ROWS + 1100, 1), full=False)
    shown = capsys.readouterr().out
    assert "\nand 1,100 more\n" in shown and f"c{ROWS - 1} " in shown and f"c{ROWS} " not in shown


def test_differences_of_one_channel_stand_together_by_their_positions(capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (said(json.dumps({"content": "same", "n": n})) for n in (1, 2))
    found = [
        Difference("c", "only_b", None, said("first"), None, 0, 9, 9),
        Difference("c", "moved", said("went"), said("went"), 1, 1000, 9, 9),
        Difference("d", "only_b", None, said("there"), None, 4, 9, 9),
        Difference("c", "changed", said("hello you"), said("hello two"), 2, 3, 9, 9),
        Difference("c", "changed", a, b, 6, 6, 9, 9),
    ]
    show_comparison(Comparison("one", "two", 9, 9, Counts(0, 1, 2, 0, 2), 2, [], found), full=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("c") + 1 :] == [
        "  > 2 to 1,001  went",
        "  A 3  hello you",
        "  B 4  hello two",
        *(lines[lines.index("  B 4  hello two") + 1],),
        '  A 7  {"content": "same", "n": 1}',
        '  B 7  {"content": "same", "n": 2}',
        *(lines[lines.index('  B 7  {"content": "same", "n": 2}') + 1],),
        *("", "d", "  B 5  there"),
    ]
    assert lines[lines.index("  B 4  hello two") + 1].endswith("% similar, differs in $")
    assert any(line.endswith("% similar, differs in $.n: 1 in A, 2 in B") for line in lines)


def test_a_wide_terminal_has_changed_messages_side_by_side(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison_output, "_width", lambda: 130)
    found = [difference("x", "y"), difference("hello you", "hello two"), difference("日本" * 99, "日本" * 98)]
    show_comparison(compared(*found), full=False)
    lines = capsys.readouterr().out.splitlines()
    [short] = [line for line in lines if "hello you" in line]
    assert short.startswith("  ~ 1  hello you ") and " | hello two " in short and short.endswith("%")
    [long] = [line for line in lines if line.startswith("  ~ 1  ") and line != short]
    assert cell_len(long) <= 130


def test_a_comparison_is_put_into_words() -> None:
    neighbours = said("0"), said("2"), None
    a, b = said(LOREM + "a"), said(LOREM + "b")
    found = Difference("c\x1b", "changed", a, b, 1, 1, 3, 2, None, "", *neighbours)
    row = ChannelCounts("c\x1b", "", 3, 2, Counts(1, 0, 1, 1), 1)
    result = Comparison("one", "two", 1003, 2, Counts(1, 0, 1, 1), 2, [row], [found], redacted=1)
    lines = str(result).splitlines()
    assert lines[6].startswith("  ~ ") and lines[6].endswith(f" similar, differs at character {len(LOREM) + 1:,}")
    assert lines[:6] + lines[7:] == [
        "different  one: 1,003 messages, two: 2 messages (1 redacted, not compared); 1 equal, 1 changed, 1 only in A; "
        "1 of 2 channels differ",
        "",
        r"c\x1b: changed, message 2 of 3 in A, 2 of 2 in B",
        "    1:1:1  0",
        f"  A 1:1:1  …{LOREM[-LEAD:]}a",
        f"  B 1:1:1  …{LOREM[-LEAD:]}b",
        "  a 1:1:1  2",
        "",
        "and 1 more difference",
    ]
    words = str(Comparison("one", "two", 1, 1, Counts(1), 1))
    assert words == "equal  one: 1 message, two: 1 message, on 1 channel"


def test_of_many_differences_the_words_have_the_first() -> None:
    words = str(differing(150, 100))
    assert words.count(": only in A, message ") == 5 and words.endswith("\n\nand 145 more differences")


def test_what_pytest_prints_of_a_comparison_names_the_first_difference() -> None:
    assert repr(differing(150, 100)) == (
        "<Comparison different  one: 9 messages, two: 9 messages; 5 equal, 150 only in A; 150 of 150 channels differ; "
        "first c0: only in A, message 1 of 1,000 in A (B has 0)>"
    )
    assert repr(Comparison("one", "two")) == "<Comparison equal  one: 0 messages, two: 0 messages, on 0 channels>"
