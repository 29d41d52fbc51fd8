"""Messages of AgentScope: dicts of `Msg` as versions 0.0 to 2.x write them.

Read are a list or a sequence of dicts (a memory's export, `logging.chat`), and any JSON that holds such dicts: the
state of a memory, an agent or a session. A message that several memories of one such value hold is imported once.

A `Msg` has a sender (`name`) but no recipient and no channel: all get one channel. Its time, `timestamp` or
`created_at`, is local time without a zone, in whole seconds (0.x) or milliseconds (1.x).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from messager.msg import ROLES

from ...log.event import NewEvent
from ..fields import InvalidEntry, text_of
from .json_values import JsonFile
from .source import Choices, Told, as_sent, checked
from .times import Clock

CHANNEL = "agentscope"


class Source(JsonFile):
    """The messages of a file of AgentScope."""

    format = "agentscope"

    def __init__(self, path: str | os.PathLike[str], choices: Choices) -> None:
        super().__init__(path)
        self.told = Told()
        self._channel = choices.channel or CHANNEL
        self.told.choose("channel", choices.channel, CHANNEL)
        self._clock = Clock(choices.timezone, self.told)

    def events(self) -> Iterator[NewEvent]:
        """Yield the messages in the order of the file."""
        for value in self.values():
            if is_message(value):
                yield self._event(value)
            else:
                yield from self._inside(value)

    def _inside(self, value: Any) -> Iterator[NewEvent]:
        """Yield the messages inside a value, each id once."""
        seen: set[str] = set()
        found = False
        for data in _messages(value):
            found = True
            if isinstance(name := data.get("id"), str):
                if name in seen:
                    self.told.left_out["copies of messages in other memories"] += 1
                    continue
                seen.add(name)
            yield self._event(data)
        if not found:
            raise InvalidEntry("no message of AgentScope: it needs name, content and role")

    def _event(self, data: dict[str, Any]) -> NewEvent:
        when = "timestamp" if data.get("timestamp") is not None else "created_at"
        if data.get(when) is None:
            raise InvalidEntry("the message has no timestamp and no created_at")
        ts = self._clock.iso(data[when], when)
        return checked(
            NewEvent("sent", ts, self._channel, as_sent(data), text_of(data, "name"), msg_id=text_of(data, "id"))
        )


def is_message(data: object) -> bool:
    """Return whether a value is a `Msg` of AgentScope."""
    if not isinstance(data, dict) or not {"name", "content", "role"} <= data.keys():
        return False
    return isinstance(data["name"], str) and data["role"] in ROLES


def _messages(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the messages inside a value in its order, but none inside a message."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if is_message(inner):
            yield inner
        elif isinstance(inner, dict):
            waiting.extend(reversed(inner.values()))
        elif isinstance(inner, list):
            waiting.extend(reversed(inner))
