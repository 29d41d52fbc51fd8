"""Log lists of AgentSociety's Messager: what `get_log_list()` returned, as JSON (a list, or an entry a line).

Versions 1.1 to 1.4 write `channel, payload, from_id, to_id, start_time, consumption, sent`; version 1.0 (MQTT) writes
`topic, payload, from_uuid, to_uuid, start_time, consumption`, without a field for refused messages. `start_time` is
seconds since 1970, UTC, taken before the interceptor was asked; `consumption` is seconds.

A missing recipient is derived from the channel, a missing sender from the payload, as a recorder does. The payload is
the text that the Messager published for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ...db.codes import FROM_DERIVED, TO_DERIVED
from ...log.event import NewEvent
from ...recording.derived_ids import DerivedIds
from ..fields import InvalidEntry, text
from .json_values import JsonFile
from .source import Choices, Told, as_sent, checked
from .times import seconds


class Source(JsonFile):
    """The messages of a log list."""

    format = "agentsociety"

    def __init__(self, path: str | os.PathLike[str], choices: Choices) -> None:
        super().__init__(path)
        self.told = Told()
        self._derived = DerivedIds()

    def events(self) -> Iterator[NewEvent]:
        """Yield the entries in the order of the file. A refused message (`sent` is false) is a `blocked` event."""
        for value in self.values():
            if not is_entry(value):
                raise InvalidEntry("no entry of a log list: it needs channel (or topic), payload and start_time")
            yield self._event(value)

    def _event(self, data: dict[str, Any]) -> NewEvent:
        of_redis = "channel" in data
        channel = text(data["channel" if of_redis else "topic"], "channel" if of_redis else "topic")
        from_id, to_id = (data.get(f"{side}_{'id' if of_redis else 'uuid'}") for side in ("from", "to"))
        sent = data.get("sent", True)
        if not isinstance(sent, bool):
            raise InvalidEntry("sent is not true or false")
        payload, flags = as_sent(data["payload"]), 0
        sender, msg_id = self._derived.from_message(payload, data["payload"], sender=from_id is None)
        if from_id is None and sender is not None:
            from_id, flags = sender, flags | FROM_DERIVED
        if to_id is None and (recipient := self._derived.recipient(channel)) is not None:
            to_id, flags = recipient, flags | TO_DERIVED
        spent = data.get("consumption")
        return checked(
            NewEvent(
                "sent" if sent else "blocked",
                seconds(data["start_time"], "start_time"),
                channel,
                payload,
                from_id,
                to_id,
                flags,
                msg_id=msg_id,
                duration_ns=None if spent is None else max(0, seconds(spent, "consumption")),
            )
        )


def is_entry(data: object) -> bool:
    """Return whether a value is an entry of a log list."""
    return (
        isinstance(data, dict) and {"payload", "start_time"} <= data.keys() and ("channel" in data or "topic" in data)
    )
