"""Search for text in payloads and meta: in the raw bytes, in JSON strings at any nesting, and behind escapes."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

LEVELS = 32
"""Maximum number of times that escapes are decoded: JSON in JSON doubles the backslashes at each level."""
MAX_NESTING = 200
"""Maximum levels of JSON strings that contain JSON."""
_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([\"\\/bfnrt]))"
)
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class TextConditions:
    """Literal texts and regular expressions to search for in bytes."""

    def __init__(self, contains: tuple[str, ...], matches: tuple[str, ...]) -> None:
        self._literals = [(_raw(text), {text, unicodedata.normalize("NFC", text)}) for text in contains]
        self._patterns = [re.compile(pattern) for pattern in matches]

    def all_in(self, value: bytes) -> bool:
        """Return whether every text and every pattern is found in the bytes."""
        return all(self._found(value))

    def any_in(self, value: bytes) -> bool:
        """Return whether at least one text or pattern is found in the bytes."""
        return any(self._found(value))

    def _found(self, value: bytes) -> Iterator[bool]:
        plain = b"\\" not in value and value.isascii()  # nothing to decode
        decoded: list[str] | None = None
        for raw, forms in self._literals:
            if raw in value or plain:
                yield raw in value
                continue
            decoded = list(texts(value)) if decoded is None else decoded
            yield any(form in text for text in decoded for form in forms)
        for pattern in self._patterns:
            decoded = list(texts(value)) if decoded is None else decoded
            yield any(pattern.search(text) for text in decoded)


def _raw(text: str) -> bytes:
    """Return the bytes of a text; surrogate escapes of a command-line argument become the bytes as typed."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def texts(value: bytes) -> Iterator[str]:
    """Yield every text in bytes: the whole as text, each JSON string in it, and strings in JSON inside strings.

    Also the whole with its escapes decoded level by level, which finds text around JSON, between lines of JSON, under
    a duplicate key and in a nesting too deep to parse. Each text is also yielded as NFC, if that differs.
    """
    for text in _decoded(value):
        yield text
        if not text.isascii() and not unicodedata.is_normalized("NFC", text):
            yield unicodedata.normalize("NFC", text)


def _decoded(value: bytes) -> Iterator[str]:
    text = value.decode("utf-8", "backslashreplace")
    yield text
    unescaped = text
    for _ in range(LEVELS):
        before, unescaped = unescaped, _ESCAPE.sub(_unescape, unescaped)
        if unescaped == before:
            break
        yield unescaped
    waiting: list[tuple[Any, int]] = [(text, 0)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, str):
            if depth:
                yield item
            if depth < MAX_NESTING and item.lstrip()[:1] in ("{", "[", '"'):
                try:
                    waiting.append((json.loads(item), depth + 1))
                except (ValueError, RecursionError):
                    continue
        elif isinstance(item, dict):
            waiting += [(part, depth) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            waiting += [(part, depth) for part in item]


def _unescape(found: re.Match[str]) -> str:
    high, low, code, letter = found.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    return chr(int(code, 16)) if code else _LETTERS.get(letter, letter)
