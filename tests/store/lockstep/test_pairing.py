"""Arrivals are paired with recorded receptions by payload, by rules, then in the order of their sender."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager_store import Match
from messager_store.lockstep.pairing import LOOKAHEAD, Pairing
from messager_store.lockstep.schedule import Reception, Unreceived
from messager_store.recording.derived_ids import DerivedIds

pytestmark = pytest.mark.sqlite


def sender_of(payload: bytes) -> Any:
    return DerivedIds().from_message(payload, None, sender=True)[0]


def reception(place: int, payload: bytes, channel: bytes = b"c", speaker: Any = None) -> Reception:
    speaker = speaker or sender_of(payload)
    return Reception(place + 1, channel, payload, (1, place + 1), (2, place + 1), speaker)


def said(sender: int, text: str) -> bytes:
    return json.dumps({"from": sender, "text": text}).encode()


def message(payload: bytes, channel: bytes = b"c") -> dict[str, Any]:
    return {"type": "pmessage", "pattern": b"*", "channel": channel, "data": payload}


class Received:
    """Receptions of one Messager, and what arrived so far."""

    def __init__(self, *payloads: bytes, match: Match | None = None, speakers: tuple[int, ...] = ()) -> None:
        self.looked_at = 0
        self.receptions = [
            reception(place, payload, speaker=speakers[place] if speakers else None)
            for place, payload in enumerate(payloads)
        ]
        self.as_recorded: set[bytes] = set()
        """Payloads that cannot differ, as the replay itself publishes them."""
        self.pairing = Pairing(match or Match(), sender_of, self._unheard, self._may_differ, lambda one: None)
        self.pairing.add(self.receptions)

    def _unheard(self, one: Reception) -> bool:
        self.looked_at += 1
        return False

    def _may_differ(self, one: Reception) -> bool:
        return one.payload not in self.as_recorded

    def arrive(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.pairing.arrived(message(payload))

    def complete(self, end: int, begin: int = 0) -> bool:
        return self.pairing.complete(self.receptions, begin, end)

    @property
    def paired(self) -> list[bytes | None]:
        return [one.message and one.message["data"] for one in self.receptions]


def test_an_arrival_that_matches_by_rules_stands_for_the_first_such_reception() -> None:
    received = Received(b'{"n": 1, "id": 1}', b'{"n": 2, "id": 2}', match=Match(ignore=["id"]))
    received.arrive(b'{"n": 2, "id": 9}')
    assert received.paired == [None, b'{"n": 2, "id": 9}'] and not received.pairing.surplus
    assert not received.complete(1)
    received.arrive(b'{"n": 1}')
    assert received.complete(2)


def test_rules_are_tried_on_a_limited_number_of_receptions_and_equal_bytes_on_all() -> None:
    received = Received(*(b"%d" % at for at in range(LOOKAHEAD + 2)))
    received.arrive(b"%d.0" % LOOKAHEAD, b"%d" % (LOOKAHEAD + 1))
    assert received.paired[-2:] == [None, b"%d" % (LOOKAHEAD + 1)]
    received.arrive(b"0.0")
    assert received.paired[0] == b"0.0"


def test_what_the_recorded_messager_never_received_stands_for_no_reception() -> None:
    received = Received(b'{"n": 2, "id": 2}', match=Match(ignore=["id"]))
    others = (b'{"n": 1, "id": 1}', b'{"n": 2, "id": 1}')
    received.pairing.add_unreceived(Unreceived(b"c", payload, (3, at)) for at, payload in enumerate(others))
    received.arrive(b'{"n": 2, "id": 1}', b'{"n": 1, "id": 9}')
    assert received.paired == [None] and not received.complete(1)
    received.arrive(b'{"n": 3}')
    assert received.complete(1) and received.paired == [b'{"n": 3}']
    assert [one["data"] for one in received.pairing.take_kept()] == [b'{"n": 2, "id": 1}', b'{"n": 1, "id": 9}']


def test_what_matches_nothing_is_paired_by_order_once_as_many_arrived_as_are_awaited() -> None:
    received = Received(b"1", b"2", b"3")
    received.arrive(b"x")
    assert not received.complete(2)  # one of the two may still match
    received.arrive(b"2")
    assert received.complete(2) and received.paired == [b"x", b"2", None]
    assert not received.complete(3, begin=2)
    received.arrive(b"y", b"z")
    assert received.complete(3, begin=2) and received.paired[2] == b"y"
    assert [one["data"] for one in received.pairing.surplus] == [b"z"]


def test_what_differs_stands_for_the_next_reception_of_its_sender() -> None:
    received = Received(said(1, "a"), said(2, "b"), said(1, "c"))
    received.arrive(said(2, "B"))
    assert not received.complete(1)  # not in the place of a message of 1, although it is the first that is awaited
    received.arrive(said(1, "A"), said(1, "C"))
    assert received.complete(3) and received.paired == [said(1, "A"), said(2, "B"), said(1, "C")]
    assert received.pairing.order_known


def test_rules_that_leave_out_everything_do_not_change_whose_message_it_is() -> None:
    received = Received(said(1, "a"), said(2, "b"), match=Match(ignore=["**"]))
    received.arrive(said(2, "B"), said(1, "A"))
    assert received.complete(2) and received.paired == [said(1, "A"), said(2, "B")]
    assert received.pairing.order_known


def test_messages_of_a_sender_that_are_those_recorded_later_by_chance_keep_their_order() -> None:
    """For example, a number that is higher by one in every message of this run."""
    received = Received(said(1, "1"), said(1, "2"), said(1, "3"))
    received.arrive(said(1, "2"), said(1, "3"), said(1, "4"))
    assert received.complete(3) and received.paired == [said(1, "2"), said(1, "3"), said(1, "4")]


def test_the_order_is_not_known_if_what_differs_may_be_of_several_senders() -> None:
    received = Received(b"a", b"b", speakers=(1, 2))
    received.arrive(b"a", b"B")
    assert received.complete(2) and received.pairing.order_known  # only one is left for which it may stand
    received = Received(b"a", b"b", speakers=(1, 2))
    received.arrive(b"B", b"A")
    assert received.complete(2) and not received.pairing.order_known
    received = Received(b"a", b"b", b"c", speakers=(1, 2, 1))
    received.as_recorded = {b"b"}
    received.arrive(b"A", b"C", b"b")
    assert received.complete(3) and received.paired == [b"A", b"b", b"C"]
    assert received.pairing.order_known  # the replay itself publishes those of 2


def test_the_order_is_not_known_if_rules_take_messages_of_several_senders_for_the_same() -> None:
    received = Received(b'{"id": 1}', b'{"id": 2}', speakers=(1, 2), match=Match(ignore=["id"]))
    received.arrive(b'{"id": 12}', b'{"id": 11}')
    assert received.complete(2) and not received.pairing.order_known


def test_the_order_is_not_known_if_what_differs_may_not_have_been_received() -> None:
    received = Received(said(1, "a"), said(2, "b"))
    received.pairing.add_unreceived([Unreceived(b"c", said(1, "before"), (3, 1))])
    received.arrive(said(2, "B"))
    assert not received.complete(1) and received.pairing.order_known
    received.arrive(said(1, "A"))
    assert received.complete(1) and not received.pairing.order_known


def test_what_differs_stands_for_no_message_of_another_sender_also_if_its_own_were_not_received() -> None:
    received = Received(said(1, "a"))
    received.pairing.add_unreceived([Unreceived(b"c", said(2, "later"), (3, 1))])
    received.arrive(said(2, "b"))
    assert not received.complete(1)
    received.arrive(said(1, "A"))
    assert received.complete(1) and received.paired == [said(1, "A")] and received.pairing.order_known


def test_a_message_that_is_expected_with_another_payload_stands_for_itself() -> None:
    received = Received(b"a", b"b", speakers=(1, 2))
    received.pairing.add_unreceived([Unreceived(b"c", b"before", (3, 1))])
    for source, payload in (((3, 1), b"x"), ((2, 2), b"y"), ((2, 1), b"b")):
        received.pairing.expect(source, payload)
    received.arrive(b"x", b"y", b"b")
    assert received.complete(2) and received.paired == [b"b", b"y"] and received.pairing.order_known


def test_what_arrives_too_late_stands_for_no_other_reception() -> None:
    received = Received(b"1", b"2", b"3", b"4")
    for one in received.receptions[:2]:
        received.pairing.give_up(one)
        one.handed = True
    received.arrive(b"1", b"2")
    assert not received.complete(4, begin=2)  # their places are past, and they are not paired by order
    received.arrive(b"4", b"3")
    assert received.complete(4, begin=2) and received.paired == [None, None, b"3", b"4"]
    assert [one["data"] for one in received.pairing.take_kept()] == [b"1", b"2"]
    assert received.pairing.take_kept() == []


def test_no_other_message_takes_the_place_of_one_that_is_published_as_it_was_recorded() -> None:
    received = Received(b"1", b"2")
    received.as_recorded = {b"1"}
    received.arrive(b"other", b"2")
    assert not received.complete(2) and received.paired == [None, b"2"]
    received.pairing.give_up(received.receptions[0])
    assert received.complete(2) and received.paired == [None, b"2"]


def test_each_reception_is_looked_at_once_however_often_the_wait_is_checked() -> None:
    payloads = [b"%d" % at for at in range(1000)]
    received = Received(*payloads)
    for payload in payloads:
        assert not received.complete(1000)
        received.arrive(payload)
    assert received.complete(1000) and received.looked_at <= 1000


STEPS = st.lists(
    st.tuples(st.just("arrive"), st.sampled_from([b"1", b"1.0", b"2", b"x", b"y"]), st.sampled_from([b"c", b"d"]))
    | st.tuples(st.just("fetch"), st.integers(0, 8), st.just(b""))
    | st.tuples(st.just("lose"), st.integers(0, 8), st.just(b"")),
    max_size=30,
)


@given(st.lists(st.tuples(st.sampled_from([b"1", b"2", b"3"]), st.sampled_from([b"c", b"d"])), max_size=8), STEPS)
def test_any_order_of_arrivals_fetches_and_losses_completes_exactly_what_has_arrived(
    recorded: list[tuple[bytes, bytes]], steps: list[tuple[str, Any, bytes]]
) -> None:
    """A fetch of receptions up to a limit is complete if, by a plain count, no channel lacks a message."""
    receptions = [reception(place, payload, channel) for place, (payload, channel) in enumerate(recorded)]
    pairing = Pairing(Match(), sender_of, lambda one: False, lambda one: True, lambda one: None)
    pairing.add(receptions)
    handed = arrived = 0
    for what, value, channel in steps:
        if what == "arrive":
            pairing.arrived(message(value, channel))
            arrived += 1
        elif what == "lose" and value < len(receptions) and receptions[value].message is None:
            pairing.give_up(receptions[value])
        elif what == "fetch" and handed <= value <= len(receptions):
            absent = [one for one in receptions[handed:value] if one.message is None and not one.lost]
            enough = all(
                sum(one["channel"] == name for one in pairing.surplus) >= sum(one.channel == name for one in absent)
                for name in (b"c", b"d")
            )
            assert pairing.complete(receptions, handed, value) == enough
            if enough:
                assert all(one.message is not None or one.lost for one in receptions[handed:value])
                for one in receptions[handed:value]:
                    one.handed = True
                handed = value
        paired = sum(one.message is not None for one in receptions)
        kept = len(pairing.never_received) + len(pairing.surplus)
        assert paired + kept == arrived
