"""Derive senders and recipients that are missing on the wire, by declared rules.

Received messages carry no ids, and AgentSociety sends surveys, interviews and paybacks without any. The
recipient is derived from the channel, the sender from the payload: its `from` (AgentSociety), the `name` of a `Msg`,
or the path that a recorder was given. Without a match, an id stays None.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from messager import channels
from messager.msg import Msg, is_msg

DEFAULT_SENDER = ("from", "Msg.name")
"""Rules for the sender, applied in this order."""
_MOST_CHANNELS = 100_000


class DerivedIds:
    """Derivation of ids. A rule is `Msg.name`, or a path of keys such as `from` or `header.sender`."""

    def __init__(self, sender: Sequence[str] = DEFAULT_SENDER) -> None:
        self._paths = [(rule, rule.split(".")) for rule in sender]
        self._hints = [b'"name"' if rule == "Msg.name" else json.dumps(path[-1]).encode() for rule, path in self._paths]
        self._recipients: dict[str, int | str | None] = {}

    def recipient(self, channel: str) -> int | str | None:
        """Return the agent that owns the channel, or None."""
        try:
            return self._recipients[channel]
        except KeyError:
            parsed = channels.parse(channel)
            if len(self._recipients) >= _MOST_CHANNELS:
                self._recipients.clear()
            found = self._recipients[channel] = parsed.agent_id if parsed else None
            return found

    def from_message(self, payload: bytes, message: Any, *, sender: bool) -> tuple[Any, str | None]:
        """Return the sender, if `sender` is True, and the id of the `Msg`, as the message has them; else None.

        `message` is the object that the payload was made from, if there is one.
        """
        if message.__class__ is not dict and not isinstance(message, Msg):
            # Parsing costs more than everything else here, so search for the keys first.
            wanted = sender and any(hint in payload for hint in self._hints)
            if not wanted and (b'"role"' not in payload or b'"name"' not in payload):
                return None, None
            try:
                message = json.loads(payload)
            except (ValueError, RecursionError):
                return None, None
        elif not sender and message.__class__ is dict and "role" not in message and "__name__" not in message:
            return None, None
        return self._sender(message) if sender else None, _id_of(message)

    def _sender(self, message: Any) -> Any:
        for rule, path in self._paths:
            found = _name_of(message) if rule == "Msg.name" else _at(message, path)
            if found is not None:
                return found
        return None


def _id_of(message: Any) -> str | None:
    if isinstance(message, Msg):
        return _plain(message.id)
    return _plain(message.get("id")) if is_msg(message) else None


def _name_of(message: Any) -> str | None:
    if isinstance(message, Msg):
        return message.name
    return _plain(message.get("name")) if is_msg(message) else None


def _at(message: Any, path: list[str]) -> Any:
    for key in path:
        if not isinstance(message, dict):
            return None
        message = message.get(key)
    return message if isinstance(message, int | str) and not isinstance(message, bool) else None


def _plain(text: Any) -> str | None:
    """Return the text if every database accepts it, else None."""
    if not isinstance(text, str) or len(text) > 200 or "\x00" in text:
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text
