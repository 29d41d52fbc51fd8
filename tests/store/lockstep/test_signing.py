"""Announcements are accepted from those who have the key of the run, once, and if they know their reader."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from messager_store.errors import StoreError
from messager_store.lockstep.signing import LONGEST, Signer

KEY = b"k" * 64
CONTENT = {"part": "1", "patterns": ["c"]}


def pair() -> tuple[Signer, Signer]:
    """Return two that know each other."""
    one, other = Signer("e", KEY), Signer("e", KEY)
    for reader, sender in ((one, other), (other, one)):
        told = reader.read(sender.sign({}))
        assert told is not None and told.unknown
    return one, other


def test_an_announcement_is_accepted_once() -> None:
    one, other = pair()
    payload = other.sign(CONTENT)
    told = one.read(payload)
    assert told is not None and (told.unknown, told.content) == (False, CONTENT)
    assert one.read(payload) is None and one.refused == 1


def test_an_earlier_announcement_does_not_undo_a_later_one() -> None:
    one, other = pair()
    earlier, later = other.sign({}), other.sign(CONTENT)
    assert one.read(later) is not None
    assert one.read(earlier) is None and one.refused == 1


def test_own_announcements_come_back_and_are_left_out() -> None:
    one, _ = pair()
    before = one.sign(CONTENT)
    one.begin()
    assert one.read(before) is one.read(one.sign(CONTENT)) is None and one.refused == 0


def test_what_was_said_before_a_reader_subscribed_is_not_believed() -> None:
    """It may be of a sender that has ended, and come from somebody who has kept it."""
    one, other = pair()
    kept = other.sign(CONTENT)
    for reader in (Signer("e", KEY), one):
        reader.begin()  # one may have missed something meanwhile
        told = reader.read(kept)
        assert told is not None and told.content is None


def test_what_is_said_afterwards_is_believed_also_of_one_who_ends_before_it_has_heard_of_anybody() -> None:
    one, other = Signer("e", KEY), Signer("e", KEY)
    told = one.read(other.sign(CONTENT))
    assert told is not None and (told.unknown, told.content) == (True, CONTENT)


def test_one_whose_clock_is_behind_is_believed_once_it_has_heard_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = pair()
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    told = one.read(other.sign(CONTENT))
    assert told is not None and told.content == CONTENT


def forged(**fields: Any) -> bytes:
    """Return an announcement whose fields are not those of a signer, signed with the key."""
    signer = Signer("e", KEY)
    body = json.dumps({"run": "e", "from": "x", "number": 1, "at": 1, "to": [], "content": {}} | fields).encode()
    return signer._seal(body) + body


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0",
        b'{"stopped": "anything"}',
        b"[" * 100_000,
        b"0" * 64 + b' {"run": "e", "from": "x", "number": 1, "to": [], "content": {"stopped": "x"}}',
        Signer("e", b"another key" * 6).sign(CONTENT),
        Signer("another run", KEY).sign(CONTENT),
        Signer("e", KEY).sign(CONTENT)[:-1],
        Signer("e", KEY).sign(CONTENT).replace(b'"c"', b'"d"'),
        Signer("e", KEY).sign(CONTENT).replace(b" ", b"\t", 1),
        Signer("e", KEY)._seal(b"[" * 100_000) + b"[" * 100_000,
        Signer("e", KEY)._seal(b"\xff") + b"\xff",
        forged(number=True),
        forged(number=0),
        forged(number="1"),
        forged(at=None),
        forged(to=None),
        forged(content=[]),
        forged(**{"from": ["x"]}),
        forged(content={"part": "x" * LONGEST}),
    ],
    ids=range(20),
)
def test_anything_else_is_refused_and_counted(payload: bytes) -> None:
    reader = Signer("e", KEY)
    assert reader.read(payload) is None and reader.refused == 1


def test_an_announcement_that_would_be_refused_for_its_length_is_not_made() -> None:
    with pytest.raises(StoreError, match="subscribe to patterns"):
        Signer("e", KEY).sign({"part": "1", "patterns": ["c" * LONGEST]})
