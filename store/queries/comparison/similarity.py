"""Similarity of texts, and the pairs of most similar texts of two lists in the same order."""

from __future__ import annotations

from collections.abc import Callable

LONGEST = 4000
"""Characters of a text that are compared."""
_PAIRED = 0.2
"""Added to the similarity of a pair, so that unlike texts at the same place are paired too."""

Grams = frozenset[str]


def grams(text: str) -> Grams:
    """Return the sequences of three characters in the first `LONGEST` characters of a text, and at its ends."""
    padded = f"\0{text[:LONGEST]}\0"
    return frozenset([padded[at : at + 3] for at in range(len(padded) - 2)] or [padded])


def similarity(a: Grams, b: Grams) -> float:
    """Return the share of common sequences, from 0 to 1 (the Dice coefficient)."""
    return 2 * len(a & b) / (len(a) + len(b))


def most_similar(a: int, b: int, score: Callable[[int, int], float]) -> list[tuple[int, int]]:
    """Return pairs of positions, in order on both sides, with the greatest sum of scores. Takes a * b steps."""
    rows = [[0.0] * (b + 1)]
    scores = [[score(y, x) + _PAIRED for x in range(b)] for y in range(a)]
    for line in reversed(scores):
        below, row = rows[-1], [0.0] * (b + 1)
        for x in range(b - 1, -1, -1):
            row[x] = max(below[x], row[x + 1], below[x + 1] + line[x])
        rows.append(row)
    rows.reverse()
    found, y, x = [], 0, 0
    while y < a and x < b:
        if rows[y][x] == rows[y + 1][x + 1] + scores[y][x]:
            found.append((y, x))
            y, x = y + 1, x + 1
        elif rows[y][x] == rows[y + 1][x]:
            y += 1
        else:
            x += 1
    return found
