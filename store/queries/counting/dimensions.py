"""Dimensions of a count: the properties of messages by which they are grouped.

channel, from, to, kind
channel[1]          a part of the channel, between `:` or `/`: from 0, or from -1 backward
agent               the sender and the recipient: a message counts once for each of them
pair                the sender and the recipient, whoever of the two sent
mark                the phase: the last mark of a user at or before the message; marks of Messagers are left out
minute, hour, day   the time, in buckets that begin at multiples of their length since 1970 (UTC)
10s, 5m, 1h ...     the same, in buckets of any length
$.price             a value in the payload; the path begins with `$`, has no wildcards, and continues inside
                    strings that contain JSON. A payload without it has null there
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...errors import StoreError
from ...json_path import Steps, Wildcard, parse
from ...log.cursor import duration_ns

FIRST_NS = -(2**63)
_NAMED_NS = {"minute": 60_000_000_000, "hour": 3_600_000_000_000, "day": 86_400_000_000_000}
_PART = re.compile(r"channel\[(-?[0-9]{1,4})\]", re.A)
_LENGTH = re.compile(r"[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d)", re.A)


class Of(Enum):
    """The property of a message that a dimension groups by."""

    CHANNEL = "channel"
    SENDER = "from"
    RECIPIENT = "to"
    KIND = "kind"
    PART = "part"
    AGENT = "agent"
    PAIR = "pair"
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
    part: int = 0
    """Number of a part of channels."""
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
    if not 1 <= len(found) <= 2 or len({(each.of, each.steps, each.part) for each in found}) < len(found):
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
    if found := _PART.fullmatch(name):
        return Dimension(name, Of.PART, part=int(found[1]))
    if name in (Of.TIME.value, Of.FIELD.value, Of.PART.value) or name not in {each.value for each in Of}:
        raise StoreError(
            f"cannot count by {name!r}. Give channel, channel[1], from, to, kind, agent, pair, mark, minute, hour, "
            "day, a length of time such as 10s or 5m, or a path into the payload that begins with $, such as $.price."
        )
    return Dimension(name, Of(name))


def decoded(dimension: Dimension, key: Any, phases: Sequence[str]) -> Any:
    """Return the value that a key stands for."""
    match dimension.of:
        case Of.SENDER | Of.RECIPIENT | Of.AGENT | Of.FIELD:
            return None if key is None else json.loads(key)
        case Of.PAIR:
            return [None if agent is None else json.loads(agent) for agent in key]
        case Of.MARK:
            return phases[key - 1] if key else None
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
