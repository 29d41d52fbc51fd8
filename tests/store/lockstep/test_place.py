"""The place of a live agent: what it may fetch, and whose turn it is, whatever the kind of its acts."""

from __future__ import annotations

import pytest

from messager_store.lockstep.schedule import Act, ActKind, ActState, Part, Place, Reception
from messager_store.log.event import Event

pytestmark = pytest.mark.sqlite


def place(*acts: tuple[str, int], receptions: int = 3) -> Place:
    """Return the place before these acts, each the kind of its event and the number of receptions before it."""
    part = Part("m", [1], True, [])
    part.receptions = [
        Reception(number + 1, b"c", b"", (1, number + 1), (2, number + 1)) for number in range(receptions)
    ]
    for number, (kind, heard) in enumerate(acts):
        part.acts.append(Act(ActKind.SEND, Event(number, 1, number + 1, kind, None, b""), b"c", 1, heard))
    part.number()
    return Place(part, continues=False)


def settle(at: Place, number: int) -> None:
    at.part.acts[number].settle(ActState.DONE)
    at.advance()


def test_acts_bound_what_is_fetched_and_have_their_turn_in_order_whatever_their_kind() -> None:
    at = place(("asked", 0), ("answered", 1), ("sent", 2))
    asked, answered, sent = at.part.acts
    limits = []
    for number in range(3):
        limits.append(at.limit())
        at.handed = limits[-1]
        assert [at.has_turn(act) for act in (asked, answered, sent)][number:] == [True] + [False] * (2 - number)
        settle(at, number)
    assert [*limits, at.limit()] == [0, 1, 2, 3] and at.awaited is None


def test_an_act_has_no_turn_before_what_was_heard_is_handed_over_unless_no_fetch_is_waited_for() -> None:
    at = place(("answered", 2))
    assert not at.has_turn(at.part.acts[0]) and at.has_turn(at.part.acts[0], unbound=True)
    at.handed = 2
    assert at.has_turn(at.part.acts[0])


def test_an_act_has_no_turn_before_an_earlier_one_is_settled() -> None:
    at = place(("asked", 0), ("answered", 0))
    assert not at.has_turn(at.part.acts[1], unbound=True)
    settle(at, 0)
    assert at.has_turn(at.part.acts[1])


def test_what_failed_bounds_nothing_and_what_was_blocked_only_until_a_later_act() -> None:
    at = place(("failed", 0), ("blocked", 1), ("sent", 2))
    assert at.limit() == 1 and at.awaited is at.part.acts[2]
    at.furthest = 2
    assert at.limit() == 2
