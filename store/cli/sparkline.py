"""Bars and sparklines as text: Unicode blocks, or ASCII if the output's encoding has none."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_LEVELS, _ASCII_LEVELS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_EIGHTHS, _ASCII_BAR = " ▏▎▍▌▋▊▉█", "#"


def has_blocks() -> bool:
    """Return whether standard output can show block characters."""
    try:
        (_LEVELS + _EIGHTHS + "┆·…").encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def sparkline(values: Sequence[int], most: int, *, blocks: bool = True) -> str:
    """Return one character for each value, as high as its part of `most`. Zero is a space, and only zero."""
    levels = _LEVELS if blocks else _ASCII_LEVELS
    top = len(levels) - 1
    return "".join(levels[min(top, -(-value * top // most))] if value > 0 else " " for value in values)


def bar(value: int, most: int, width: int, *, blocks: bool = True) -> str:
    """Return a bar of at most `width` characters, as long as a value's part of `most`. Only that of zero is empty."""
    if value <= 0:
        return ""
    if not blocks:
        return _ASCII_BAR * max(1, value * width // most)
    whole, eighths = divmod(max(1, value * width * 8 // most), 8)
    return _EIGHTHS[-1] * whole + (_EIGHTHS[eighths] if eighths else "")
