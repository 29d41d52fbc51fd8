"""Text and JSON data of divergences."""

from __future__ import annotations

from typing import Any

import pytest

from messager_store.lockstep.divergence_text import divergence_lines, key_differences, short_lines
from messager_store.lockstep.report import KEPT, CastReport, Divergence
from messager_store.log.event import Event


def event(payload: bytes) -> Event:
    return Event(1, 1, 1, "sent", "c", payload, 3, None, 0, None, None, None, None, None, None, None, None)


def divergence(
    kind: str, *, agent: Any = 3, channel: str = "c", payload: bytes = b'"a"', part: str = "p"
) -> Divergence:
    missing = kind == "missing"
    expected = event(payload) if missing else None
    return Divergence(kind, part, agent, channel, 0 if missing else None, 2, expected, None if missing else payload)


def different(recorded: bytes, live: bytes, path: str) -> Divergence:
    return Divergence("different", "agent 3", 3, "c", 1, 8, event(recorded), live, path, [("q", b'"?"')])


def test_the_json_data_has_every_divergence_that_is_kept() -> None:
    report = CastReport()
    for number in range(KEPT + 5):
        report.add(divergence("unexpected", payload=b"%d" % number))
    data = report.to_dict()
    assert [one["said"] for one in data["divergences"]] == [str(number) for number in range(KEPT)]
    assert data["first"] == data["divergences"][0]


def test_both_payloads_stand_one_above_the_other_and_the_difference_is_marked() -> None:
    one = different(b'{"price": 3}', b'{"price": 4}', "$.price")
    assert divergence_lines(one) == [
        ("title", "different: agent 3, message 2 of 8, on c"),
        ("heard", '  heard     q  "?"'),
        ("recorded", '  recorded  {"price": 3}'),
        ("live", '  live      {"price": 4}'),
        ("mark", "                      ^ $.price"),
    ]
    assert len(short_lines(one)) == 4 and short_lines(one)[-1] == "  differs at $.price"


@pytest.mark.parametrize(
    ("agent", "channel", "says"),
    [
        ("3", "c", [("sender", "'3' (text); the recording has 3 (number)")]),
        (None, "c", [("sender", "none; the recording has 3 (number)")]),
        (3, "d", [("channel", "d; the recording has c")]),
        (3, "c", []),
    ],
)
def test_a_message_with_another_key_names_what_the_recording_has(agent: Any, channel: str, says: Any) -> None:
    missing, unexpected = divergence("missing"), divergence("unexpected", agent=agent, channel=channel)
    everything = [divergence("missing", payload=b'"other"', channel="e"), missing, unexpected]
    assert key_differences(unexpected, everything) == key_differences(missing, everything) == says


def test_messages_of_other_parts_and_of_other_contents_are_not_compared() -> None:
    unexpected = divergence("unexpected", channel="d")
    others = [divergence("missing", part="q"), divergence("missing", payload=b'"b"')]
    assert key_differences(unexpected, others) == []
