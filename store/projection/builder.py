"""Events in replay order, as the rule decides about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from messager.record import is_own

from ..db.codes import REDACTED
from ..log.mark_labels import MarkLabels
from ..log.message_rule import MessageRule
from ..log.names import as_utf_8
from ..log.rule_feed import MARK, RECEIVED, SENT, RuleFeed, feed_meta
from ..log.subscriptions import Subscriptions
from .schema import Decided, Names, pyarrow, table

_NOTHING: Mapping[str, Any] = {}


class Builder:
    """Decides about events, and keeps the columns of those about which it has until `take`."""

    def __init__(
        self, retracted: Set[int], began: Mapping[int, int], names: Names, subscriptions: Subscriptions
    ) -> None:
        """`began` is that of `MessageRule`."""
        self.rule = MessageRule(retracted, began, subscriptions.copies_of)
        self.bytes = 0
        """Payload bytes of the events since `take`."""
        self._retracted = retracted
        self._names = names
        self._subscriptions = subscriptions
        ids = {ordinal: number for number, ordinal in names.ordinals.items()}
        self._feed = RuleFeed(self.rule, subscriptions, ids)
        self._labels = MarkLabels()
        self._held: dict[int, tuple[tuple[Any, ...], str | None]] = {}
        """By id, the rows of the events about which the rule has not decided, with their labels."""
        self._tables: list[Any] = []
        """Rows in Python would be visited by the garbage collector again and again."""

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to go on from here, as JSON holds it."""
        return {
            "rule": self.rule.state(),
            "subscriptions": self._subscriptions.state(),
            "labels": self._labels.state(),
            "held": sorted([number, label] for number, (_, label) in self._held.items()),
        }

    @staticmethod
    def held(state: Mapping[str, Any]) -> list[int]:
        """Return the ids of the events whose rows `restore` needs."""
        return [number for number, _ in state["held"]]

    def restore(self, state: Mapping[str, Any], rows: Iterable[tuple[Any, ...]]) -> None:
        """Go on from the `state` of another builder. This one has seen no event."""
        self.rule.restore(state["rule"])
        self._subscriptions.restore(state["subscriptions"])
        self._labels.restore(state["labels"])
        labels = dict(state["held"])
        for row in rows:
            _, number, *_ = row
            self._held[number] = row, labels[number]

    def add(self, page: Iterable[tuple[Any, ...]]) -> None:
        """Add events, rows as `Row` names them, in replay order."""
        held, retracted, label = self._held, self._retracted, self._labels.last
        feed = self._feed.add
        decided: list[Decided] = []
        for row in page:
            ts, number, kind, channel, _, _, messager, flags, attributes, payload = row
            self.bytes += len(payload)
            meta = _NOTHING if attributes is None else feed_meta(kind, attributes)
            if kind == MARK:
                label = self._label(meta)
            if kind == RECEIVED or (kind == SENT and number not in retracted):
                held[number] = row, label
            else:
                decided.append((row, label, None, False))
            feed(number, ts, kind, channel, messager, payload, flags & REDACTED != 0, meta)
        messages, _, deliveries = self.rule.take()
        decided += [(*held.pop(number), number, False) for number in messages]
        decided += [(*held.pop(number), message, is_copy) for number, message, is_copy in deliveries]
        decided.sort()
        self._tables.append(table(decided, self._names))

    def end(self) -> None:
        """Decide everything. No event follows."""
        self.rule.end()
        self.add(())

    def take_hurried(self) -> int:
        """Return the number of messages that were decided early since the last call."""
        hurried, self.rule.hurried = self.rule.hurried, 0
        return hurried

    def take(self) -> Any:
        """Return the events that were decided since the last call, as a `pyarrow.Table`."""
        tables, self._tables, self.bytes = self._tables or [table((), self._names)], [], 0
        return pyarrow().concat_tables(tables).unify_dictionaries()

    def _label(self, mark: Mapping[str, Any]) -> str | None:
        """Return the label of the phase that a mark begins, or goes on in."""
        name = mark.get("name")
        return self._labels.next(as_utf_8(name)) if isinstance(name, str) and not is_own(name) else self._labels.last
