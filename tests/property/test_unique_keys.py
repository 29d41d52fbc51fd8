"""A line in which a key occurs twice is refused, whatever else it contains, and any other is parsed as `json` does."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from messager_store.formats.fields import InvalidEntry
from messager_store.formats.unique_keys import parse_unique

Text = str
"""A value as a text of JSON."""

strings = st.text(st.sampled_from('"\\a:,{}[]é\ud800\x00 \n/u'), max_size=6)
scalars = (
    st.builds(json.dumps, strings | st.integers() | st.floats() | st.booleans() | st.none())
    | st.builds(lambda text: json.dumps(text, ensure_ascii=False), st.text(max_size=6))
    | st.sampled_from(['"\\u0022"', '"\\u005c"', '"\\\\"', '"\\\\\\""', '"\\/"', "1e999", "-0", "NaN", "x", '"', "\\"])
)
spaces = st.sampled_from(["", " ", "\t", "\r "])
keys = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"\\""', '"\\\\"', '""', '"é"'])


def _object(pairs: list[tuple[Text, Text]], space: str) -> Text:
    return "{" + f",{space}".join(f"{key}{space}:{space}{value}" for key, value in pairs) + "}"


def _containers(inner: st.SearchStrategy[Text]) -> st.SearchStrategy[Text]:
    lists = st.builds(lambda items, space: f"[{f'{space},'.join(items)}]", st.lists(inner, max_size=3), spaces)
    return lists | st.builds(_object, st.lists(st.tuples(keys, inner), max_size=4), spaces)


values = st.recursive(scalars, _containers, max_leaves=8)
objects = st.builds(_object, st.lists(st.tuples(keys, values), max_size=5), spaces)


def strict(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line, or None if it is none, or has a key twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        data = json.loads(line, object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def parsed(line: bytes) -> dict[str, Any] | None:
    try:
        return parse_unique(line)
    except InvalidEntry:
        return None


@given(
    st.builds(lambda start, text, end: start + text + end, spaces, objects | values, st.sampled_from(["", "\n", " \n"]))
)
@example('{"a": "\\\\", "a": "\\\\"}')
@example('{"a": 1, "\\u0061": 1}')
@example('{"b": {"a": [], "a": "x"}}\n')
@example('{"b": [{"a": "", "a": ""}], "c": "\\""}')
@example('{"a": "", "a": {"b": "c"}}')
@example('{"a": 1} {"a": 1}')
@example("[" * 5000)
@example('{"a":' * 5000)
def test_repeated_keys_are_refused_and_everything_else_is_read(text: Text) -> None:
    line = text.encode("utf-8", "surrogatepass")
    assert repr(parsed(line)) == repr(strict(line))


@given(st.binary(max_size=20) | st.builds(lambda text: text.encode("utf-16"), objects))
def test_other_bytes_are_read_as_before(line: bytes) -> None:
    assert repr(parsed(line)) == repr(strict(line))
