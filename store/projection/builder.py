"""Events in replay order, as the rule decides about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from messager.record import is_own

from ..db.codes import REDACTED, SEQ_BITS
from ..log.mark_labels import MarkLabels
from ..log.message_rule import MessageRule
from ..log.names import as_utf_8
from ..log.rule_feed import MARK, RECEIVED, SENT, RuleFeed, feed_meta
from ..log.subscriptions import Subscriptions
from .columns import Columns, made
from .schema import Names, pyarrow, read, table

_NOTHING: Mapping[str, Any] = {}


class Builder:
    """Decides about events, and keeps the columns of those about which it has until `take`."""

    def __init__(
        self,
        retracted: Set[int],
        began: Mapping[int, int],
        names: Names,
        subscriptions: Subscriptions,
        columns: Columns,
    ) -> None:
        """`began` is that of `MessageRule`."""
        self.rule = MessageRule(retracted, began, subscriptions.copies_of)
        self.bytes = 0
        """Payload bytes of the events since `take`."""
        self._retracted = retracted
        self._names = names
        self._columns = columns
        self._subscriptions = subscriptions
        ids = {ordinal: number for number, ordinal in names.ordinals.items()}
        self._feed = RuleFeed(self.rule, subscriptions, ids)
        self._labels = MarkLabels()
        self._pages: list[Any] = []
        """Events since `take`, and before them those that were not decided then, as `read` returns them."""
        self._undecided = 0
        """Number of those about which the rule has not decided."""
        self._messages: dict[int, int | None] = {}
        """By id, the messages of those about which it has."""
        self._copies: set[int] = set()

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to go on from here, as JSON holds it. Requires that all is taken."""
        held = [(page["id"].to_pylist(), page["mark"].to_pylist()) for page in self._pages]
        return {
            "rule": self.rule.state(),
            "subscriptions": self._subscriptions.state(),
            "labels": self._labels.state(),
            "held": sorted([*one] for ids, labels in held for one in zip(ids, labels, strict=True)),
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
        held = sorted(rows)
        self._undecided = len(held)
        self._pages = [read(held, [labels[number] for _, number, *_ in held], self._names)]

    def add(self, page: Sequence[tuple[Any, ...]]) -> None:
        """Add events, rows as `Row` names them, in replay order."""
        rule, retracted, label = self.rule, self._retracted, self._labels.last
        sent, received, feed = rule.sent, rule.received, self._feed.add
        labels: list[str | None] = []
        size = self.bytes
        for ts, number, kind, channel, _, _, messager, flags, attributes, payload in page:
            redacted = flags & REDACTED != 0
            self.bytes += len(payload)
            if kind == SENT:
                if number not in retracted:
                    self._undecided += 1
                    sent(number, ts, channel, payload, redacted=redacted)
            elif kind == RECEIVED and attributes is None:
                self._undecided += 1
                received(number, ts, channel, payload, (number >> SEQ_BITS, messager), redacted=redacted)
            else:
                meta = _NOTHING if attributes is None else feed_meta(kind, attributes)
                if kind == RECEIVED:
                    self._undecided += 1
                elif kind == MARK:
                    label = self._label(meta)
                feed(number, ts, kind, channel, messager, payload, redacted, meta)
            labels.append(label)
        self._note()
        self._pages.append(self._columns.read(page, labels, self.bytes - size))

    def end(self) -> None:
        """Decide everything. No event follows."""
        self.rule.end()
        self._note()

    def take_hurried(self) -> int:
        """Return the number of messages that were decided early since the last call."""
        hurried, self.rule.hurried = self.rule.hurried, 0
        return hurried

    async def settle(self) -> None:
        """Wait until the columns of all events are there."""
        self._pages = await made(self._pages)

    def take(self) -> Any:
        """Return the events that were decided since the last call, in replay order, as a `pyarrow.Table`.

        Requires that they are settled.
        """
        pa, known = pyarrow(), self._messages
        found = pa.concat_tables(self._pages) if self._pages else read((), (), self._names)
        self._pages = []
        ids = found["id"].to_pylist()
        if self._undecided:
            candidates = zip(ids, found["kind"].to_pylist(), strict=True)
            held = [
                number not in known and (kind == RECEIVED or (kind == SENT and number not in self._retracted))
                for number, kind in candidates
            ]
            mask = pa.array(held)
            self._pages.append(found.filter(mask))
            found = found.filter(pa.compute.invert(mask))
            ids = found["id"].to_pylist()
        decided = table(found, [known.get(number) for number in ids], self._copies, self._names)
        self._messages, self._copies, self.bytes = {}, set(), 0
        return decided

    def _note(self) -> None:
        """Take what the rule has decided."""
        messages, _, deliveries = self.rule.take()
        self._undecided -= len(messages) + len(deliveries)
        self._messages.update(zip(messages, messages, strict=True))
        for number, message, is_copy in deliveries:
            self._messages[number] = message
            if is_copy:
                self._copies.add(number)

    def _label(self, mark: Mapping[str, Any]) -> str | None:
        """Return the label of the phase that a mark begins, or goes on in."""
        name = mark.get("name")
        return self._labels.next(as_utf_8(name)) if isinstance(name, str) and not is_own(name) else self._labels.last
