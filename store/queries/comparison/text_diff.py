"""First difference of two texts, and the part of a long text that is shown."""

from __future__ import annotations

LONGEST = 400
"""Maximum characters of a text that are shown, unless in full."""
LEAD = 60
"""Characters shown before the first difference of a shortened text."""


def shortened(text: str, start: int = 0, *, most: int = LONGEST, full: bool = False) -> str:
    """Return `most` characters of a text from `start` on, with an ellipsis at each cut; with `full`, the text."""
    if full:
        return text
    end = start + most
    return ("…" if start else "") + text[start:end] + ("…" if len(text) > end else "")


def common_prefix(a: str, b: str) -> int:
    """Return the number of characters that both texts begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
