"""Matching of an expected message with an actual one, in replays with live agents and in `compare`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, Final, NamedTuple

from ..errors import JudgeFailed, StoreError
from ..json_path import compiled, parse
from ..json_text import read, written
from .json_difference import MISSING, Found, Rules

__all__ = ["Judge", "Match", "ValueDifference"]

Judge = Callable[[Any, Any], Awaitable[bool]]

_KEYS = ("bytes_only", "framework", "ignore", "shape", "tolerance")
_FRAMEWORKS: Final[Mapping[str, tuple[str, ...]]] = {
    # Msg: `id` and `timestamp` in 0.1 and 1.x, `created_at` and `finished_at` in 2.x. A block has an id, in 2.x also
    # times, and blocks may be in `output` of tool results and in `hint`. Not `**.id`: arguments of tools have ids, too.
    "agentscope": (
        "timestamp",
        *(
            f"{place}{key}"
            for place in ("", "content.*.", "content.*.output.*.", "content.*.hint.*.")
            for key in ("id", "created_at", "finished_at")
        ),
    ),
    # Chats, interviews and surveys have a time in ms; `_date_time` is the same as text; ids of surveys are uuids.
    "agentsociety": ("timestamp", "_date_time", "survey_id", "data.id"),
}
"""Paths to what is random or the wall clock in the messages of a framework."""
_NO_JSON: Final = object()
_EXACT = Rules(exact=True)


class ValueDifference(NamedTuple):
    """A difference of two payloads."""

    path: str
    """Its place: `$.items[2].name`, or `$` for the whole payload."""
    expected: str | None
    """JSON text of the expected value there, numbers as they are written, the text of a payload that is not JSON, or
    None: no value."""
    actual: str | None


@dataclass(frozen=True, slots=True)
class Match:
    """Rules by which an actual payload matches an expected one.

    Payloads that are both JSON are compared as JSON values: the keys of an object in any order, 1 equals 1.0, `true`
    is not 1, NaN equals NaN; different strings that both contain JSON, as in AgentSociety's nested messages, are
    compared as the values they contain; of a duplicate key, the last value counts. Other payloads are compared as
    bytes: text, invalid UTF-8, and JSON too deep or with integers too long for Python to read.

    A path consists of keys joined by dots, from the payload's root: `content`, `items.*.name`, `**.timestamp`, with `*`
    for any key or index and `**` for any number of them; or it is a path that `difference` returned, such as
    `$.items[2]["b c"]`. docs/querying.md describes paths. One path may be given as a str.

    Comparing changes nothing in the payloads: an agent receives what is ignored here.
    """

    ignore: Sequence[str] = ()
    """Paths whose values are left out on both sides. A value that only one side has is left out too."""
    tolerance: float = 0.0
    """Maximum absolute difference of equal numbers; booleans are not numbers."""
    shape: Sequence[str] = ()
    """Paths whose values need only have the same shape.

    The shape is the type: object, array, text, number, boolean or null. Objects must have the same keys with values
    of the same shape. Arrays may differ in length and order, but each element must have the shape of an element of
    the other array; an empty array has the shape of any array. Ignored values do not belong to a shape.
    """
    judge: Judge | None = None
    """Async function `judge(expected, actual)`, asked only if the payloads are not the same by the other rules.

    It gets two decoded JSON values if both payloads are JSON, else (or with `bytes_only`) two payloads as bytes,
    ignored values included. A true result is a match.
    """
    bytes_only: bool = False
    """Compare payloads byte for byte; excludes `ignore`, `tolerance` and `shape`."""
    _rules: Rules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ignore, shape = _paths("ignore", self.ignore), _paths("shape", self.shape)
        if not isinstance(self.bytes_only, bool):
            raise StoreError(f"bytes_only is {self.bytes_only!r}: give True or False")
        tolerance = _tolerance(self.tolerance)
        if self.bytes_only and (ignore or shape or tolerance):
            raise StoreError("bytes_only compares every byte: leave out ignore, tolerance and shape, or bytes_only")
        if self.judge is not None and not _is_async(self.judge):
            raise StoreError(
                f"judge is {self.judge!r}: give an async function of the expected and the actual value (`async def`)"
            )
        rules = Rules(compiled([parse(path) for path in ignore], [parse(path) for path in shape]), tolerance)
        for name, value in (("ignore", ignore), ("shape", shape), ("tolerance", tolerance), ("_rules", rules)):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Match, (self.ignore, self.tolerance, self.shape, self.judge, self.bytes_only)

    def same(self, expected: bytes, actual: bytes) -> bool:
        """Return whether the payloads are equal by these rules, without the judge. Raises nothing."""
        if expected == actual:
            return True
        return not self.bytes_only and self._found(expected, actual, 1) == []

    async def accepts(self, expected: bytes, actual: bytes) -> bool:
        """Return whether the payloads are the same, or the judge says so. Raises `JudgeFailed`."""
        if self.same(expected, actual):
            return True
        if self.judge is None:
            return False
        values = _NO_JSON, _NO_JSON
        if not self.bytes_only:
            values = _decoded(expected), _decoded(actual)
        try:
            return bool(await (self.judge(expected, actual) if _NO_JSON in values else self.judge(*values)))
        except Exception as error:
            raise JudgeFailed(error) from error

    def difference(self, expected: bytes, actual: bytes) -> str | None:
        """Return the place of the first difference as `$.items[2].name`, `$` for the whole payload; None if same."""
        found = self.first_difference(expected, actual)
        return None if found is None else found.path

    def first_difference(self, expected: bytes, actual: bytes) -> ValueDifference | None:
        """Return the first difference by these rules, without the judge; None if the payloads are the same."""
        if self.same(expected, actual):
            return None
        found = self.differences(expected, actual, 1)
        if found:
            return found[0]
        return ValueDifference("$", *(one.decode("utf-8", "backslashreplace") for one in (expected, actual)))

    def differences(self, expected: bytes, actual: bytes, most: int) -> list[ValueDifference] | None:
        """Return the first differences of two payloads as JSON values by these rules, without the judge.

        With `bytes_only`, equal values differ that are written differently, such as 1 and 1.0. None if one of the
        payloads is not JSON, or too deep.
        """
        found = self._found(expected, actual, most, read)
        return None if found is None else [ValueDifference(one.path, _text(one.a), _text(one.b)) for one in found]

    def to_dict(self) -> dict[str, Any]:
        """Return the rules as JSON data, for `from_dict`. Raises `StoreError` if there is a judge."""
        if self.judge is not None:
            raise StoreError("a judge is a function and cannot be written to a file: leave it out, or use Python")
        return {
            "ignore": list(self.ignore),
            "tolerance": self.tolerance,
            "shape": list(self.shape),
            "bytes_only": self.bytes_only,
        }

    @classmethod
    def agentscope(cls, *, ignore: Sequence[str] = (), **rules: Any) -> Match:
        """Return rules that leave out the ids and times of an AgentScope message (0.1, 1.x, 2.x) and of its blocks.

        The payload is the message. `ignore` are further paths, and `rules` the other arguments of a `Match`.
        """
        return cls(ignore=(*_FRAMEWORKS["agentscope"], *_paths("ignore", ignore)), **rules)

    @classmethod
    def agentsociety(cls, *, ignore: Sequence[str] = (), **rules: Any) -> Match:
        """Return rules that leave out the wall-clock times and the ids of surveys in messages of AgentSociety 1.3.

        `day` and `t` are compared: they are the time of the simulation. `ignore` and `rules` as in `agentscope`.
        """
        return cls(ignore=(*_FRAMEWORKS["agentsociety"], *_paths("ignore", ignore)), **rules)

    @property
    def own_ignore(self) -> tuple[str, ...]:
        """Paths of `ignore` without those of a framework."""
        ignore = tuple(self.ignore)
        for paths in _FRAMEWORKS.values():
            if ignore[: len(paths)] == paths:
                return ignore[len(paths) :]
        return ignore

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Match:
        """Return the rules that `to_dict` wrote; every key may be missing. Raises `StoreError`.

        With `framework`, "agentscope" or "agentsociety", the rules are added to those of the method of that name.
        """
        if not isinstance(data, Mapping):
            raise StoreError(f"{data!r} is no match: give an object with any of the keys {', '.join(_KEYS)}")
        if unknown := sorted(str(key) for key in data if key not in _KEYS):
            raise StoreError(f"unknown key of a match: {', '.join(unknown)}. The keys are {', '.join(_KEYS)}.")
        rules = dict(data)
        if (framework := rules.pop("framework", None)) is None:
            return cls(**rules)
        if framework not in tuple(_FRAMEWORKS):
            raise StoreError(f"unknown framework {framework!r} of a match: give {' or '.join(_FRAMEWORKS)}")
        made: Match = getattr(cls, framework)(**rules)
        return made

    def _found(
        self, expected: bytes, actual: bytes, most: int, decode: Callable[[str], Any] = json.loads
    ) -> list[Found] | None:
        """Return the first differences of two payloads; None if one is not JSON or too deep."""
        a = _decoded(expected, decode)
        b = _NO_JSON if a is _NO_JSON else _decoded(actual, decode)
        if b is _NO_JSON:
            return None
        try:
            return list(islice((_EXACT if self.bytes_only else self._rules).differences(a, b), most))
        except RecursionError:
            return None


def _is_async(judge: object) -> bool:
    """Return whether this is an async function, or an object whose `__call__` is one."""
    return callable(judge) and (inspect.iscoroutinefunction(judge) or inspect.iscoroutinefunction(type(judge).__call__))


def _decoded(payload: bytes, decode: Callable[[str], Any] = json.loads) -> Any:
    """Return the JSON value of a payload, or `_NO_JSON`."""
    try:
        return decode(payload.decode())
    except (ValueError, RecursionError):
        return _NO_JSON


def _text(value: Any) -> str | None:
    """Return the JSON text of a value, or None if there is no value."""
    if value is MISSING:
        return None
    try:
        return written(value)
    except RecursionError:
        return "…"


def _paths(name: str, given: Any) -> tuple[str, ...]:
    """Return paths as a tuple; a str is one path. Raises `StoreError` for anything but paths."""
    if isinstance(given, str):
        given = (given,)
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise StoreError(f"{name} is {given!r}: give a list of paths, such as content or items.*.name")
    for path in given:
        parse(path)
    return tuple(given)


def _tolerance(given: Any) -> float:
    problem = isinstance(given, bool) or not isinstance(given, int | float)
    try:
        if not problem and isfinite(given) and given >= 0:
            return float(given)
    except OverflowError:  # an int beyond all floats
        pass
    raise StoreError(f"tolerance is {given!r}: give the largest difference of equal numbers, 0 or more")
