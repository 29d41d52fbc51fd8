"""Paths into JSON values, for redaction and for comparison, as differences are printed.

A path consists of steps from the payload's root: `content`, `items.*.name`, `**.timestamp`, `$.items[2]["b c"].d`.

    $           the root, at the beginning of a path; alone, the whole payload. It may be left out.
    .key        a key of an object; a number matches a key or an index. `\\.` is a dot inside a key.
    ["key"]     a key of an object, as a JSON string; for keys that contain dots, brackets or nothing but `*`
    [2]         an index of an array, from 0
    .* [*]      any key or index
    .**         any number of keys and indices, none too

A path continues inside a string that contains JSON, as in AgentSociety's nested messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

from .errors import StoreError


class Wildcard(Enum):
    """A step that names no key."""

    ANY = "*"
    """Matches any key or index."""
    ANY_DEPTH = "**"
    """Matches any number of them."""


Step = Wildcard | tuple[str | int, ...]
"""A wildcard, or the keys and indices that match."""
Steps = tuple[Step, ...]

_STEP = re.compile(
    r"""\.(?P<name>(?:\\\.|[^.\[\]])+) | \[(?: (?P<index>[0-9]{1,9}) | (?P<any>\*) | (?P<key>"(?:[^"\\]|\\.)*") )\]""",
    re.VERBOSE,
)


def parse(path: str) -> Steps:
    """Return the steps of a path, of which no two `Wildcard.ANY_DEPTH` follow each other.

    Raises `StoreError` for an empty path, or a path with an empty key or a bracket that is not quoted.
    """
    steps: list[Step] = []
    try:
        for found in _parts(path):
            step = _step(found)
            if step is not Wildcard.ANY_DEPTH or steps[-1:] != [step]:
                steps.append(step)
    except ValueError as error:
        where = "" if isinstance(error, json.JSONDecodeError) else error
        raise StoreError(
            f"{path!r} is not a path{where}: give keys joined by dots, such as content or items.*.name, "
            'or a path as differences show it, such as $.items[2]["b c"]'
        ) from None
    return tuple(steps)


def _parts(path: str) -> Iterable[re.Match[str]]:
    """Yield the matches of the steps of a path. Raises `ValueError` with the position of what is no step."""
    if not isinstance(path, str):
        raise ValueError("")
    text = path if path[:1] == "[" else "." + path
    if path[:1] == "$" and path[1:2] in ("", ".", "["):
        text = path[1:]
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            wrong = max(at - len(text) + len(path), 0)
            raise ValueError(f", at character {wrong + 1} ({path[wrong:]!r:.40})" if path else "")
        yield found
        at = found.end()


def _step(found: re.Match[str]) -> Step:
    name, index, any_index, key = found.group("name", "index", "any", "key")
    if any_index or name == "*":
        return Wildcard.ANY
    if name == "**":
        return Wildcard.ANY_DEPTH
    if index:
        return (int(index),)
    if key:
        return (json.loads(key, strict=False),)
    name = name.replace("\\.", ".")
    return (name, int(name)) if name.isdecimal() and len(name) < 10 else (name,)


def text_of(place: Iterable[str | int]) -> str:
    """Return the path of a value, by the keys and indices from the root to it: `$.items[2]["b c"]`.

    `parse` reads it. It contains only printable characters.
    """
    return "$" + "".join(map(_step_text, place))


def place_of(path: str) -> list[str | int]:
    """Return the keys and indices of a path that `text_of` made."""
    return [step[0] for step in parse(path) if not isinstance(step, Wildcard)]


def general_path(path: str) -> str:
    """Return the path of a rule for a value that differs each time, given the path of one difference.

    What varies at one index of an array varies at all: the rule for `$.items[2].at` is `**.at`, and `items[*]` for
    `$.items[2]`. A key outside of arrays stays the key in its place. `$`, the whole payload, stays `$`.
    """
    steps = place_of(path)
    if any(isinstance(step, int) for step in steps[:-1]) and isinstance(steps[-1], str):
        return f"**{_step_text(steps[-1])}"
    return "".join("[*]" if isinstance(step, int) else _step_text(step) for step in steps).removeprefix(".") or "$"


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if step.isidentifier() and step.isprintable():
        return f".{step}"
    return f"[{json.dumps(step, ensure_ascii=not step.isprintable())}]"


def may_hold_json(text: str) -> bool:
    """Return whether a path continues inside a text if it is JSON: an object, an array or a string."""
    return text.lstrip()[:1] in ("{", "[", '"')


_Thread = tuple[int, Steps]
"""A path that is partly walked: the number of its group, and the steps that are left."""


class PathState:
    """Position of a walk through a value: the paths that end there, and those that continue below.

    States are made when they are first reached and then reused. Their number depends on the paths, not on the values.
    """

    __slots__ = ("_known", "_named", "_other", "_threads", "continues", "ends")

    def __init__(self, threads: frozenset[_Thread], known: dict[frozenset[_Thread], PathState]) -> None:
        self._threads = threads
        self._known = known
        self._named: dict[str | int, PathState] = {}
        self._other: PathState | None = None
        self.ends = 0
        """The groups with a path that ends here, as bits: 1 for the first, 2 for the second."""
        self.continues = False
        """True if a path leads further."""
        for group, steps in threads:
            if steps:
                self.continues = True
            else:
                self.ends |= 1 << group

    def child(self, key: str | int) -> PathState:
        """Return the state at a key of an object or at an index of an array."""
        if self._other is None:
            self._expand()
        return self._named.get(key) or self._other  # type: ignore[return-value]

    def _expand(self) -> None:
        """Make the states of the keys that a path names, and the one of all others."""
        everywhere: set[_Thread] = set()
        named: dict[str | int, set[_Thread]] = {}
        for group, steps in self._threads:
            if not steps:
                continue
            first, rest = steps[0], steps[1:]
            if first is Wildcard.ANY_DEPTH:
                everywhere.add((group, steps))
            elif first is Wildcard.ANY:
                everywhere.add((group, rest))
            else:
                for key in first:
                    named.setdefault(key, set()).add((group, rest))
        self._named = {key: self._state(everywhere | threads) for key, threads in named.items()}
        self._other = self._state(everywhere)

    def _state(self, threads: set[_Thread]) -> PathState:
        return _state(threads, self._known)


def _state(threads: Iterable[_Thread], known: dict[frozenset[_Thread], PathState]) -> PathState:
    """Return the state of these paths; each `ANY_DEPTH` may also match nothing."""
    closed = set(threads)
    closed |= {(group, steps[1:]) for group, steps in closed if steps[:1] == (Wildcard.ANY_DEPTH,)}
    key = frozenset(closed)
    found = known.get(key)
    if found is None:
        found = known[key] = PathState(key, known)
    return found


def values_at(value: Any, state: PathState) -> Iterator[Any]:
    """Yield the values at the ends of the paths of a state, in the order in which the value contains them.

    A string that contains JSON is yielded as it is, and also searched. Raises `RecursionError` for a very deep value.
    """
    if state.ends:
        yield value
    if not state.continues:
        return
    if isinstance(value, str) and may_hold_json(value):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return
        if isinstance(value, str):
            return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from values_at(inner, state.child(key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from values_at(inner, state.child(at))


def compiled(*groups: Sequence[Steps]) -> PathState:
    """Return the state at the root of a value for groups of parsed paths."""
    return _state(((at, steps) for at, group in enumerate(groups) for steps in group), {})
