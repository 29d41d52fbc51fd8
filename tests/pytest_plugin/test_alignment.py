"""What is accepted is aligned with the recording, so that as few lines as possible change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from messager_pytest.alignment import Pair, Saying, aligned
from messager_store.log.event import Event


def pairs(recorded: str, live: str, matched: frozenset[int] = frozenset()) -> list[Pair]:
    """Return messages of one letter each, paired in order."""
    found = []
    for at in range(max(len(recorded), len(live))):
        event = Event(at + 1, 1, at + 1, "sent", "a", recorded[at].encode(), 3) if at < len(recorded) else None
        saying = Saying("sent", "a", live[at].encode(), 3, None, None, None) if at < len(live) else None
        found.append(Pair(event, saying, at in matched))
    return found


def shown(found: list[Pair]) -> list[str]:
    """Return `a=` for a message that stays, `ab` for a changed one, `a-` for a dropped one, `-a` for a new one."""
    return [_letter(pair.expected) + ("=" if pair.matched else _letter(pair.live)) for pair in found]


def _letter(message: Event | Saying | None) -> str:
    return "-" if message is None else message.payload.decode()


def same(one: bytes, other: bytes) -> bool:
    return one == other


def test_a_message_that_is_left_out_or_new_moves_no_other() -> None:
    assert shown(aligned(pairs("abcd", "acd"), same)) == ["a=", "b-", "c=", "d="]
    assert shown(aligned(pairs("acd", "abcd"), same)) == ["a=", "-b", "c=", "d="]
    assert shown(aligned(pairs("abcd", "axcd"), same)) == ["a=", "bx", "c=", "d="]


def test_what_the_replay_judged_equal_stays() -> None:
    assert shown(aligned(pairs("abc", "xyz", frozenset({1})), same)) == ["ax", "b=", "cz"]


@given(st.text("abc", max_size=8), st.text("abc", max_size=8))
def test_every_message_is_paired_once_and_in_order(recorded: str, live: str) -> None:
    found = aligned(pairs(recorded, live), same)
    assert "".join(pair.expected.payload.decode() for pair in found if pair.expected) == recorded
    assert "".join(pair.live.payload.decode() for pair in found if pair.live) == live
    assert all(
        pair.expected and pair.live and pair.expected.payload == pair.live.payload for pair in found if pair.matched
    )
