"""JSON paths erase their values and nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager_store import NewEvent, StoreError
from messager_store.sharing.json_paths import PathRedactor, redactor

B = "[redacted]"
NESTED = json.dumps({"content": "hi", "day": 1})


def test_what_stands_at_a_path_is_replaced() -> None:
    for path, data, expected in [
        ("content", {"content": "s", "a": 1}, {"content": B, "a": 1}),
        ("a.b", {"a": {"b": [1], "c": 2}}, {"a": {"b": B, "c": 2}}),
        ("items.*.name", {"items": [{"name": "s"}, {}, 5]}, {"items": [{"name": B}, {}, 5]}),
        ("items.1", {"items": [1, 2]}, {"items": [1, B]}),
        ("items.7", {"items": {"7": "s"}}, {"items": {"7": B}}),
        ("*", {"a": 1, "b": 2}, {"a": B, "b": B}),
        ("*", [1, 2], [B, B]),
        (r"a\.b", {"a.b": "s"}, {"a.b": B}),
        ("content.content", {"content": NESTED}, {"content": json.dumps({"content": B, "day": 1})}),
        ("content", {"content": NESTED}, {"content": B}),
        ("content", {"content": None}, {"content": B}),
        ("**.name", {"name": "s", "a": [{"name": "s", "b": 1}]}, {"name": B, "a": [{"name": B, "b": 1}]}),
        ("**.name", {"name": {"name": "s"}}, {"name": B}),
        ("a.**.name", {"name": 1, "a": {"b": {"name": "s"}}}, {"name": 1, "a": {"b": {"name": B}}}),
        ("**.day", {"content": NESTED}, {"content": json.dumps({"content": "hi", "day": B})}),
        ("a.**", {"a": [1], "b": 2}, {"a": B, "b": 2}),
        ("**", {"a": 1}, B),
        ("$", {"a": 1}, B),
        ("$.content", {"content": "s", "a": 1}, {"content": B, "a": 1}),
        ('$.a[1]["b c"]', {"a": [1, {"b c": "s"}]}, {"a": [1, {"b c": B}]}),
        ('$["d.e"]', {"d.e": "s", "d": {"e": 1}}, {"d.e": B, "d": {"e": 1}}),
        ('["*"]', {"*": "s", "a": 1}, {"*": B, "a": 1}),
        ("[0]", ["s", 1], [B, 1]),
        ("items[*].name", {"items": [{"name": "s"}, 5]}, {"items": [{"name": B}, 5]}),
    ]:
        clean = PathRedactor(path)
        assert json.loads(clean(json.dumps(data).encode())) == expected
        assert (clean.changed, clean.unreadable) == (1, 0)


def test_a_payload_without_the_path_stays_byte_for_byte() -> None:
    for payload in [
        b"",
        b"{}",
        b'{ "a" :\t1.50}',
        b'"text"',
        b"5",
        b'["content"]',
        b'{"b": {"content": "\\u0068"}}',
        b'{"content2": 1}',
        b'{"a": [{"b": "{\\"c\\":1}"}]}',
    ]:
        clean = PathRedactor("content", "a.b.*", "x.1", "**.nothing", 'a["0"]', "b[0]")
        assert clean(payload) is payload and clean.changed == 0


def test_what_is_no_json_is_replaced_whole_and_counted() -> None:
    for payload in [b"plain", b"\xff\x00", b'{"content": "s"', b"[" * 100_000, b'{"a": "\xff"}']:
        clean = PathRedactor("content")
        assert clean(payload) == b'"[redacted]"'
        assert (clean.changed, clean.unreadable) == (1, 1)


def test_a_value_that_hides_behind_its_own_key_goes_too() -> None:
    assert b"secret" not in PathRedactor("a.b")(b'{"a": {"b": "secret"}, "a": 1}')
    assert b"secret" not in PathRedactor("a")(b'{"a": "secret", "a": 1}')


def test_a_path_that_is_none_is_refused() -> None:
    for path in ["", ".", "a.", ".a", "a..b", "$.", "$..a", "a[b]", 'a["b', "a[0"]:
        with pytest.raises(StoreError, match="is not a path"):
            PathRedactor(path)
        with pytest.raises(StoreError, match="at least one path"):
            PathRedactor()


@given(st.binary(max_size=50), st.sampled_from(["content", "a.b", "*"]))
def test_any_payload_is_taken(payload: bytes, path: str) -> None:
    assert isinstance(PathRedactor(path)(payload), bytes)


def test_an_event_loses_what_was_worked_out_from_what_is_taken_out() -> None:
    payload = json.dumps({"from": "Alice", "content": "s"}).encode()
    entry = NewEvent("sent", 1, "c", payload, from_id="Alice", to_id=7, flags=3)
    assert redactor("content")(entry) == entry._replace(payload=b'{"from": "Alice", "content": "[redacted]"}')
    without = redactor("from")(entry)
    assert (without.from_id, without.to_id, without.flags) == (None, 7, 2)
    said = redactor("from")(entry._replace(flags=0))
    assert said.from_id == "Alice"  # somebody named it: it is no copy of the payload's


def test_a_msg_loses_its_id_where_that_is_taken_out() -> None:
    msg = {"id": "m1", "name": "Alice", "content": "s", "role": "user", "url": None, "metadata": None, "timestamp": "t"}
    entry = NewEvent("sent", 1, "c", json.dumps(msg).encode(), from_id="Alice", flags=1, msg_id="m1")
    assert redactor("content")(entry)[4:8] == entry[4:8]
    assert redactor("id")(entry).msg_id is None
    assert redactor("name")(entry).from_id is None


def test_the_fields_of_a_mark_are_looked_into_and_other_events_stay_the_same_object() -> None:
    mark = NewEvent("mark", 1, None, b"", meta={"name": "tick", "fields": {"content": "s", "n": 1}})
    assert redactor("content")(mark).meta == {"name": "tick", "fields": {"content": B, "n": 1}}
    assert redactor("name")(mark) is mark
    gap = NewEvent("gap", 1, None, b"", meta={"reason": "x"})
    assert redactor("reason")(gap) is gap


def test_a_key_that_is_there_twice_in_a_nested_string_hides_nothing() -> None:
    for path in ("content.a.ssn", "content.a.b.ssn"):
        clean = PathRedactor(path)
        assert b"123-45" not in clean(
            json.dumps({"content": '{"a":{"ssn":"123-45","b":{"ssn":"123-45"}},"a":5}'}).encode()
        )
        assert clean.changed == 1


@pytest.mark.parametrize(("kind", "field"), [("blocked", "reason"), ("failed", "error")])
def test_what_an_interceptor_said_about_a_redacted_message_goes_with_it(kind: str, field: str) -> None:
    meta = {"interceptor": "Guard", field: "it says s"}
    clean = redactor("content")
    entry = NewEvent(kind, 1, "c", b'{"content": "s"}', meta=meta)
    assert clean(entry).meta == {"interceptor": "Guard", field: B}
    assert clean(entry._replace(payload=b'{"other": "s"}')).meta == meta
