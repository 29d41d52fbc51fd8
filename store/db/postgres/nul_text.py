"""Texts that PostgreSQL cannot hold as they are.

No text of its own can have U+0000 in it: that is kept as U+0001 and "0", and U+0001 as two of itself.
"""

from __future__ import annotations


def encode(value: str) -> bytes:
    """A text as it is kept. Raises `UnicodeEncodeError` for half a character."""
    if "\x00" in value or "\x01" in value:
        value = value.replace("\x01", "\x01\x01").replace("\x00", "\x010")
    return value.encode()


def decode(value: bytes) -> str:
    """A text that was kept, as it was."""
    text = bytes(value).decode()
    if "\x01" not in text:
        return text
    return "\x01".join(part.replace("\x010", "\x00") for part in text.split("\x01\x01"))
