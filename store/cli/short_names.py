"""Names cut to the parts that tell them apart, for columns that are too narrow for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

KNOWN = 200
"""Names that `ShortNames` keeps distinct across calls, at least."""
_LEAST_CUT = 4
"""A common beginning or end that is shorter is not cut off."""
_WORD_AT_END = re.compile(r"\w*\Z")


def short_names(names: Iterable[str], width: int) -> dict[str, str]:
    """Return texts for names, which fit a width and differ if the names do, as far as the width allows.

    If a name does not fit, all lose the beginning that they have in common, in whole words, and if that is not enough,
    also the end. One that is still too wide is cut around the place where it differs from the others. A `*` at the
    beginning stays: the prefix of an experiment.
    """
    found = dict.fromkeys(names, "")
    for star in ("*", ""):
        rests = {name: name[len(star) :] for name in found if name.startswith("*") == bool(star)}
        short = _shortened(list(rests.values()), width - len(star))
        found.update({name: star + short[rest] for name, rest in rests.items()})
    return found


def _shortened(names: list[str], width: int) -> dict[str, str]:
    found = {name: name for name in names}
    if all(_width(name) <= width for name in names):
        return found
    if len(names) == 1:
        return {names[0]: cut_in_middle(names[0], width)}
    begin, end = _common(names), _common([name[::-1] for name in names])
    for cut in (0, end):
        if any(_width(text) > width for text in found.values()):
            found = {name: _without(name, begin, cut) for name in names}
    places = _places(list(found.values()))
    return {name: _around(text, places[text], width) if _width(text) > width else text for name, text in found.items()}


class ShortNames:
    """Names that come one after the other: those that are known so far stay distinct."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._of_width = 0

    def of(self, names: Iterable[str], width: int) -> dict[str, str]:
        """Return texts for names, and for others that are known."""
        new = set(names) - self._texts.keys()
        if new or width != self._of_width:
            known = list(self._texts) if len(self._texts) <= KNOWN else []
            self._texts = short_names([*known, *names], width)
            self._of_width = width
        return self._texts


def cut_in_middle(text: str, width: int) -> str:
    """Return text of exactly this width, padded, or cut in its middle: two thirds of the rest are its end."""
    from rich.cells import set_cell_size

    if _width(text) <= width:
        return set_cell_size(text, width)
    end = (width - 1) * 2 // 3
    return set_cell_size(text, width - 1 - end) + "…" + set_cell_size(text[::-1], end)[::-1]


def _places(texts: list[str]) -> dict[str, int]:
    """Return where each text begins to differ from all others."""
    found = dict.fromkeys(texts, 0)
    ordered = sorted(found)
    for one, other in pairwise(ordered):
        same = _same(one, other)
        found[one], found[other] = max(found[one], same), max(found[other], same)
    return found


def _around(text: str, place: int, width: int) -> str:
    """Return the part of a text around a place, a third of it before the place."""
    from rich.cells import set_cell_size

    start = max(place - width // 3, 0)
    rest = ("…" if start else "") + text[start:]
    return rest if _width(rest) <= width else set_cell_size(rest, width - 1) + "…"


def _common(texts: list[str]) -> int:
    """Return the length of the common beginning, up to the end of a word; 0 if it is not worth a cut."""
    length = len(_WORD_AT_END.sub("", min(texts)[: _same(min(texts), max(texts))]))
    return length if length >= _LEAST_CUT else 0


def _without(name: str, begin: int, end: int) -> str:
    """Return a name without so many characters at its beginning and its end, unless there are no others."""
    if len(name) <= begin + end:
        return name
    return ("…" if begin else "") + name[begin : len(name) - end] + ("…" if end else "")


def _same(one: str, other: str) -> int:
    """Return the number of characters at the beginning that are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
