"""What a live agent says takes the place of the next recorded message, or of one of the same set."""

from __future__ import annotations

from typing import Any

import pytest

from messager_store.lockstep.claims import LOOKAHEAD, Unclaimed
from messager_store.lockstep.schedule import Act, ActKind
from messager_store.log.event import Event
from messager_store.matching.match import Match


def act(number: int, payload: bytes, heard: int = 0, sender: Any = 1, kind: str = "sent") -> Act:
    return Act(ActKind.SEND, Event(number, 1, number + 1, kind, "c", payload, sender), b"c", sender, heard, number)


def found(unclaimed: Unclaimed, payload: bytes, sender: Any = 1) -> tuple[int | None, bool]:
    one, same = unclaimed.find(b"c", sender, payload, Match(ignore=["id"]))
    return None if one is None else one.number, same


def test_messages_with_the_same_heard_are_a_set_and_others_are_in_order() -> None:
    unclaimed = Unclaimed([act(0, b"a"), act(1, b"b"), act(2, b"c", heard=1)])
    assert found(unclaimed, b"b") == (1, True)
    assert found(unclaimed, b"c") == (0, False), "it heard more when it said that"


def test_senders_are_told_apart_by_their_type_unless_one_is_missing() -> None:
    unclaimed = Unclaimed([act(0, b"a", sender="1"), act(1, b"a", sender=1), act(2, b"a", sender=None)])
    assert found(unclaimed, b"a", 1) == (1, True)
    assert found(unclaimed, b"a", 2) == (2, True)
    assert found(unclaimed, b"a", None) == (0, True)


def test_a_message_that_failed_in_the_recording_gives_way_to_the_next_one() -> None:
    unclaimed = Unclaimed([act(0, b"a", kind="failed"), act(1, b"b", heard=1)])
    assert found(unclaimed, b"a") == (1, False)
    unclaimed.remove(unclaimed.find(b"c", 1, b"b", Match())[0] or pytest.fail("not found"))
    assert found(unclaimed, b"b") == (0, False)


def test_equal_bytes_are_found_at_any_distance_and_equal_values_nearby() -> None:
    many = [act(number, b'{"id": %d, "n": %d}' % (number, number)) for number in range(1000)]
    unclaimed = Unclaimed(many)
    near = LOOKAHEAD - 1
    assert found(unclaimed, b'{"id": 0, "n": %d}' % near) == (near, True)
    assert found(unclaimed, b'{"id": 900, "n": 900}') == (900, True)


def test_a_saying_that_is_put_back_is_found_by_its_bytes_too() -> None:
    listed = [act(number, b"%d" % number) for number in range(LOOKAHEAD + 2)]
    unclaimed = Unclaimed(listed)
    unclaimed.remove(listed[-1])
    assert found(unclaimed, listed[-2].event.payload) == (LOOKAHEAD, True)
    unclaimed.put_back(listed[-1])
    assert found(unclaimed, listed[-1].event.payload) == (LOOKAHEAD + 1, True)
