"""Sums of the selected events of a projection by the values of dimensions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

from ...json_path import PathState, compiled, values_at
from ...log import content
from ...log.names import agent_value
from ...projection.query import Projection
from ...projection.schema import agent_of
from ...projection.selecting import Condition
from .dimensions import FIRST_NS, Dimension, Of

Key = tuple[Any, ...]
"""The values of a group, one for each dimension: of agents and fields as JSON, of a phase its number."""
NOT_JSON = object()
"""The field of a payload that is not JSON."""


class Groups:
    """Number and payload bytes of events, by group and in all."""

    def __init__(self, by: Sequence[Dimension], phases: Sequence[str] = ()) -> None:
        """`phases` are the labels of the marks in replay order."""
        self.by = tuple(by)
        self.phases = phases
        self.sums: dict[Key, list[int]] = {}
        """Events and payload bytes, by key."""
        self.messages = 0
        """Number of events, each once."""
        self.payload_bytes = 0
        self.skipped = 0
        """Events left out because their payload is not JSON."""
        self._columns: list[str] = []
        self._cells: list[tuple[slice, Callable[..., Sequence[Hashable]]]] = []
        """For each dimension, the places of its columns, and the function that returns the values of theirs."""
        self._reads_json = any(each.of is Of.FIELD for each in by)
        for each in self.by:
            columns, cell = self._cell(each)
            self._cells.append((slice(len(self._columns), len(self._columns) + len(columns)), cell))
            self._columns += columns

    def add(self, here: Projection, condition: Condition) -> None:
        """Add the events of a projection that fulfil a condition."""
        if self._reads_json:
            statement = f"SELECT {', '.join(self._columns)}, 1, e.size FROM event e WHERE {condition.where}"
        else:
            sums = "count(*), sum(e.size)::BIGINT"
            statement = f"SELECT {', '.join(self._columns)}, {sums} FROM event e WHERE {condition.where} GROUP BY ALL"
        for batch in here.batches(statement, condition.values):
            self._add(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    def _add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        cells_of = self._cells
        for row in rows:
            events, size = row[-2:]
            cells = [cell(*row[place]) for place, cell in cells_of]
            if self._reads_json and any(NOT_JSON in cell for cell in cells):
                self.skipped += events
                continue
            self.messages += events
            self.payload_bytes += size
            for key in product(*cells):
                sums = self.sums.setdefault(key, [0, 0])
                sums[0] += events
                sums[1] += size

    def _cell(self, dimension: Dimension) -> tuple[list[str], Callable[..., Sequence[Hashable]]]:
        """Return the columns of a dimension, and the function that returns the values of an event: usually one."""
        match dimension.of:
            case Of.CHANNEL:
                return ["e.channel"], lambda channel: (channel,)
            case Of.PART:
                return ["e.channel"], lambda channel: (channel_part(channel, dimension.part),)
            case Of.PAIR:
                columns = ["e.from_id", "e.from_type", "e.to_id", "e.to_type"]
                return columns, lambda a, a_type, b, b_type: (_pair(_agent(a, a_type), _agent(b, b_type)),)
            case Of.SENDER:
                return ["e.from_id", "e.from_type"], lambda *sender: (_agent(*sender),)
            case Of.RECIPIENT:
                return ["e.to_id", "e.to_type"], lambda *recipient: (_agent(*recipient),)
            case Of.AGENT:
                columns = ["e.from_id", "e.from_type", "e.to_id", "e.to_type"]
                return columns, lambda a, a_type, b, b_type: _both(_agent(a, a_type), _agent(b, b_type))
            case Of.KIND:
                return ["e.kind"], lambda kind: (kind,)
            case Of.MARK:
                numbers = {label: number for number, label in enumerate(self.phases, 1)}
                return ["e.mark"], lambda label: (numbers.get(label, 0),)
            case Of.TIME:
                return [_bucket(dimension.bucket_ns)], lambda start: (start,)
            case Of.FIELD:
                path = compiled([dimension.steps])
                return ["e.payload"], lambda payload: (payload_field(payload, path),)


def _bucket(length: int) -> str:
    """Return the start of the bucket of a time, at least `FIRST_NS`."""
    start = f"e.ts - (e.ts % {length} + {length}) % {length}"
    early = f"greatest({start.replace('e.ts -', 'e.ts::HUGEINT -', 1)}, {FIRST_NS})::BIGINT"
    return f"CASE WHEN e.ts < {FIRST_NS + length} THEN {early} ELSE {start} END"


@lru_cache(maxsize=65_536)
def _agent(text: str | None, kind: str | None) -> bytes | None:
    """Return the JSON of an id: 1, 1.0, true and "1" are four agents, and a list is no key."""
    return None if text is None else agent_value(agent_of(text, kind))


def _both(sender: bytes | None, recipient: bytes | None) -> tuple[bytes | None, ...]:
    """Return the agents of a message, each once; None if there is none."""
    if sender == recipient or recipient is None:
        return (sender,)
    return (recipient,) if sender is None else (sender, recipient)


def _pair(*agents: bytes | None) -> tuple[bytes | None, ...]:
    """Return two agents in the order of their JSON, none first."""
    return tuple(sorted(agents, key=lambda agent: agent or b""))


def channel_part(channel: str | None, number: int) -> str | None:
    """Return a part of a channel; None if it has not so many."""
    parts = [] if channel is None else re.split("[:/]", channel)
    return parts[number] if -len(parts) <= number < len(parts) else None


def payload_field(payload: bytes, path: PathState) -> Any:
    """Return the first value at a path of a payload, as JSON, or `NOT_JSON`."""
    value = content.decoded(payload)
    if value is content.NOT_JSON:
        return NOT_JSON
    try:
        return json.dumps(next(values_at(value, path), None), ensure_ascii=False, sort_keys=True)
    except RecursionError:
        return NOT_JSON
