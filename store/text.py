"""Words for people: text that cannot harm a terminal, numbers with their nouns."""

from __future__ import annotations


def safe(text: str) -> str:
    """Text without anything a terminal would obey: what cannot be printed is shown escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\u200c\u200d" else char.encode("unicode_escape", "replace").decode()
        for char in text
    )


def plural(number: int, word: str) -> str:
    """A number and its noun."""
    return f"{number:,} {word}{'' if number == 1 else 's' if not word.endswith('ch') else 'es'}"
