"""Dimensions of a count: the properties of messages by which they are grouped.

channel, from, to, kind
agent               the sender and the recipient: a message counts once for each of them
mark                the phase: the last mark of a user at or before the message; marks of Messagers are left out
minute, hour, day   the time, in buckets that begin at multiples of their length since 1970 (UTC)
10s, 5m, 1h ...     the same, in buckets of any length
$.price             a value in the payload; the path begins with `$`, has no wildcards, and continues inside
                    strings that contain JSON. A payload without it has null there
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...errors import StoreError
from ...json_path import PathState, Steps, Wildcard, compiled, parse, values_at
from ...log import content
from ...log.cursor import duration_ns
from ...log.event import Cursor, Event
from ...log.mark_labels import MarkLabels
from ...log.names import agent_value

FIRST_NS = -(2**63)
_NAMED_NS = {"minute": 60_000_000_000, "hour": 3_600_000_000_000, "day": 86_400_000_000_000}
_LENGTH = re.compile(r"[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d)", re.A)


class Of(Enum):
    """The property of a message that a dimension groups by."""

    CHANNEL = "channel"
    SENDER = "from"
    RECIPIENT = "to"
    KIND = "kind"
    AGENT = "agent"
    MARK = "mark"
    TIME = "time"
    FIELD = "field"


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension, as it was asked for."""

    name: str
    """For example `from`, `1m` or `$.price`."""
    of: Of
    bucket_ns: int = 0
    """Length of a bucket of time, ns."""
    steps: Steps = ()
    """Path of a field."""
    numeric: bool = False
    """True for a field whose values are numbers, or missing, that are in numeric order."""
    own_order: bool = True
    """False if another order was asked for than that of time."""

    @property
    def ordered(self) -> bool:
        """True if its values are in an order of their own: in time, or as numbers."""
        return self.numeric or (self.own_order and self.of in (Of.TIME, Of.MARK))


def dimensions(by: Sequence[str] | str) -> tuple[Dimension, ...]:
    """Return the dimensions of one or two names. Raises `StoreError` for others, and for two times."""
    names = (by,) if isinstance(by, str) else tuple(by)
    found = tuple(map(_dimension, names))
    if not 1 <= len(found) <= 2 or len({(each.of, each.steps) for each in found}) < len(found):
        raise StoreError(
            f"cannot count by {', '.join(names) or 'nothing'}. Give one dimension or two different ones, at most one "
            "of them a time."
        )
    return found


def _dimension(name: str) -> Dimension:
    if name.startswith("$"):
        steps = parse(name)
        if any(isinstance(step, Wildcard) for step in steps):
            raise StoreError(f"{name} has a wildcard. Count by the path of one value, such as $.items[0].price.")
        return Dimension(name, Of.FIELD, steps=steps)
    if name in _NAMED_NS:
        return Dimension(name, Of.TIME, _NAMED_NS[name])
    if _LENGTH.fullmatch(name) and 0 < (length := duration_ns(name)) < 2**62:
        return Dimension(name, Of.TIME, length)
    if name in (Of.TIME.value, Of.FIELD.value) or name not in {each.value for each in Of}:
        raise StoreError(
            f"cannot count by {name!r}. Give channel, from, to, kind, agent, mark, minute, hour, day, a length of "
            "time such as 10s or 5m, or a path into the payload that begins with $, such as $.price."
        )
    return Dimension(name, Of(name))


def bucket(ts: int, length: int) -> int:
    """Return the start of the bucket of a time, ns UTC."""
    return max(ts - ts % length, FIRST_NS)


@dataclass(frozen=True, slots=True)
class Phases:
    """The marks of users, in replay order."""

    places: Sequence[Cursor] = ()
    labels: Sequence[str] = ()
    """As `MarkLabels` gives them."""

    @classmethod
    def of(cls, marks: Sequence[tuple[Cursor, str]]) -> Phases:
        """Return the phases of marks, given by position and name."""
        labels = MarkLabels()
        return cls([cursor for cursor, _ in marks], [labels.next(name) for _, name in marks])

    def at(self, entry: Event) -> int:
        """Return the number of the phase of an event: 0 before the first mark."""
        return bisect_right(self.places, (entry.ts, entry.recorder, entry.seq))

    def label(self, number: int) -> str | None:
        return self.labels[number - 1] if number else None


class NoJson(Exception):
    """The payload of a message is not JSON."""


Cell = Callable[[Event], Sequence[Hashable]]
"""Return the values of an event in one dimension, as keys of a dict: usually one."""


class Agents:
    """Ids of agents as keys: their JSON, since 1, 1.0, true and "1" are four agents and a list is no key."""

    def __init__(self) -> None:
        self._known: dict[tuple[type, Any], bytes] = {}

    def key(self, agent: Any) -> bytes | None:
        """Return the key of an id, None for none."""
        if agent is None:
            return None
        if agent.__class__ is not str and agent.__class__ is not int:
            return agent_value(agent)
        known = agent.__class__, agent
        found = self._known.get(known)
        if found is None:
            found = self._known[known] = agent_value(agent)
        return found


def cells(dimension: Dimension, agents: Agents, phases: Phases) -> Cell:
    """Return the function that gives an event's values in a dimension. It raises `NoJson`."""
    key, length, path = agents.key, dimension.bucket_ns, compiled([dimension.steps])
    match dimension.of:
        case Of.CHANNEL:
            return lambda entry: (entry.channel,)
        case Of.SENDER:
            return lambda entry: (key(entry.from_id),)
        case Of.RECIPIENT:
            return lambda entry: (key(entry.to_id),)
        case Of.KIND:
            return lambda entry: (entry.kind,)
        case Of.AGENT:
            return lambda entry: both(key(entry.from_id), key(entry.to_id))
        case Of.MARK:
            return lambda entry: (phases.at(entry),)
        case Of.TIME:
            return lambda entry: (bucket(entry.ts, length),)
        case Of.FIELD:
            return lambda entry: (_field(entry, path),)


def both(sender: bytes | None, recipient: bytes | None) -> tuple[bytes | None, ...]:
    """Return the agents of a message, each once; None if there is none."""
    if sender == recipient or recipient is None:
        return (sender,)
    return (recipient,) if sender is None else (sender, recipient)


def _field(entry: Event, path: PathState) -> str:
    payload = content.decoded(entry)
    if payload is content.NOT_JSON:
        raise NoJson
    try:
        return json.dumps(next(values_at(payload, path), None), ensure_ascii=False, sort_keys=True)
    except RecursionError:
        raise NoJson from None


def decoded(dimension: Dimension, key: Any, phases: Phases) -> Any:
    """Return the value that a key stands for."""
    match dimension.of:
        case Of.SENDER | Of.RECIPIENT | Of.AGENT | Of.FIELD:
            return None if key is None else json.loads(key)
        case Of.MARK:
            return phases.label(key)
    return key


_DIGITS = re.compile(r"([0-9]+)")


def natural(value: Any) -> tuple[Any, ...]:
    """Return the place of a value in natural order: missing ones, numbers, texts with agent2 before agent10, others.

    Different values have different places, also 1 and true.
    """
    if value is None:
        return (0,)
    if isinstance(value, str):
        parts = _DIGITS.split(value)
        return 2, tuple((len(part.lstrip("0")), part) if at % 2 else part for at, part in enumerate(parts)), value
    text = json.dumps(value, sort_keys=True)
    return (1, value, text) if isinstance(value, int | float) else (3, text)


def identity(value: Any) -> Hashable:
    """Return a key of a dict for a value: 1, 1.0, true and "1" are different."""
    if value is None or value.__class__ is str or value.__class__ is int:
        return value.__class__, value
    return value.__class__, json.dumps(value, sort_keys=True)
