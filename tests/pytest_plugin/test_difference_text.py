"""Two payloads one above the other, with the first difference marked."""

from __future__ import annotations

import json

import pytest

from messager_pytest.difference_text import side_by_side


def lines(recorded: object, live: object, path: str, width: int = 80) -> list[str]:
    return side_by_side(json.dumps(recorded).encode(), json.dumps(live).encode(), path, width)


def test_the_first_difference_is_marked_under_both() -> None:
    assert lines({"from": 3, "content": "pear: 3"}, {"from": 3, "content": "pear: 4"}, "$.content") == [
        '{"from": 3, "content": "pear: 3"}',
        '{"from": 3, "content": "pear: 4"}',
        "                              ^",
    ]


def test_a_difference_that_is_ignored_is_not_marked() -> None:
    recorded, live, marker = lines({"id": "abcdef", "content": "one"}, {"id": "x", "content": "two"}, "$.content")
    at = marker.index("^")
    assert (recorded[at : at + 3], live[at : at + 3], marker.strip()) == ("one", "two", "^^^")


def test_a_key_that_only_one_side_has_is_marked_with_its_value() -> None:
    assert lines({"a": 1}, {"a": 1, "b": [2]}, "$.b") == ['{"a": 1}', '{"a": 1, "b": [2]}', "       ^^^^^^^^^^"]


@pytest.mark.parametrize("path", ["$.a", "$.extra"])
def test_texts_that_fit_are_not_cut_where_one_side_has_another_key(path: str) -> None:
    recorded, live, _ = lines({"a": 1}, {"extra": 1}, path)
    assert (recorded.strip(), live.strip()) == ('{"a": 1}', '{"extra": 1}')


def test_a_long_text_is_cut_around_the_difference_and_fits() -> None:
    recorded, live, marker = lines({"c": "x" * 300 + "1" + "y" * 300}, {"c": "x" * 300 + "2" + "y" * 300}, "$.c", 70)
    assert len(recorded) == len(live) == 70
    assert recorded.startswith("…") and recorded.endswith("…")
    assert (recorded[marker.index("^")], live[marker.index("^")]) == ("1", "2")


def test_a_path_through_arrays_and_quoted_keys_is_followed() -> None:
    recorded, live, marker = lines({"a b": [0, {"c.d": 1}]}, {"a b": [0, {"c.d": 2}]}, '$["a b"][1]["c.d"]')
    assert (recorded[marker.index("^")], live[marker.index("^")]) == ("1", "2")


def test_wide_characters_move_the_mark_as_a_terminal_does() -> None:
    assert lines({"c": "你好 a"}, {"c": "你好 b"}, "$.c")[2] == " " * 12 + "^"


@pytest.mark.parametrize(("recorded", "live"), [(b"hello", b"hallo"), (b"\xff1", b"\xff2"), (b"[1,2]", b"[1, 2]")])
def test_bytes_that_are_not_json_or_differ_only_as_bytes_are_shown_as_they_are(recorded: bytes, live: bytes) -> None:
    one, other, marker = side_by_side(recorded, live, None, 80)
    assert one != other and one[: marker.index("^")] == other[: marker.index("^")]


def test_control_characters_of_a_message_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in "".join(lines({"c": "\x1b[31m1"}, {"c": "\x1b[31m2"}, "$.c"))
