"""Digests of payloads under a `Match`: payloads with equal digests and near numbers are the same by its rules.

The reverse holds except for arrays of which only the shape is compared, and for JSON too deep for Python to read:
`Match.same` compares these in pairs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from math import isfinite
from typing import Any

from ...json_path import PathState, compiled, may_hold_json, parse
from ...matching.json_difference import IGNORED, shape_of
from ...matching.match import Match

Number = int | float
_LENGTH = 16
"""Bytes of a digest."""


class Canonical:
    """Digests by the rules of a `Match`, or of the bytes without one."""

    def __init__(self, match: Match | None) -> None:
        self._match = None if match is None or match.bytes_only else match
        self._tolerance = 0.0 if match is None else match.tolerance
        self._root = compiled((), ())
        if match is not None:
            self._root = compiled([parse(path) for path in match.ignore], [parse(path) for path in match.shape])

    @property
    def has_numbers(self) -> bool:
        """True if numbers are compared with a tolerance, and are no part of digests."""
        return self._match is not None and self._tolerance > 0

    def digest(self, payload: bytes) -> tuple[bytes, tuple[Number, ...]]:
        """Return the digest of a payload, and its numbers if there is a tolerance for them."""
        if self._match is not None:
            numbers: list[Number] = []
            try:
                text = repr(self._value(json.loads(payload.decode()), self._root, numbers))
                return sha256(b"json" + text.encode()).digest()[:_LENGTH], tuple(numbers)
            except (ValueError, RecursionError):
                pass
        return sha256(payload).digest()[:_LENGTH], ()

    def near(self, a: Sequence[Number], b: Sequence[Number]) -> bool:
        """Return whether the numbers of two payloads with equal digests are within the tolerance."""
        return a == b or all(map(self._is_near, a, b))

    def _is_near(self, a: Number, b: Number) -> bool:
        try:
            return a == b or abs(a - b) <= self._tolerance
        except OverflowError:  # an int beyond all floats
            return False

    def _value(self, value: Any, state: PathState, numbers: list[Number]) -> Any:
        """Return a value with the same `repr` for all values that are equal by the rules, numbers excepted."""
        if state.ends:
            return ("ignored",) if state.ends & IGNORED else ("shape", shape_of(value, state))
        if isinstance(value, dict):
            kept = [(key, below) for key in sorted(value) if not (below := state.child(key)).ends & IGNORED]
            return "object", [(key, self._value(value[key], below, numbers)) for key, below in kept]
        if isinstance(value, list):
            places = [(item, below) for at, item in enumerate(value) if not (below := state.child(at)).ends & IGNORED]
            return "array", [self._value(item, below, numbers) for item, below in places]
        if isinstance(value, str):
            return self._text(value, state, numbers)
        if isinstance(value, bool) or value is None or (isinstance(value, float) and not isfinite(value)):
            return "literal", value
        if self._tolerance:
            numbers.append(value)
            return ("number",)
        return int(value) if value == int(value) else value

    def _text(self, text: str, state: PathState, numbers: list[Number]) -> Any:
        if may_hold_json(text):
            before = len(numbers)
            try:
                return "text", self._value(json.loads(text), state, numbers)
            except (ValueError, RecursionError):
                del numbers[before:]
        return text
