"""The decoder gives the same text for a message however its sender wrapped it, and one that every database holds."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from messager_store.log.event import Event
from messager_store.log.gap import gap_of
from messager_store.log.text import normalised, readable
from tests.support.meta import HOSTILE_GAPS


def nested(text: str, levels: int) -> bytes:
    """Return JSON in JSON: at each level an object with the key `content`, with escapes."""
    for _ in range(levels):
        text = json.dumps({"content": text})
    return text.encode()


def test_a_payload_is_shown_as_its_content() -> None:
    for payload, text in [
        (b'{"content": "{\\"content\\": \\"h\\\\u00e9\\"}"}', "h\u00e9"),
        (b'{"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}', "a\nb"),
        (b'{"text": "t"}', "t"),
        ('{"message": "Gr\u00fc\u00dfe"}'.encode(), "Gr\u00fc\u00dfe"),
        (b'{"message": "Gr\\u00fc\\u00dfe"}', "Gr\u00fc\u00dfe"),
        (b'{"message": "m", "text": "t", "content": "c"}', "c"),
        (b'{"message": "m", "text": "t"}', "t"),
        (b'{"content": null, "text": 5, "message": "m"}', "m"),
        (b'{"content": [], "message": "m"}', "m"),
        (b'{"message": {"message": "inner"}}', '{"message": {"message": "inner"}}'),
        (b'{"other": 1}', '{"other": 1}'),
        (b'{"other": "Gr\\u00fc\\u00dfe"}', '{"other": "Gr\u00fc\u00dfe"}'),
        (b'["Gr\\u00fc\\u00dfe"]', '["Gr\u00fc\u00dfe"]'),
        (b'{"n":1e400,"m":-0,"big":9007199254740993, "x":1.50}', '{"n":1e400,"m":-0,"big":9007199254740993, "x":1.50}'),
        (b'{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        (b'{"text": "first", "text": "last"}', '{"text": "first", "text": "last"}'),
        (b'{"content": "{\\"n\\":1e400}"}', '{"n":1e400}'),
        (
            b'["\\u0041\\/\\ud83d\\ude00", "\\u0022\\\\u0041\\n\\u0007"]',
            '["A/\U0001f600", "\\u0022\\\\u0041\\n\\u0007"]',
        ),
        (b'"word"', "word"),
        (b'{"content": "\\"word\\""}', '"word"'),  # a quotation, not JSON in JSON
        (b" 1.50", " 1.50"),
        (b"plain", "plain"),
        (b"", ""),
        (b"[" * 100_000, "[" * 100_000),
        (b'{"a":' + b"[" * 900 + b"]" * 900 + b"}", '{"a":' + "[" * 900 + "]" * 900 + "}"),
        (b"\xff", "\\xff"),
    ]:
        assert readable(payload) == text


def test_three_levels_of_json_are_decoded() -> None:
    for levels, left in [(1, 0), (3, 0), (4, 1)]:
        assert readable(nested("Gr\u00fc\u00dfe", levels)) == nested("Gr\u00fc\u00dfe", left).decode()


def test_characters_that_no_database_holds_are_replaced() -> None:
    for payload, text in [
        (b"nul \x00", "nul \u2400"),
        (b'"nul \\u0000"', "nul \u2400"),
        (b'{"content": "half \\ud800"}', "half \ufffd"),
        (b'{"other": "half \\udfff"}', '{"other": "half \ufffd"}'),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
    ]:
        assert readable(payload) == text


def test_the_text_of_marks_and_gaps_is_made_of_their_meta() -> None:
    def event(kind: str, meta: dict[str, Any], flags: int = 0) -> Event:
        return Event(1, 1, 1, kind, None, b"", flags=flags, meta=meta)

    assert event("mark", {"name": "tick\0", "fields": {"n": "\ud800"}}).text == "tick\u2400 n=\ufffd"
    lost = {"reason": "reconnected", "since": 0, "until": 1_500_000_000, "count": 3}
    assert event("gap", lost).text == "1.500 s, 3 lost: reconnected"
    assert event("gap", {}, flags=8).text == "unknown number lost:  [redacted]"


def test_values_that_no_recorder_writes_into_a_gap_are_unknown() -> None:
    for meta in HOSTILE_GAPS:
        gap = gap_of(meta)
        assert (gap.recorder, gap.count, gap.reason) == (None, None, "")
        assert gap.until in (None, 5, 2**63 - 1) and gap.since in (None, 0, -(2**63))
        since, until = gap.within(7)
        assert -(2**63) <= since <= until < 2**63
        assert Event(7, 1, 1, "gap", None, b"", meta=meta).text.endswith("unknown number lost: ")


def test_a_gap_does_not_end_before_it_begins() -> None:
    assert gap_of({"since": 9, "until": 3}).within(5) == (9, 9)
    assert Event(7, 1, 1, "gap", None, b"", meta={"since": 9, "until": 3}).text == "0.000 s, unknown number lost: "
    assert gap_of({"since": 9}).within(5) == (9, 9)
    assert gap_of({"until": 9}).within(5) == (5, 9)


@given(st.one_of(st.binary(), st.recursive(st.text(), lambda inner: inner.map(json.dumps)).map(str.encode)))
def test_every_text_can_be_stored(payload: bytes) -> None:
    text = readable(payload)
    assert "\0" not in text
    assert text.encode().decode() == text
    assert "\0" not in normalised(text)


def test_a_search_does_not_depend_on_case_or_composition() -> None:
    for typed, stored in [("grosse", "GRO\u00dfE"), ("CAF\u00c9", "cafe\u0301"), ("abc", "\uff21\uff22\uff23")]:
        assert normalised(typed) == normalised(stored)
