"""Rules by which an actual payload matches an expected one."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import subprocess
import sys
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest

from messager_store import Match, StoreError
from messager_store.errors import JudgeFailed
from messager_store.json_path import general_path
from messager_store.matching.match import ValueDifference

DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000


def said(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def place(match: Match, a: Any, b: Any) -> str | None:
    """Return the place of the first difference, once both directions of every method agree about it."""
    found = match.difference(said(a), said(b))
    back = match.first_difference(said(b), said(a))
    assert (found is None) == match.same(said(a), said(b)) == match.same(said(b), said(a)) == (back is None)
    return found


def test_json_is_compared_by_its_values_and_anything_else_by_its_bytes() -> None:
    for a, b, path in [
        ({"a": 1, "b": [2]}, b'{"b":[2],\n"a":1}', None),
        ({"a": 1}, {"a": 1.0}, None),
        (10**30, b"1e30", "$"),
        (10**20, b"1e20", None),
        ({"a": 1}, {"a": True}, "$.a"),
        ({"a": [True, False, None]}, b'{"a":[true,false,null]}', None),
        ({"a": True}, {"a": False}, "$.a"),
        ({"a": 0}, {"a": None}, "$.a"),
        ({"a": 0}, {"a": False}, "$.a"),
        ({"a": "1"}, {"a": 1}, "$.a"),
        ({"a": float("nan")}, b'{"a":NaN}', None),
        ({"a": float("inf")}, {"a": float("-inf")}, "$.a"),
        ([1, 2], [2, 1], "$[0]"),
        ([1, 2], [1], "$[1]"),
        ({"a": 1}, {}, "$.a"),
        ({}, {"a": None}, "$.a"),
        ({"a": {}}, {"a": []}, "$.a"),
        ({"odd key": {"b": [{"c": 1}]}}, {"odd key": {"b": [{"c": 2}]}}, '$["odd key"].b[0].c'),
        ("text", "other", "$"),
        (b"plain", b"plain", None),
        (b"plain", b"plain ", "$"),
        (b"1", b"one", "$"),
        (b"\xff", b"\xfe", "$"),
        (b"", b"null", "$"),
        (b'{"a": 1, "a": 2}', {"a": 2}, None),
    ]:
        assert place(Match(), a, b) == path


def test_json_inside_a_string_is_compared_by_its_values_if_both_strings_hold_it() -> None:
    nested = {"content": json.dumps({"content": "hi", "day": 1})}
    assert place(Match(), nested, {"content": '{"day":1, "content":"hi"}'}) is None
    assert place(Match(), nested, {"content": '{"day":2, "content":"hi"}'}) == "$.content.day"
    assert place(Match(), nested, {"content": "hi"}) == "$.content"
    assert place(Match(), nested, {"content": {"content": "hi", "day": 1}}) == "$.content"
    assert place(Match(), {"a": "1"}, {"a": "1.0"}) == "$.a"  # a number is a text here
    assert place(Match(), {"a": "[hi]"}, {"a": "[ho]"}) == "$.a"
    twice = json.dumps(json.dumps({"t": 1}))
    assert place(Match(ignore="a.t"), {"a": twice}, {"a": json.dumps(json.dumps({"t": 2}))}) is None


def test_ignored_values_are_left_out_on_both_sides() -> None:
    for ignore, a, b, path in [
        ("id", {"id": 1, "x": 1}, {"id": 2, "x": 1}, None),
        ("id", {"id": 1, "x": 1}, {"x": 1}, None),
        ("id", {"id": 1, "x": 1}, {"id": 1, "x": 2}, "$.x"),
        ("id", {"a": {"id": 1}}, {"a": {"id": 2}}, "$.a.id"),
        ("a.id", {"a": {"id": 1}}, {"a": {}}, None),
        ("a.id", {"a": {"id": 1}}, {}, "$.a"),
        ("items.*.id", {"items": [{"id": 1}, {"id": 2}]}, {"items": [{}, {"id": 3}]}, None),
        ("items.*.id", {"items": [{"id": 1}]}, {"items": []}, "$.items[0]"),
        ("items.1", {"items": [1, 2]}, {"items": [1]}, None),
        ("items.1", {"items": {"1": 2}}, {"items": {"1": 3}}, None),
        ("items.0", {"items": [1, 2]}, {"items": [2]}, "$.items[1]"),
        ("items.*", {"items": [1, 2]}, {"items": []}, None),
        ("*", {"a": 1}, {"b": 2}, None),
        ("**.t", {"t": 1, "a": [{"t": 1, "b": 1}]}, {"a": [{"t": 2, "b": 1}]}, None),
        ("**.t", {"a": [{"t": 1, "b": 1}]}, {"a": [{"t": 1, "b": 2}]}, "$.a[0].b"),
        ("**.a.t", {"a": {"a": {"t": 1}}}, {"a": {"a": {"t": 2}}}, None),
        ("**.a.*.t", {"a": {"a": {"t": 1}}}, {"a": {"a": {"t": 2}}}, None),
        ("**.a.**.t", {"x": {"a": [[{"t": 1}]]}}, {"x": {"a": [[{}]]}}, None),
        ("**.a.**.t", {"x": {"t": 1}}, {"x": {}}, "$.x.t"),
        ("a.**", {"a": 1}, {}, None),
        ("a.**", {"a": {"b": 1}}, {"a": {"b": 2}}, None),
        ("a.**.**", {"a": {"b": 1}}, {"a": 2}, None),
        ("**.**.t", {"t": 1}, {"t": 2}, None),
        ("**", [1], {"a": 2}, None),
        (r"a\.b", {"a.b": 1}, {"a.b": 2}, None),
        (r"a\.b", {"a": {"b": 1}}, {"a": {"b": 2}}, "$.a.b"),
        ("$.id", {"id": 1, "x": 1}, {"id": 2, "x": 1}, None),
        ("$id", {"id": 1}, {"id": 2}, "$.id"),
        ("$", {"id": 1}, [2], None),
        ('$.a[1]["b c"]', {"a": [1, {"b c": 1}]}, {"a": [1, {"b c": 2}]}, None),
        ('$.a[1]["b c"]', {"a": [1, {"b c": 1}]}, {"a": [2, {"b c": 2}]}, "$.a[0]"),
        ('a[1]["b c"]', {"a": [1, {"b c": 1}]}, {"a": [1, {"b c": 2}]}, None),
        ("[0].t", [{"t": 1}], [{"t": 2}], None),
        ("a[0]", {"a": {"0": 1}}, {"a": {"0": 2}}, '$.a["0"]'),
        ('a["0"]', {"a": [1]}, {"a": [2]}, "$.a[0]"),
        ('a["0"]', {"a": {"0": 1}}, {"a": {"0": 2}}, None),
        ('$["d.e"]', {"d.e": 1}, {"d.e": 2}, None),
        ('$["d.e"]', {"d": {"e": 1}}, {"d": {"e": 2}}, "$.d.e"),
        ('["*"]', {"*": 1, "a": 1}, {"*": 2, "a": 1}, None),
        ('["*"]', {"*": 1, "a": 1}, {"*": 1, "a": 2}, "$.a"),
        ('["**"].a', {"b": {"a": 1}}, {"b": {"a": 2}}, "$.b.a"),
        ('$[""]', {"": 1}, {"": 2}, None),
        ('["]\\"[\\\\"]', {']"[\\': 1}, {']"[\\': 2}, None),
        ("items[*].id", {"items": [{"id": 1}, {"id": 2}]}, {"items": [{}, {"id": 3}]}, None),
        ("$.**.t", {"a": [{"t": 1}]}, {"a": [{"t": 2}]}, None),
        ('**["d.e"]', {"a": [{"d.e": 1}]}, {"a": [{"d.e": 2}]}, None),
        ("$.content.t", {"content": '{"t":1,"x":1}'}, {"content": '{"t":2,"x":1}'}, None),
        ("content.t", {"content": '{"t":1,"x":1}'}, {"content": '{"t":2,"x":1}'}, None),
        ("**.t", {"content": '{"t":1,"x":1}'}, {"content": '{"t":2,"x":2}'}, "$.content.x"),
    ]:
        assert place(Match(ignore=[ignore]), a, b) == path


def test_nothing_is_ignored_in_a_payload_that_is_no_json() -> None:
    assert place(Match(ignore=["**"]), b"one", b"two") == "$"


def test_the_tolerance_is_the_largest_difference_of_equal_numbers() -> None:
    for a, b, path in [
        ({"a": 1.0}, {"a": 1.4}, None),
        ({"a": 1.0}, {"a": 1.6}, "$.a"),
        ([-1], [-1.5], None),
        ({"a": 0}, {"a": False}, "$.a"),
        (10**400, b"1.5", "$"),
        (10**400, 10**400 + 1, "$"),
        (float("nan"), 1, "$"),
        (float("inf"), float("inf"), None),
        ("1.0", "1.1", "$"),
    ]:
        assert place(Match(tolerance=0.5), a, b) == path


def test_a_shape_is_the_type_and_the_keys_but_not_the_values() -> None:
    for a, b, path in [
        ("how are you", "fine", None),
        ('{"json": 1}', "text", None),
        (1, 2.5, None),
        (1, True, "$.c"),
        ("1", 1, "$.c"),
        (None, "", "$.c"),
        ({"a": 1, "b": "x"}, {"b": "y", "a": 2}, None),
        ({"a": {"b": 1}}, {"a": {"b": "1"}}, "$.c.a.b"),
        ({"a": 1}, {"a": 1, "b": 1}, "$.c.b"),
        ({"a": 1, "b": 1}, {"a": 1}, "$.c.b"),
        ({"id": 1, "a": 1}, {"a": 2}, None),
        ([1, 2, 3], [4], None),
        ([1, "a"], ["b", 2, 3], None),
        ([1, "a"], [1], "$.c"),
        ([{"a": 1}], [{"a": 2}, {"a": 3}], None),
        ([{"a": 1}], [{"b": 1}], "$.c"),
        ([{"id": 1, "a": 1}], [{"a": 1}], None),
        ([{"a": [1]}], [{"a": []}, {"a": [2, 3]}], None),
        ([], [1], None),
        ([[], [1]], [[2]], None),
        ([], {}, "$.c"),
    ]:
        match = Match(shape=["c"], ignore=["**.id"])
        assert place(match, {"c": a, "x": 1}, {"c": b, "x": 1}) == path
        assert place(match, {"c": a, "x": 1}, {"c": a, "x": 2}) == "$.x"


def test_the_place_of_a_difference_comes_with_both_values() -> None:
    a, b = said({"a": 1, "b": ["x"]}), said({"b": ["ü", 2]})
    assert Match().first_difference(a, b) == ValueDifference("$.a", "1", None)
    assert Match(ignore="a").first_difference(a, b) == ValueDifference("$.b[0]", '"x"', '"ü"')
    assert Match(ignore=["a", "b.0"]).first_difference(a, b) == ValueDifference("$.b[1]", None, "2")
    assert Match().first_difference(a, b"\xff") == ValueDifference("$", a.decode(), r"\xff")


def test_bytes_only_sees_any_difference_and_still_names_its_place() -> None:
    match = Match(bytes_only=True)
    assert place(match, b'{"a": 1}', b'{"a": 1}') is None
    assert place(match, b'{"a": 1}', b'{"a":1}') == "$"
    assert place(match, b'{"a": 1}', b'{"a": 1.0}') == "$.a"
    assert place(match, b"one", b"two") == "$"


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        (b"[9007199254740993]", b"[9007199254740992]", [("$[0]", "9007199254740993", "9007199254740992")]),
        (b'{"x":1e400,"y":2}', b'{"x":1E+401,"y":2}', [("$.x", "1e400", "1E+401")]),
        (
            b"[-0, 1.50, 0.1]",
            b"[0, 1.5, 0.10]",
            [("$[0]", "-0", "0"), ("$[1]", "1.50", "1.5"), ("$[2]", "0.1", "0.10")],
        ),
        (b'{"a":{"k":1,"k":2}}', b'{"a":{"k":3,"k":2}}', [("$.a", '{"k": 1, "k": 2}', '{"k": 3, "k": 2}')]),
        (b'{"n":1,"k":1,"k":2}', b'{"n":2,"k":1,"k":2}', [("$.n", "1", "2")]),
        (b'{"t":"{\\"n\\":1e400}"}', b'{"t":"{\\"n\\":1e401}"}', [("$.t.n", "1e400", "1e401")]),
        (b'{"gone":null,"new":{}}', b'{"new":[-0]}', [("$.gone", "null", None), ("$.new", "{}", "[-0]")]),
        (b'{"a":"\\u00e9"}', b'{ "a": "\xc3\xa9" }', []),
        (b"text", b"{}", None),
    ],
)
def test_all_differences_of_exact_values_are_returned_as_they_are_written(a: bytes, b: bytes, found: Any) -> None:
    assert Match(bytes_only=True).differences(a, b, 9) == found


def test_json_that_python_cannot_read_is_compared_by_its_bytes() -> None:
    for match in (Match(), Match(ignore="**.id"), Match(shape="**"), Match(tolerance=1)):
        assert match.same(DEEP, DEEP)
        assert place(match, DEEP, DEEP + b" ") == "$"
        assert place(match, b"9" * 5000, b"9" * 5000 + b" ") == "$"
        assert place(match, said({"a": DEEP.decode()}), said({"a": DEEP.decode() + " "})) in ("$.a", None)


def test_json_that_python_can_read_but_not_walk_is_compared_by_its_bytes() -> None:
    depth = sys.getrecursionlimit() - 250
    a, b = (f"{'[' * depth}{digit}{']' * depth}".encode() for digit in (1, 2))
    json.loads(a)
    for match in (Match(), Match(shape="**")):
        assert match.same(a, a)
        assert match.difference(a, b) in ("$", "$" + "[0]" * depth, None)
    assert not Match().same(a, b)


async def test_the_judge_is_asked_only_about_what_is_not_the_same() -> None:
    asked: list[tuple[Any, Any]] = []

    async def judge(expected: Any, actual: Any) -> bool:
        asked.append((expected, actual))
        return "yes" in str(actual)

    match = Match(ignore=["id"], judge=judge)
    assert await match.accepts(b'{"id": 1}', b'{"id": 2}') and asked == []
    assert await match.accepts(b'{"id": 1}', b'{"id": 2, "a": "yes"}')
    assert not await match.accepts(b'{"id": 1}', b'{"a": "no"}')
    assert not match.same(b'{"id": 1}', b'{"id": 2, "a": "yes"}')
    assert asked == [({"id": 1}, {"id": 2, "a": "yes"}), ({"id": 1}, {"a": "no"})]
    asked.clear()
    assert await match.accepts(b'{"id": 1}', b"yes") and asked == [(b'{"id": 1}', b"yes")]
    asked.clear()
    assert not await Match(bytes_only=True, judge=judge).accepts(b"1", b"1.0") and asked == [(b"1", b"1.0")]


async def test_an_error_of_the_judge_is_not_a_verdict_and_names_the_judge() -> None:
    async def broken(expected: Any, actual: Any) -> bool:
        raise OSError("the model does not answer.")

    text = r"the judge of the Match raised OSError: the model does not answer\. Correct it"
    with pytest.raises(JudgeFailed, match=text) as raised:
        await Match(judge=broken).accepts(b"1", b"2")
    assert isinstance(raised.value.__cause__, OSError)

    async def unclear(expected: Any, actual: Any) -> Any:
        return Unclear()

    with pytest.raises(JudgeFailed, match="raised ZeroDivisionError: "):
        await Match(judge=unclear).accepts(b"1", b"2")

    async def cancelled(expected: Any, actual: Any) -> bool:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await Match(judge=cancelled).accepts(b"1", b"2")


class Unclear:
    def __bool__(self) -> bool:
        return bool(1 // 0)


class Judging:
    async def __call__(self, expected: Any, actual: Any) -> bool:
        return True

    async def method(self, expected: Any, actual: Any) -> bool:
        return True


async def three(strictness: int, expected: Any, actual: Any) -> bool:
    return True


async def test_anything_async_can_be_the_judge() -> None:
    for judge in [Judging(), Judging().method, partial(three, 1), AsyncMock()]:
        assert await Match(judge=judge).accepts(b"1", b"2")


async def generator(expected: Any, actual: Any) -> Any:
    yield True


def test_a_judge_that_is_not_async_is_refused_when_the_match_is_made() -> None:
    for judge in [lambda expected, actual: True, Judging, generator, len, partial(max, 1), 5]:
        with pytest.raises(
            StoreError, match=r"judge is .*: give an async function of the expected and the actual value"
        ):
            Match(judge=judge)


def test_a_bad_argument_is_refused_in_one_line() -> None:
    for arguments, message in [
        ({"ignore": [""]}, "'' is not a path: give keys joined by dots"),
        ({"ignore": "a..b"}, "'a..b' is not a path"),
        ({"shape": ["content", "."]}, "'.' is not a path"),
        ({"ignore": [5]}, "5 is not a path"),
        ({"ignore": "$."}, "'$.' is not a path"),
        ({"ignore": "$..id"}, "'$..id' is not a path"),
        ({"ignore": "$[a]"}, "'$[a]' is not a path"),
        ({"ignore": "a.[0]"}, "'a.[0]' is not a path"),
        ({"ignore": "a[-1]"}, "'a[-1]' is not a path"),
        ({"ignore": "a[0]b"}, "'a[0]b' is not a path"),
        ({"ignore": "a]"}, "'a]' is not a path"),
        (
            {"shape": '$["a'},
            "is not a path, at character 2 ('[\"a'): give keys joined by dots",
        ),
        ({"shape": r'["\x"]'}, "is not a path"),
        ({"ignore": 5}, "ignore is 5: give a list of paths"),
        ({"ignore": None}, "ignore is None: give a list of paths"),
        ({"shape": {"a": 1}}, "shape is {'a': 1}: give a list of paths"),
        ({"tolerance": -0.1}, "tolerance is -0.1: give the largest difference"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"tolerance": float("inf")}, "tolerance is inf"),
        ({"tolerance": 10**400}, "tolerance is 1000"),
        ({"tolerance": True}, "tolerance is True"),
        ({"tolerance": "1"}, "tolerance is '1'"),
        ({"judge": 5}, "judge is 5: give an async function"),
        ({"bytes_only": "yes"}, "bytes_only is 'yes': give True or False"),
        ({"bytes_only": True, "ignore": "id"}, "bytes_only compares every byte: leave out ignore"),
        ({"bytes_only": True, "tolerance": 0.5}, "bytes_only compares every byte"),
    ]:
        with pytest.raises(StoreError) as refused:
            Match(**arguments)
        assert message in str(refused.value) and "\n" not in str(refused.value)
        if "judge" not in arguments:
            with pytest.raises(StoreError):
                Match.from_dict(arguments)


def test_a_match_is_a_value_that_can_be_pickled_copied_and_written_to_a_file() -> None:
    match = Match(ignore=["id", "**.t"], tolerance=1, shape="content")
    assert match.ignore == ("id", "**.t") and match.shape == ("content",)
    with pytest.raises(AttributeError):
        match.tolerance = 2
    again = Match.from_dict(json.loads(json.dumps(match.to_dict())))
    for other in (pickle.loads(pickle.dumps(match)), copy.deepcopy(match), again):
        assert other == match and hash(other) == hash(match)
        assert other.same(b'{"id": 1, "x": 1}', b'{"x": 2}')
    assert Match.from_dict({}) == Match() != match
    assert Match.from_dict({"bytes_only": True}) == Match(bytes_only=True)


def test_a_file_with_an_unknown_key_or_another_form_is_refused_by_name() -> None:
    with pytest.raises(
        StoreError, match=r"unknown key of a match: ignored, judge\. The keys are bytes_only, framework"
    ):
        Match.from_dict({"ignored": ["id"], "judge": None})
    with pytest.raises(StoreError, match="is no match: give an object"):
        Match.from_dict(["id"])

    async def judge(expected: Any, actual: Any) -> bool:
        return True

    with pytest.raises(StoreError, match="cannot be written to a file"):
        Match(judge=judge).to_dict()


def test_a_match_loads_no_sql() -> None:
    look = "import sys; from messager_store import Match; Match(ignore='**.id'); sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look]).returncode == 0


def test_threads_and_loops_may_share_a_match() -> None:
    async def work() -> bool:
        match = Match(ignore=["a.*.t", "**.id"])
        a, b = said({"a": [{"t": 1, "id": 1}] * 50}), said({"a": [{"t": 2}] * 50})
        return all(await asyncio.gather(*(asyncio.to_thread(match.same, a, b) for _ in range(50))))

    assert asyncio.run(work())


def test_the_suggested_rule_covers_every_element_of_an_array_and_no_other_key() -> None:
    for path, rule in [
        ("$.content[0].created_at", "**.created_at"),
        ("$[1].a.b", "**.b"),
        ('$.a[2]["b c"]', '**["b c"]'),
        ("$.content[0]", "content[*]"),
        ("$.a[2][3]", "a[*][*]"),
        ("$[0]", "[*]"),
        ("$.meta.id", "meta.id"),
        ('$["b c"].d', '["b c"].d'),
        ("$", "$"),
    ]:
        assert general_path(path) == rule
        Match(ignore=rule)


def society_message(payload: dict[str, Any], now: int, survey: str, **changes: Any) -> bytes:
    """Return a payload of AgentSociety 1.3 with the wall clock `now` (ms) and the id of a survey."""
    clock = {"timestamp": now, "_date_time": f"2026-03-01 10:00:00.{now:06}+00:00"}
    filled = {key: survey if value == "SURVEY" else clock.get(key, value) for key, value in payload.items()}
    if "data" in filled:
        filled["data"] = {**payload["data"], "id": survey}
    return json.dumps({**filled, **changes}).encode()


def test_the_rules_for_agentsociety_leave_out_the_wall_clock_and_ids_of_surveys_but_not_simulated_time() -> None:
    words = json.dumps({"content": "hello", "propagation_count": 1})
    survey = {"id": "", "title": "mood", "description": "", "pages": [], "response_count": 0}
    chat = {"from": 1, "content": words, "type": "social", "timestamp": 0, "day": 0, "t": 28800.0}
    interview = {"from": "none", "content": "How are you?", "timestamp": 0, "_date_time": 0}
    asked = {"from": "none", "survey_id": "SURVEY", "timestamp": 0, "data": survey, "_date_time": 0}
    match = Match.agentsociety()
    for payload in (chat, interview, asked):
        one, other = society_message(payload, 1, "a1"), society_message(payload, 2, "b2")
        assert not Match().same(one, other) and match.same(one, other)
        for key in payload.keys() - {"timestamp", "_date_time", "survey_id"}:
            assert not match.same(one, society_message(payload, 2, "b2", **{key: "changed"}))
    later = society_message(chat, 2, "b2", t=28801.0)
    assert not match.same(society_message(chat, 1, "a1"), later)
    assert Match.agentsociety(ignore="t").same(society_message(chat, 1, "a1"), later)


def test_the_rules_for_agentscope_compare_the_arguments_of_tools_also_those_called_id() -> None:
    def calling(call: str, order: int) -> bytes:
        block = {"type": "tool_use", "id": call, "name": "buy", "input": {"id": order}}
        return json.dumps({"id": call, "name": "alice", "role": "assistant", "content": [block]}).encode()

    assert Match.agentscope().same(calling("c1", 1), calling("c2", 1))
    assert not Match.agentscope().same(calling("c1", 1), calling("c2", 2))
    more = Match.agentscope(ignore=["content.*.input.id"], tolerance=0.5)
    assert more.same(calling("c1", 1), calling("c2", 2))
    assert more.tolerance == 0.5 and more.own_ignore == ("content.*.input.id",)


def test_a_file_names_the_framework_whose_rules_are_added() -> None:
    assert Match.from_dict({"framework": "agentscope"}) == Match.agentscope()
    given = {"framework": "agentsociety", "ignore": ["day"], "tolerance": 1}
    assert Match.from_dict(given) == Match.agentsociety(ignore=["day"], tolerance=1)
    for name in ("autogen", ["agentscope"]):
        with pytest.raises(StoreError, match=r"unknown framework .* of a match: give agentscope or agentsociety"):
            Match.from_dict({"framework": name})
