"""Differences of two JSON values under rules: paths left out, paths compared by shape, a tolerance for numbers.

Objects are compared by key in any order, arrays by position. An int equals a float of the same value, true is not 1,
NaN equals NaN. Different strings that both contain JSON are compared as the values they contain.

The shape of a value is its type (object, array, text, number, boolean, null). Objects of one shape have the same
keys, each with values of one shape. Arrays of one shape may differ in length and order: for each element of one there
is an element of the same shape in the other, and an empty array has the shape of any array. All texts have one shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ..json_path import PathState, compiled, may_hold_json, text_of
from ..json_text import Doubled, read, written

IGNORED: Final = 1
"""Bit of the paths that are left out, in `PathState.ends`. The other bit is of those compared by shape."""


class Missing:
    """Type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()
"""Stands for a value that only one side has."""


class Found(NamedTuple):
    """A difference of two values."""

    steps: list[str | int]
    """Keys and indices from the difference up to the root."""
    a: Any
    """Value of A there, or `MISSING`."""
    b: Any

    @property
    def path(self) -> str:
        """Return the place as text: `$.items[2].name`, `$` for the whole value."""
        return text_of(reversed(self.steps))


class Rules:
    """Rules of a comparison. With `exact`, equal leaves must also be written alike: 1 is not 1.0, 1.50 is not 1.5."""

    __slots__ = ("_exact", "_tolerance", "root")

    def __init__(self, root: PathState | None = None, tolerance: float = 0.0, *, exact: bool = False) -> None:
        self.root = compiled((), ()) if root is None else root
        self._tolerance = tolerance
        self._exact = exact

    def differences(self, a: Any, b: Any) -> Iterator[Found]:
        """Yield the differences of two decoded JSON values, in the order of A. Raises `RecursionError`."""
        return self._values(a, b, self.root)

    def _values(self, a: Any, b: Any, state: PathState) -> Iterator[Found]:
        if state.ends:
            if not state.ends & IGNORED:
                yield from _shapes(a, b, state)
        elif isinstance(a, dict) and isinstance(b, dict):
            yield from self._objects(a, b, state)
        elif isinstance(a, list) and isinstance(b, list):
            yield from self._arrays(a, b, state)
        elif isinstance(a, str) and isinstance(b, str):
            if a != b:
                yield from self._texts(a, b, state)
        elif not self._same(a, b):
            yield Found([], a, b)

    def _objects(self, a: dict[str, Any], b: dict[str, Any], state: PathState) -> Iterator[Found]:
        is_equal = True
        for found in self._by_key(a, b, state):
            is_equal = False
            yield found
        if is_equal and self._exact and (isinstance(a, Doubled) or isinstance(b, Doubled)) and written(a) != written(b):
            yield Found([], a, b)

    def _by_key(self, a: dict[str, Any], b: dict[str, Any], state: PathState) -> Iterator[Found]:
        for key, one in a.items():
            below = state.child(key)
            if key in b:
                for found in self._values(one, b[key], below):
                    found.steps.append(key)
                    yield found
            elif not below.ends & IGNORED:
                yield Found([key], one, MISSING)
        yield from _surplus(a, b, state)

    def _arrays(self, a: list[Any], b: list[Any], state: PathState) -> Iterator[Found]:
        for at in range(max(len(a), len(b))):
            below = state.child(at)
            if at < len(a) and at < len(b):
                for found in self._values(a[at], b[at], below):
                    found.steps.append(at)
                    yield found
            elif not below.ends & IGNORED:
                yield Found([at], a[at] if at < len(a) else MISSING, b[at] if at < len(b) else MISSING)

    def _texts(self, a: str, b: str, state: PathState) -> Iterator[Found]:
        """Compare different texts: equal if both contain JSON, and the values are equal."""
        if may_hold_json(a) and may_hold_json(b):
            try:
                inner = read(a), read(b)
            except (ValueError, RecursionError):
                yield Found([], a, b)
                return
            is_equal = True
            for found in self._values(*inner, state):
                is_equal = False
                yield found
            if not is_equal or not self._exact:
                return
        yield Found([], a, b)

    def _same(self, a: Any, b: Any) -> bool:
        """Return whether two values are equal leaves."""
        if isinstance(a, bool) or isinstance(b, bool) or not isinstance(a, _NUMBERS) or not isinstance(b, _NUMBERS):
            return a is b
        if self._exact:
            return type(a) is type(b) and repr(a) == repr(b)
        if a == b or (a != a and b != b):
            return True
        try:
            return self._tolerance > 0 and abs(a - b) <= self._tolerance
        except OverflowError:  # an int beyond all floats
            return False


_NUMBERS = (int, float)


def _surplus(a: dict[str, Any], b: dict[str, Any], state: PathState) -> Iterator[Found]:
    """Yield the keys that only B has."""
    for key, other in b.items():
        if key not in a and not state.child(key).ends & IGNORED:
            yield Found([key], MISSING, other)


_Shape = str | tuple[str, Any]
"""Type of a scalar, ("object", ((key, shape), ...)) in order of the keys, or ("array", frozenset of shapes)."""


def _shapes(a: Any, b: Any, state: PathState) -> Iterator[Found]:
    """Yield the differences in shape."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        if not _fits(_shape(a, state), _shape(b, state)):
            yield Found([], a, b)
        return
    for key, one in a.items():
        below = state.child(key)
        if below.ends & IGNORED:
            continue
        if key not in b:
            yield Found([key], one, MISSING)
            continue
        for found in _shapes(one, b[key], below):
            found.steps.append(key)
            yield found
    yield from _surplus(a, b, state)


def _shape(value: Any, state: PathState) -> _Shape:
    if isinstance(value, dict):
        kept = [(key, below) for key in value if not (below := state.child(key)).ends & IGNORED]
        return "object", tuple(sorted((key, _shape(value[key], below)) for key, below in kept))
    if isinstance(value, list):
        places = [(item, below) for at, item in enumerate(value) if not (below := state.child(at)).ends & IGNORED]
        return "array", frozenset(_shape(item, below) for item, below in places)
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "boolean"
    return "null" if value is None else "number"


def shape_of(value: Any, state: PathState) -> Any:
    """Return a value with the same `repr` for all values of one shape, except that arrays may have others too."""
    return _ordered(_shape(value, state))


def _ordered(shape: _Shape) -> Any:
    if isinstance(shape, str):
        return shape
    kind, inner = shape
    if kind == "object":
        return kind, [(key, _ordered(below)) for key, below in inner]
    return kind, sorted(repr(_ordered(below)) for below in inner)


def _fits(a: _Shape, b: _Shape) -> bool:
    if a == b:
        return True
    if isinstance(a, str) or isinstance(b, str) or a[0] != b[0]:
        return False
    one, other = a[1], b[1]
    if a[0] == "object":
        return [key for key, _ in one] == [key for key, _ in other] and all(
            _fits(mine, theirs) for (_, mine), (_, theirs) in zip(one, other, strict=True)
        )
    if not one or not other:
        return True
    return all(any(_fits(mine, theirs) for theirs in other) for mine in one) and all(
        any(_fits(mine, theirs) for mine in one) for theirs in other
    )
