"""The decoder: what an event says, as text for people.

There is one decoder, so that Python, SQL and a search find the same text. Raise `DECODER_VERSION` whenever the text
of any event changes: projections are made again then.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from ..json_text import Doubled, read
from .gap import gap_of

DECODER_VERSION = 3
"""Stored with each projection."""
MAX_TEXT = 1_000_000
"""Characters of a text, and of a folded text, that are stored and searched."""
LEVELS = 3
"""Maximum levels of JSON that are decoded: JSON in JSON in JSON."""
KEYS = ("content", "text", "message")
"""Keys of the object whose value is its text; the first one that holds text counts."""
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # half of the time of `json.loads`
_QUOTED = {key: f'"{key}"' for key in KEYS}
_OPENING = ("{", "[", '"')
_ESCAPE = re.compile(r"\\(?:(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|/)|.)")
_NO_DATABASE_HOLDS = re.compile("[\0\ud800-\udfff]")


def readable(payload: bytes) -> str:
    """Return the content of a payload as text: the value of one of the `KEYS`, if any, with nested JSON decoded.

    A list of blocks, as in AgentScope, becomes the texts of the blocks. JSON without any of these, or with two of one
    key, is returned as it was recorded, without escapes; bytes that are not UTF-8 as escapes. U+0000 becomes U+2400 and
    a lone surrogate U+FFFD, because no database holds them.
    """
    return storable(_content(payload.decode("utf-8", "backslashreplace")))


def storable(text: str) -> str:
    """Return text that any database holds."""
    if "\0" not in text:
        try:
            text.encode()  # takes less time than a search
            return text
        except UnicodeEncodeError:
            pass
    return _NO_DATABASE_HOLDS.sub(lambda found: "\u2400" if found[0] == "\0" else "\ufffd", text)


def _content(text: str) -> str:
    for level in range(LEVELS):
        stripped = text.strip(" \t\n\r")
        if stripped[:1] not in _OPENING:
            return text  # no object, list or string: spares an attempt to parse it
        try:
            data, end = _scan(stripped, 0)
        except (ValueError, RecursionError, StopIteration):
            return text
        if end != len(stripped):
            return text
        if isinstance(data, str):
            return text if level else data  # a message may be a quotation
        inner = None
        if isinstance(data, dict):
            for key in KEYS:
                inner = data.get(key)
                if inner.__class__ is not str:
                    inner = _text_of(inner)
                if inner is not None:
                    break
        if inner is None or (text.count(_QUOTED[key]) > 1 and _is_doubled(text, key)):
            return _ESCAPE.sub(_unescaped, text)
        text = inner
    return text


def _is_doubled(text: str, key: str) -> bool:
    """Return whether the object of a JSON text has a key more than once."""
    try:
        data = read(text)
    except RecursionError:
        return True
    return isinstance(data, Doubled) and [name for name, _ in data.pairs].count(key) > 1


def _unescaped(found: re.Match[str]) -> str:
    """Return the character of an escape, unless JSON must escape it."""
    if found[1] is None:
        return found[0]
    char: str = json.loads(f'"{found[0]}"')
    return found[0] if char < " " or char in '"\\' else char


def _text_of(value: Any) -> str | None:
    """Return the texts of a list of blocks; None for any other value."""
    if not isinstance(value, list) or not all(isinstance(block, dict) for block in value):
        return None
    texts = [block["text"] for block in value if isinstance(block.get("text"), str)]
    return "\n".join(texts) if texts else None


def text_of_meta(kind: str, meta: dict[str, Any]) -> str:
    """Return the text of a gap or a mark."""
    if kind == "mark":
        given = meta.get("fields") or {}
        fields = " ".join(f"{key}={value}" for key, value in given.items()) if isinstance(given, dict) else given
        return storable(f"{meta.get('name', '')} {fields}".rstrip())
    gap = gap_of(meta)
    length = ""
    if gap.until is not None and gap.since is not None:
        length = f"{(gap.until - gap.since) / 1e9:.3f} s, "
    return storable(f"{length}{'unknown number' if gap.count is None else gap.count} lost: {gap.reason}")


def normalised(text: str) -> str:
    """Return text to search in, or to search for: NFKC-normalised and case-folded."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold()
