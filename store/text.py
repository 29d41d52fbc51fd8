"""Text for people: safe for terminals, numbers with nouns."""

from __future__ import annotations


def safe(text: str) -> str:
    """Return text with unprintable characters escaped, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\u200c\u200d" else char.encode("unicode_escape", "replace").decode()
        for char in text
    )


def plural(number: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {word}{'' if number == 1 else 's' if not word.endswith('ch') else 'es'}"
