"""Conditions on fields of payloads: `price > 3`, `content=hi`, `items.*.name ~ lamp`."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from typing import Any

from ..errors import StoreError
from ..json_path import PathState, compiled, parse, values_at
from .text import normalised

_PATH = re.compile(r"""(?: \[ (?: "(?:[^"\\]|\\.)*" | [^"\]]* ) \] | \\. | [^\[\\=<>!~] )*""", re.VERBOSE)
_OPERATOR = re.compile(r"!=|<=|>=|==|=[<>](?=\s|-?[0-9])|=~(?=\s)|=|<|>|~")
_MEANT = {"=<": "<=", "=>": ">=", "=~": "~"}
"""What is meant by operators of other languages. Elsewhere, as in `content=<b>`, the value begins behind the `=`."""
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NO_JSON = object()


class PayloadCondition:
    """A condition `PATH OPERATOR VALUE`. It holds if it holds for any value that the path leads to.

    The operators are `=` or `==`, `!=`, `<`, `<=`, `>`, `>=` and `~` (contains, in any case and width). A value that is
    JSON is compared by type: `5` equals the number 5 and the text "5", `"5"` only the text. Numbers are ordered among
    numbers, texts among texts. A payload without the path fulfils no condition. Raises `StoreError`, which names the
    character, if the text is no condition.
    """

    def __init__(self, text: str) -> None:
        path_end = _PATH.match(text).end()  # type: ignore[union-attr]  # it matches the empty text
        found = _OPERATOR.match(text, path_end)
        if found is None or not text[:path_end].strip():
            expected = "an operator (=, !=, <, <=, >, >=, ~)" if text[:path_end].strip() else "a path"
            raise StoreError(
                f"{text!r} is no condition: {expected} is missing at character {path_end + 1}. "
                "Give PATH=VALUE, such as content=hi or 'price > 3'."
            )
        if meant := _MEANT.get(found[0]):
            at = path_end + 1
            raise StoreError(
                f"{text!r} is no condition: {found[0]} at character {at} is no operator. Did you mean {meant}?"
            )
        self._operator = found[0].replace("==", "=")
        word = text[found.end() :].strip()
        value = _json(word)
        if self._operator in _ORDERS and (not word or isinstance(value, bool | list | dict) or value is None):
            raise StoreError(
                f"{text!r} is no condition: a number or a text must follow {self._operator} at character "
                f"{found.end() + 1}, such as 'price > 3'."
            )
        self._wanted: list[Any] = [word] if value is _NO_JSON else [value]
        if isinstance(value, bool | int | float) or value is None:
            self._wanted.append(word)
        self._folded = normalised(value if isinstance(value, str) else word)
        self.path = text[:path_end].strip()
        self._root: PathState = compiled([parse(self.path)])
        self.absent: bool | None = None
        """True if no payload that was asked about has the path, which is probably misspelt; None if none was."""

    def takes(self, payload: Any) -> bool:
        """Return whether the condition holds for a decoded payload."""
        values = list(values_at(payload, self._root))
        self.absent = not values and self.absent is not False
        return any(map(self._holds, values))

    def _holds(self, value: Any) -> bool:
        if self._operator == "~":
            return self._folded in normalised(value if isinstance(value, str) else json.dumps(value))
        if self._operator in _ORDERS:
            wanted = self._wanted[0]
            return _is_number(value) == _is_number(wanted) and isinstance(value, str) == isinstance(wanted, str) and (
                _is_number(value) or isinstance(value, str)
            ) and _ORDERS[self._operator](value, wanted)  # fmt: skip
        equal = any(_same(value, wanted) for wanted in self._wanted)
        return equal == (self._operator == "=")


def _json(word: str) -> Any:
    """Return the JSON value that was typed, or `_NO_JSON`."""
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        return _NO_JSON


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(value: Any, wanted: Any) -> bool:
    """Return whether two JSON values are equal; true is not 1."""
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
