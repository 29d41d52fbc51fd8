"""The rule of messages, against societies of which it is known who said what."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager_store.log import message_rule
from messager_store.log.message_rule import EARLY_NS, WITHIN_NS, Delivery, Listener, MessageRule

S = 1_000_000_000
TAP: Listener = (9, None)
Event = tuple[int, int, str, int, bytes, int]
"""ts, event, kind, channel, payload, recorder."""


@dataclass
class Society:
    """Senders, some of them recorded, and recorded listeners; all clocks differ by at most 4 s."""

    dice: random.Random
    events: list[Event] = field(default_factory=list)
    truth: dict[int, int] = field(default_factory=dict)
    """By event, the number of its message."""
    observed: Counter[tuple[int, bytes]] = field(default_factory=Counter)
    """Number of messages by channel and payload, of those that a recorder saw."""

    def live(self) -> None:
        dice = self.dice
        skew = {recorder: dice.uniform(-2, 2) for recorder in range(12)}
        lag = {recorder: dice.choice([0.01, 0.5, 20.0]) for recorder in range(12)}
        recorded = {sender for sender in range(6) if dice.random() < 0.6}
        listeners = {(dice.randrange(3), recorder) for recorder in range(6, 12) if dice.random() < 0.6}
        now = 1000.0
        for number in range(dice.randrange(1, 60)):
            now += dice.choice([0.0, 0.1, 3.0, 40.0, 90.0])
            sender, channel = dice.randrange(6), dice.randrange(3)
            payload = dice.choice([b"yes", b"no", b"%d" % number])
            seen = False
            if sender in recorded:
                seen = True
                self._note(number, now + skew[sender], "sent", channel, payload, sender)
            for listened, recorder in listeners:
                if listened == channel:
                    seen = True
                    at = now + lag[recorder] + skew[recorder]
                    self._note(number, at, "received", channel, payload, recorder)
            self.observed[channel, payload] += seen

    def _note(self, number: int, at: float, kind: str, channel: int, payload: bytes, recorder: int) -> None:
        event = recorder << 40 | len(self.truth)
        self.events.append((int(at * S), event, kind, channel, payload, recorder))
        self.truth[event] = number

    def decided(self, rule: MessageRule, events: Sequence[Event] | None = None, *, end: bool = True) -> Iterator[None]:
        """Add the events, or some, to a rule, one a step."""
        for ts, event, kind, channel, payload, recorder in sorted(self.events) if events is None else events:
            if kind == "sent":
                rule.sent(event, ts, channel, payload)
            else:
                rule.received(event, ts, channel, payload, (recorder, None))
            yield
        if end:
            rule.end()


@given(st.randoms(use_true_random=False))
def test_each_message_that_a_recorder_saw_is_chosen_once(dice: random.Random) -> None:
    society = Society(dice)
    society.live()
    rule = MessageRule()
    for _ in society.decided(rule):
        pass
    by_event = {event: (ts, kind, channel, payload) for ts, event, kind, channel, payload, _ in society.events}
    chosen = Counter(by_event[event][2:] for event in rule.messages)
    assert chosen == +society.observed, "of equal payloads too"
    assert {event for event, (_, kind, *_) in by_event.items() if kind == "sent"} <= set(rule.messages)
    places = [(by_event[event][0], event) for event in rule.messages]
    assert places == sorted(places), "in replay order"
    assert sorted([*rule.messages, *(one.id for one in rule.deliveries)]) == sorted(by_event), "each event once"
    for one in rule.deliveries:
        assert one.message in set(rule.messages) and not one.is_copy
        if by_event[one.id][3] not in (b"yes", b"no"):
            assert society.truth[one.id] == society.truth[one.message]


@given(st.randoms(use_true_random=False))
def test_what_is_decided_does_not_depend_on_when_it_is_taken(dice: random.Random) -> None:
    society = Society(dice)
    society.live()
    whole, parts = MessageRule(), MessageRule()
    for _ in society.decided(whole):
        pass
    messages: list[int] = []
    for _ in society.decided(parts):
        messages += parts.messages
        parts.messages = []
    assert messages + parts.messages == whole.messages


@given(st.randoms(use_true_random=False))
def test_a_rule_goes_on_from_a_state_and_equal_states_come_again_behind_a_late_event(dice: random.Random) -> None:
    society = Society(dice)
    society.live()
    events = sorted(society.events)
    place = dice.randrange(len(events) + 1)
    whole, begun, restored = MessageRule(), MessageRule(), MessageRule()
    for _ in society.decided(whole, events):
        pass
    for _ in society.decided(begun, events[:place], end=False):
        pass
    state = json.loads(json.dumps(begun.state()))
    restored.restore(state)
    assert restored.state() == state
    for _ in society.decided(restored, events[place:]):
        pass
    assert begun.messages + restored.messages == whole.messages
    assert {*begun.deliveries, *restored.deliveries} == {*whole.deliveries}

    without = MessageRule()
    if events:
        end = events[-1][0]
        late = events.pop(dice.randrange(len(events)))
        behind = [(end + 2 * WITHIN_NS, 1 << 60, "sent", 99, b"behind", 3)]
        states = []
        for known in ([*events, late], events):
            rule = without if known is events else MessageRule()
            for _ in society.decided(rule, sorted([*known, *behind]), end=False):
                pass
            states.append({key: value for key, value in rule.state().items() if key != "channels"})
        assert states[0] == states[1], "two minutes later nothing of it is left, but the last message of its channel"


Step = tuple[float, str, bytes, Listener]
A, B = (1, None), (2, 7)


def s(at: float, payload: bytes = b"x") -> Step:
    return at, "sent", payload, TAP


def r(at: float, by: Listener = A, payload: bytes = b"x", kind: str = "received") -> Step:
    return at, kind, payload, by


CASES: dict[str, tuple[list[Step], list[int]]] = {
    "a sending and its receptions": ([s(1), r(1.1), r(1.2, B)], [0]),
    "nobody recorded the sender": ([r(1), r(1.2, B)], [0]),
    "a recorded sender and one that nobody recorded": ([s(1, b"a"), r(1.1, A, b"a"), r(2, A, b"b")], [0, 2]),
    "the same words of both": ([s(1), r(1.1), r(1.2)], [0, 2]),
    "a reception before its sending": ([r(1), r(1.1, B), s(3)], [2]),
    "a reception too early for the sending": ([r(1), s(1 + 5.1)], [0, 1]),
    "a reception too late for the sending": ([s(1), r(61.1)], [0, 1]),
    "one that came before the last minute, for each listener": ([r(1), r(61.1, B)], [0, 1]),
    "a retained copy": ([s(1), r(500, kind="retained")], [0]),
    "two retained copies of what nobody recorded": ([r(1, kind="retained"), r(90, B, kind="retained")], [0]),
    "a retained message that is another one": ([s(1, b"a"), r(2, kind="retained")], [0, 1]),
    "a redacted sending, and a reception that was drained later": ([(1, "hidden", b"", TAP), r(2)], [0]),
    "a redacted sending behind its reception": ([r(1), (2, "hidden", b"", TAP)], [1]),
    "a redacted sending a minute before": ([(1, "hidden", b"", TAP), r(61.1)], [0, 1]),
    "redacted sending and reception": ([(1, "hidden", b"", TAP), (1.1, "hidden reception", b"", A)], [0]),
    "a sending before a gap of the listener": ([s(1), (9, "gap", b"", A), r(10)], [0, 2]),
    "a sending just before the listener began": ([s(1), (2, "gap", b"", A), r(3)], [0]),
    "equal ones before and after a listener subscribed": (
        [s(1), s(2), (2.5, "subscribed", b"", B), s(3), r(3.1, B), r(4, B)],
        [0, 1, 3, 5],
    ),
    "copies by two patterns": ([s(1), r(1.1, (5, None)), r(1.1, (5, None)), r(1.2, (5, None))], [0, 3]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_message_is_a_sending_or_the_first_reception_of_its_kind(name: str) -> None:
    steps, expected = CASES[name]
    rule = MessageRule(copies_of=lambda listener, channel: 2 if listener == (5, None) else 1)
    for event, (at, kind, payload, by) in enumerate(steps):
        ts = int(at * S)
        match kind:
            case "sent" | "hidden":
                rule.sent(event, ts, 1, payload, redacted=kind == "hidden")
            case "gap":
                rule.gap(by[0], ts)
            case "subscribed":
                rule.subscribed(by, ts)
            case _:
                hidden, retained = kind == "hidden reception", kind == "retained"
                rule.received(event, ts, 1, payload, by, retained=retained, redacted=hidden)
    rule.end()
    assert rule.messages == expected
    others = {at for at, step in enumerate(steps) if step[1] not in ("gap", "subscribed")} - set(expected)
    assert {one.id for one in rule.deliveries} == others


def test_a_retracted_sending_is_no_message_and_its_receptions_stand_for_it() -> None:
    rule = MessageRule(retracted={1})
    rule.sent(1, 1 * S, 1, b"x")
    rule.received(2, 2 * S, 1, b"x", A)
    rule.received(3, 2 * S, 1, b"x", B)
    rule.end()
    assert (rule.messages, rule.deliveries) == ([2], [Delivery(3, 2, False)])


def test_too_many_undecided_messages_are_decided_early_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_rule, "MOST_UNDECIDED", 10)
    rule = MessageRule()
    rule.received(0, 0, 1, b"0", A)
    rule.received(50, 0, 1, b"0", B)
    for event in range(1, 15):
        rule.received(event, event, 1, b"%d" % event, A)
    assert rule.deliveries == [Delivery(50, 0, False)]
    assert (rule.messages, rule.hurried) == ([0, 1, 2, 3, 4], 5)
    for event in range(15):
        rule.sent(100 + event, 15 + event, 1, b"%d" % event)
    rule.end()
    assert rule.messages == [0, 1, 2, 3, 4, *range(100, 115)], "what was decided stays"


def test_nothing_is_kept_of_what_is_older_than_a_minute() -> None:
    rule = MessageRule()
    held: dict[str, int] = defaultdict(int)
    for event in range(2000):
        ts = event * WITHIN_NS // 100
        rule.sent(event, ts, 1, b"%d" % event)
        rule.received(1 << 40 | event, ts + EARLY_NS // 10, 1, b"%d" % event, A)
        rule.received(2 << 40 | event, ts + EARLY_NS // 10, 1, b"same", B)
        held["contents"] = max(held["contents"], len(rule._channels[1].same))
        decided = rule.take()
        held["decided"] = max(held["decided"], len(decided.messages + decided.heard + decided.deliveries))
    assert held["contents"] <= 103 and held["decided"] <= 10
