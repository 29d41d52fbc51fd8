"""Senders and recipients that are derived from channels and payloads."""

from __future__ import annotations

import json

from messager import Msg
from messager_store.recording.derived_ids import DerivedIds


def test_the_sender_is_read_from_the_payload_and_else_unknown() -> None:
    for payload, sender in [
        ({"from": 3, "content": "x"}, 3),
        ({"from": "3"}, "3"),
        ({"from": None}, None),
        ({"from": True}, None),
        ({"from": {"nested": 1}}, None),
        ({"count": 1}, None),
        ([1, 2], None),
        (Msg("alice", "hi", "user").to_dict(), "alice"),
    ]:
        rules = DerivedIds()
        assert rules.from_message(json.dumps(payload).encode(), None, sender=True)[0] == sender
        assert rules.from_message(b"", payload, sender=True)[0] == sender
        assert rules.from_message(b"", payload, sender=False)[0] is None


def test_a_rule_can_be_a_path() -> None:
    rules = DerivedIds(["header.sender.id"])
    assert rules.from_message(b'{"header": {"sender": {"id": 7}}, "from": 1}', None, sender=True) == (7, None)
    assert rules.from_message(b'{"header": 5, "id": 1}', None, sender=True) == (None, None)


def test_a_payload_that_cannot_be_read_has_no_sender() -> None:
    for payload in [b"", b"\xff", b'"from', b'{"from"', b"[" * 100_000 + b'"from"']:
        assert DerivedIds().from_message(payload, None, sender=True) == (None, None)


def test_the_recipient_is_read_from_the_channel() -> None:
    rules = DerivedIds()
    assert rules.recipient("exps:e:agents:4:agent-chat") == 4
    assert rules.recipient("exps:e:user-payback") is None
    assert rules.recipient("anything") is None


def test_the_id_of_a_msg_is_found_and_hostile_ones_are_not_kept() -> None:
    rules = DerivedIds()
    msg = Msg("a", "b", "user")
    wire = json.dumps(msg.to_dict()).encode()
    assert [
        rules.from_message(wire, object_, sender=asked)[1]
        for object_ in (None, msg, msg.to_dict())
        for asked in (True, False)
    ] == [msg.id] * 6
    for hostile in ("\ud800", "a\x00", "x" * 1000, 5, None):
        wire = json.dumps({**msg.to_dict(), "id": hostile}).encode()
        assert rules.from_message(wire, None, sender=False) == (None, None)
