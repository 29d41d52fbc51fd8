"""Sums of messages by the values of dimensions. Memory use is bounded by the number of groups."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import product
from typing import Any

from ...log.event import Event
from .dimensions import Agents, Dimension, NoJson, Phases, cells

Key = tuple[Any, ...]
"""The values of a group, one for each dimension, as `dimensions.cells` gives them."""


class Groups:
    """Number and payload bytes of messages, by group and in all."""

    def __init__(self, by: Sequence[Dimension], phases: Phases) -> None:
        self.by = tuple(by)
        self.sums: dict[Key, list[int]] = {}
        """Messages and payload bytes, by key."""
        self.messages = 0
        """Number of messages, each once."""
        self.payload_bytes = 0
        self.skipped = 0
        """Messages left out because their payload is not JSON."""
        self.agents = Agents()
        self._cells = [cells(each, self.agents, phases) for each in self.by]

    def add_events(self, events: Iterable[Event], sign: int = 1) -> None:
        """Add messages; with a `sign` of -1, subtract them."""
        for entry in events:
            try:
                values = [cell(entry) for cell in self._cells]
            except NoJson:
                self.skipped += sign
                continue
            self.add(values, sign, sign * len(entry.payload))

    def add_sums(self, keys: Iterable[Key], messages: Sequence[int], payload_bytes: Sequence[int]) -> None:
        """Add the sums of many groups."""
        known = self.sums
        for key, *sums in zip(keys, messages, payload_bytes, strict=True):
            if (before := known.setdefault(key, sums)) is not sums:
                before[0] += sums[0]
                before[1] += sums[1]
        self.messages += sum(messages)
        self.payload_bytes += sum(payload_bytes)

    def add(self, values: Sequence[Sequence[Hashable]], messages: int, payload_bytes: int) -> None:
        """Add messages that have the same values, several of them in a dimension such as `agent`."""
        self.messages += messages
        self.payload_bytes += payload_bytes
        for key in product(*values):
            sums = self.sums.get(key)
            if sums is None:
                self.sums[key] = [messages, payload_bytes]
            else:
                sums[0] += messages
                sums[1] += payload_bytes
