"""How many times a listener receives each message: once for each of its patterns that match the channel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from messager import channels
from messager.brokers import BROKER_KINDS, BrokerKind
from messager.record import SUBSCRIBED

from .message_rule import Listener

if TYPE_CHECKING:  # it needs a database
    from ..experiments.records import RecorderRow


def begins_listening(mark: Mapping[str, Any]) -> bool:
    """Return whether this is the meta of the mark with which a Messager logs that it has subscribed."""
    fields = mark.get("fields")
    return mark.get("name") == SUBSCRIBED and not (isinstance(fields, dict) and fields.get("added"))


class Subscriptions:
    """The patterns of the listeners of an experiment, at one moment of the replay order."""

    def __init__(self, recorders: Iterable[RecorderRow], names: Mapping[int, str]) -> None:
        self._names = names
        self._kinds: dict[int, BrokerKind | None] = {}
        """By recorder, the kind of its broker; None if that is not known."""
        self._patterns: dict[Listener, dict[str, None]] = {}
        self._copies: dict[Listener, dict[int | None, int]] = {}
        """Numbers that are known, by listener and channel."""
        for row in recorders:
            self.begin(row)

    def begin(self, row: RecorderRow) -> None:
        """Add the patterns of a recorder."""
        self._kinds[row.id] = row.broker_kind
        if row.patterns:
            self._patterns[row.id, None] = dict.fromkeys(row.patterns)

    def add(self, listener: Listener, fields: Any) -> None:
        """Add the patterns of a mark with which a Messager logs that it has subscribed."""
        patterns = fields.get("patterns") if isinstance(fields, dict) else None
        if isinstance(patterns, list):
            known = self._patterns.get(listener, {}) if fields.get("added") else {}
            own = dict.fromkeys(pattern for pattern in patterns if isinstance(pattern, str))
            self._patterns[listener] = {**known, **own}
            self._copies.pop(listener, None)

    def state(self) -> list[Any]:
        """Return what `restore` needs to go on from here, as JSON holds it."""
        return sorted(([*by, list(patterns)] for by, patterns in self._patterns.items()), key=str)

    def restore(self, state: Iterable[Any]) -> None:
        """Go on from the `state` of other subscriptions."""
        self._patterns = {(recorder, messager): dict.fromkeys(patterns) for recorder, messager, patterns in state}

    def copies_of(self, listener: Listener, channel_id: int | None) -> int:
        """Return how many times a listener receives each message on a channel."""
        patterns = self._patterns.get(listener) or self._patterns.get((listener[0], None))
        if patterns is None or len(patterns) < 2:
            return 1
        known = self._copies.setdefault(listener, {})
        if channel_id not in known:
            kind, channel = self._kinds.get(listener[0]), "" if channel_id is None else self._names[channel_id]
            known[channel_id] = max(sum(_matches(kind, pattern, channel) for pattern in patterns), 1)
        return known[channel_id]


def _matches(kind: BrokerKind | None, pattern: str, channel: str) -> bool:
    wire = channels.encode(channel)
    if kind is not None:
        return kind.matches(pattern, wire)
    return channels.matches(pattern, channel) or any(
        one.is_own_pattern(pattern) and one.matches(pattern, wire) for one in BROKER_KINDS
    )
