"""Matching is reflexive and symmetric; what is ignored makes no difference, and anything else does."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from messager_store import Match
from messager_store.json_path import general_path
from messager_store.sharing.json_paths import PathRedactor

KEYS = st.text(alphabet="ab.*\\0é", min_size=1, max_size=3)
ANY_KEYS = st.text(max_size=3) | st.text(alphabet='a.*$\\"[]0\x00\x85\ud800', max_size=4)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


def nested(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=3) | st.dictionaries(KEYS, values, max_size=3) | values.map(json.dumps)


VALUES = st.recursive(SCALARS, nested, max_leaves=12)
PAYLOADS = VALUES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20)
PATHS = st.lists(
    st.lists(st.sampled_from(["a", "b", "0", "1", "*", "**", r"a\.b"]), min_size=1, max_size=4).map(".".join),
    max_size=3,
)
MATCHES = st.builds(
    Match, ignore=PATHS, shape=PATHS, tolerance=st.floats(min_value=0, allow_nan=False, allow_infinity=False)
) | st.just(Match(bytes_only=True))


@given(MATCHES, PAYLOADS, PAYLOADS)
def test_any_two_payloads_are_compared_the_same_in_both_directions(match: Match, a: bytes, b: bytes) -> None:
    assert match.same(a, a) and match.same(b, b)
    assert match.same(a, b) == match.same(b, a)
    assert (match.difference(a, b) is None) == match.same(a, b)


@given(MATCHES, VALUES)
def test_a_payload_that_is_only_written_otherwise_is_the_same(match: Match, value: Any) -> None:
    a = json.dumps(value).encode()
    b = json.dumps(backwards(value), indent=1, ensure_ascii=False).encode("utf-8", "replace")
    assert match.same(a, b) or match.bytes_only or "\\ud" in a.decode()


def backwards(value: Any) -> Any:
    """Return the same value with its keys in another order."""
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(value)}
    return [backwards(item) for item in value] if isinstance(value, list) else value


def places(value: Any) -> list[tuple[str | int, ...]]:
    """Return the keys and indices to every value below the root."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in pairs for place in ((key,), *((key, *rest) for rest in places(inner)))]


def replaced(value: Any, place: tuple[str | int, ...], new: Any) -> Any:
    changed = copy.deepcopy(value)
    target = changed
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = new
    return changed


def path_of(place: tuple[str | int, ...]) -> str:
    return ".".join(str(key).replace(".", r"\.") for key in place)


@given(VALUES, VALUES, st.data())
def test_ignoring_a_place_ignores_any_change_there_and_none_elsewhere(
    value: Any, new: Any, data: st.DataObject
) -> None:
    known = [place for place in places(value) if not any("*" in str(key) or "\\" in str(key) for key in place)]
    if not known:
        return
    ignored, changed = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
    a, b = json.dumps(value).encode(), json.dumps(replaced(value, changed, new)).encode()
    within = changed[: len(ignored)] == ignored
    match = Match(ignore=[path_of(ignored)])
    if within:
        assert match.same(a, b)
        assert Match(ignore=["**." + path_of(ignored[-1:])]).same(a, b)
    elif ignored[: len(changed)] != changed:  # neither above nor below it
        assert match.same(a, b) == Match().same(a, b)


@given(VALUES, st.data())
def test_a_change_outside_is_seen_and_its_place_is_named(value: Any, data: st.DataObject) -> None:
    known = [place for place in places(value) if not any("*" in str(key) or "\\" in str(key) for key in place)]
    if not known:
        return
    ignored, changed = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
    if changed[: len(ignored)] == ignored:
        return
    a, b = json.dumps(value).encode(), json.dumps(replaced(value, changed, "surely new")).encode()
    found = Match(ignore=[path_of(ignored)]).difference(a, b)
    expected = "$" + "".join(
        f"[{key}]"
        if isinstance(key, int)
        else f".{key}"
        if key.isidentifier()
        else f"[{json.dumps(key, ensure_ascii=False)}]"
        for key in changed
    )
    assert found == expected


@given(VALUES, VALUES, st.data())
def test_the_rule_that_is_suggested_for_a_difference_covers_it(value: Any, new: Any, data: st.DataObject) -> None:
    if not (known := places(value)):
        return
    changed = replaced(value, data.draw(st.sampled_from(known)), new)
    for one, other in ((value, changed), ([value], [changed])):
        a, b = json.dumps(one).encode(), json.dumps(other).encode()
        paths = [found.path for found in Match().differences(a, b, 1000) or ()]
        assert paths == [] or Match(ignore=[general_path(path) for path in paths]).same(a, b)


@given(VALUES, PATHS.filter(bool))
def test_redaction_and_comparison_mean_the_same_by_a_path(value: Any, paths: list[str]) -> None:
    """What is blanked at a path is what is ignored at it."""
    payload = json.dumps(value).encode()
    assert Match(ignore=paths).same(payload, PathRedactor(*paths)(payload))


@given(st.lists(ANY_KEYS | st.integers(0, 3), max_size=4))
def test_the_path_that_a_difference_names_is_accepted_as_a_path(place: list[str | int]) -> None:
    def holding(inner: Any) -> Any:
        for step in reversed(place):
            inner = [0] * step + [inner] if isinstance(step, int) else {step: inner}
        return inner

    a, b = (json.dumps(holding(value)).encode() for value in (1, 2))
    path = Match().difference(a, b)
    assert path is not None and path.isprintable()
    assert Match(ignore=path).same(a, b) and Match(shape=path).same(a, b)
    assert PathRedactor(path)(a) == json.dumps(holding("[redacted]")).encode()
