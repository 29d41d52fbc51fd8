"""The headline of a failure tells the kinds of divergence apart."""

from __future__ import annotations

from dataclasses import replace

from messager_pytest.failure_text import failure
from messager_pytest.recording_paths import Context
from messager_store.lockstep.report import CastReport, Divergence, PartReport
from messager_store.log.event import Event

CONTEXT = Context("shop.jsonl", "pytest test_shop.py", patience=5)
CHANNEL = "exps:shop:agents:7:agent-chat"


def shown(index: int, said: bytes | None = None, **counts: int) -> str:
    """Return the failure of agent 3, which did not say one of three messages, or said it late."""
    part = PartReport("m", "agent 3", [3], True, expected=3, **counts)
    expected = Event(1, 1, 1, "sent", CHANNEL, b'{"a": 1}', 3)
    path = "$.a" if said not in (None, expected.payload) else None
    first = Divergence("missing" if said is None else "late", "agent 3", 3, CHANNEL, index, 3, expected, said)
    report = CastReport([part], [first])
    if path is not None:
        report.add(replace(first, kind="different", path=path))
    return failure(report, {(1, 1): 2}, CONTEXT, why_late=lambda one: f"of {one.index}")


def test_a_late_message_is_told_with_the_patience_and_the_reason() -> None:
    text = shown(0, b'{"a": 1}', matched=3, late=1)
    assert text.startswith("agent 3 said message 1 of 3 late: it was given up after 5 s, because of 0\n")
    assert '  recorded   {"a": 1}\n  live       the same\n' in text
    assert "3 expected: 3 matched, 0 different, 0 missing, 0 unexpected, 1 late" in text


def test_a_late_message_that_also_differs_is_shown_beside_the_recorded_one() -> None:
    assert '  live       {"a": 2}\n                   ^\n  differs at $.a' in shown(
        0, b'{"a": 2}', matched=2, different=1, late=1
    )
