"""Text for people: safe for terminals, numbers with nouns, durations with units."""

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
    if number != 1:
        word = (
            f"{word[:-1]}ies" if word.endswith(("ly", "ry")) else word + ("es" if word.endswith(("ch", "s")) else "s")
        )
    return f"{number:,} {word}"


def length(seconds: float | None) -> str:
    """Return a duration with a unit."""
    if seconds is None:
        return "-"
    if seconds == 0:
        return "0 s"
    for unit, factor in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    if seconds < 120:
        return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"
