"""Encoding of texts with U+0000, which PostgreSQL cannot hold.

U+0000 is stored as U+0001 and "0", and U+0001 as two of itself.
"""

from __future__ import annotations


def encode(value: str) -> bytes:
    """Return a text as it is stored. Raises `UnicodeEncodeError` for a lone surrogate."""
    if "\x00" in value or "\x01" in value:
        value = value.replace("\x01", "\x01\x01").replace("\x00", "\x010")
    return value.encode()


def decode(value: bytes) -> str:
    """Return the text that was stored."""
    text = bytes(value).decode()
    if "\x01" not in text:
        return text
    return "\x01".join(part.replace("\x010", "\x00") for part in text.split("\x01\x01"))
