"""Two payloads one above the other, with the first difference marked."""

from __future__ import annotations

import json
import unicodedata
from typing import Any, NamedTuple

from messager_store.json_path import place_of
from messager_store.json_text import read, written
from messager_store.text import safe

LEAD = 40
"""Characters shown before the first difference of a text that is cut."""


class _Text(NamedTuple):
    """A payload as text, and the part of it that differs."""

    text: str
    begin: int
    end: int
    is_there: bool = True


def side_by_side(recorded: bytes, live: bytes, path: str | None, width: int) -> list[str]:
    """Return the texts of both payloads and a line that marks where they differ: three lines of `width` columns.

    `path` is the JSON path of the first difference; values before it may differ where the comparison ignores them.
    Texts that do not fit are cut around the difference.
    """
    one, other = _located(recorded, path), _located(live, path)
    if one is not None and other is not None and one.is_there != other.is_there:
        one, other = _located(recorded, path, item=True), _located(live, path, item=True)
    if one is None or other is None or path is None:
        one, other = _whole(whole_text(recorded)), _whole(whole_text(live))
        if one.text == other.text:
            one, other = _whole(repr(recorded)[2:-1]), _whole(repr(live)[2:-1])
    one, other = _narrowed(one, other)
    before = [_columns(each.text[: each.begin]) for each in (one, other)]
    padded = max(max(before) - lead + _columns(each.text) for each, lead in zip((one, other), before, strict=True))
    shortest = min(LEAD, one.begin, other.begin)
    lines = [_cut(each, each.begin if padded <= width else shortest, width) for each in (one, other)]
    indent = max(_columns(line[:at]) for line, at in lines)
    texts = [" " * (indent - _columns(line[:at])) + line for line, at in lines]
    length = max(one.end - one.begin, other.end - other.begin, 1)
    marker = " " * indent + "^" * max(1, min(length, width - indent))
    return [*texts, marker]


def shortened(payload: bytes, width: int) -> str:
    """Return a payload as text of at most `width` columns."""
    return _cut(_whole(whole_text(payload)), 0, width)[0]


def _whole(text: str) -> _Text:
    return _Text(text, 0, len(text))


def whole_text(payload: bytes) -> str:
    """Return JSON without escapes of other characters; anything else as it is. Control characters are escaped."""
    try:
        return safe(written(read(payload.decode())))
    except (ValueError, RecursionError):
        return safe(payload.decode("utf-8", "backslashreplace"))


def _narrowed(one: _Text, other: _Text) -> tuple[_Text, _Text]:
    """Return both texts with their differing parts without what these begin and end with alike."""
    a, b = one.text[one.begin : one.end], other.text[other.begin : other.end]
    shorter = min(len(a), len(b))
    before = next((at for at in range(shorter) if a[at] != b[at]), shorter)
    most = shorter - before
    after = next((at for at in range(most) if a[-1 - at] != b[-1 - at]), most)
    return (
        _Text(one.text, one.begin + before, one.end - after),
        _Text(other.text, other.begin + before, other.end - after),
    )


def _cut(of: _Text, lead: int, width: int) -> tuple[str, int]:
    """Return the part of a text around its difference, and the position of the difference in it."""
    start = of.begin - lead
    shown, used = "…" if start else "", 1 if start else 0
    at = len(shown) + lead
    for position in range(start, len(of.text)):
        columns = _columns(of.text[position])
        rest = position + 1 < len(of.text)
        if used + columns + rest > width:
            return shown + "…", at
        shown, used = shown + of.text[position], used + columns
    return shown, at


def _columns(text: str) -> int:
    """Return the width of a text on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _located(payload: bytes, path: str | None, *, item: bool = False) -> _Text | None:
    """Return a JSON payload as text with the value at a path, or the place where it would be; None if it is not JSON.

    With `item`, the value begins with its key.
    """
    try:
        value = read(payload.decode())
    except (ValueError, RecursionError):
        return None
    return _written(value, place_of(path or "$"), item)


def _written(value: Any, steps: list[str | int], item: bool) -> _Text:
    """Return a value as JSON, and where the value behind these steps begins and ends."""
    if not steps:
        return _whole(safe(written(value)))
    if not isinstance(value, dict | list):
        return _whole(safe(written(value)))._replace(is_there=False)
    step, *rest = steps
    entries: Any = value.items() if isinstance(value, dict) else enumerate(value)
    text, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    found: _Text | None = None
    for count, (key, entry) in enumerate(entries):
        start = len(text)
        text += ", " if count else ""
        if isinstance(value, dict):
            text += safe(json.dumps(key, ensure_ascii=False)) + ": "
        if found is None and key == step and type(key) is type(step):
            inner = _written(entry, rest, item)
            end = len(text) + inner.end
            found = _Text("", start if item and not rest else len(text) + inner.begin, end, inner.is_there)
            text += inner.text
        else:
            text += safe(written(entry))
    found = found or _Text("", len(text), len(text), False)
    return found._replace(text=text + closing)
