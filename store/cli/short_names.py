"""Names cut to the parts that tell them apart, for columns that are too narrow for them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

KNOWN = 200
"""Names that `ShortNames` keeps distinct across calls, at least."""
_LEAST_CUT = 4
"""A beginning or an end that is shorter is not cut off."""
_WORDS = re.compile(r"\w+")
_WORD_AT_END = re.compile(r"\w*\Z")


def short_names(names: Iterable[str], width: int) -> dict[str, str]:
    """Return texts for names, which fit a width and differ if the names do, as far as the width allows.

    Names that fit are not changed, unless they begin like others that do not fit. Those lose the beginning that they
    all have in common, and if that is not enough, also the end, in whole words. If one still does not fit, it is the
    longest part of it, in whole words, that no other name has; else it is cut in its middle, or around the place where
    it differs. A `*` at the beginning stays: the prefix of an experiment.
    """
    found = dict.fromkeys(names, "")
    for star in ("*", ""):
        rests = {name: name[len(star) :] for name in found if name.startswith("*") == bool(star)}
        short = _shortened(list(rests.values()), width - len(star))
        found.update({name: star + short[rest] for name, rest in rests.items()})
    return found


def _shortened(names: list[str], width: int) -> dict[str, str]:
    found = {name: name for name in names}
    wide = [name for name in found if _width(name) > width]
    if not wide:
        return found
    family = {_first_word(name) for name in wide}
    members = [name for name in found if _first_word(name) in family]
    if len(members) > 1:
        begin, end = _common(members), _common([name[::-1] for name in members])
        begin, end = (0 if same < _LEAST_CUT else same for same in (begin, end))
        for cut in (0, end):
            found.update({name: _without(name, begin, cut) for name in members})
            if all(_width(found[name]) <= width for name in members):
                break
    _cut(found, width)
    return found


def _without(name: str, begin: int, end: int) -> str:
    """Return a name without so many characters at its beginning and its end, unless there are no others."""
    if len(name) <= begin + end:
        return name
    return ("…" if begin else "") + name[begin : len(name) - end] + ("…" if end else "")


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

    return set_cell_size(text, width) if _width(text) <= width else _split(text, width, (width - 1) * 2 // 3)


def _split(text: str, width: int, end: int) -> str:
    """Return the beginning and the end of a text, the end `end` wide."""
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1 - end) + "…" + set_cell_size(text[::-1], end)[::-1]


def _cut(found: dict[str, str], width: int) -> None:
    """Cut the texts that are wider than a width. In each way of cutting, those are cut that it keeps distinct."""
    left = {name: text for name, text in found.items() if _width(text) > width}
    if not left:
        return
    taken = Counter(text for name, text in found.items() if name not in left)
    for way in _ways(found, left, width):
        made = {name: way(name) for name in left}
        seen = taken + Counter(text for text in made.values() if text is not None)
        for name, text in made.items():
            if text is not None and seen[text] == 1:
                found[name] = text
                taken[text] += 1
                del left[name]
        if not left:
            return
    found.update({name: cut_in_middle(text, width) for name, text in left.items()})


def _ways(found: dict[str, str], left: dict[str, str], width: int) -> Iterator[Callable[[str], str | None]]:
    """Yield functions that cut the text of a name; `left` are the names that are not cut yet."""
    if len(found) > 1:
        parts = {name: list(_parts(text, width)) for name, text in found.items()}
        number = Counter(part for mine in parts.values() for part in mine)
        yield lambda name: max((part for part in parts[name] if number[part] == 1), key=_width, default=None)
    yield lambda name: cut_in_middle(left[name], width)
    places = _places(list(found.values()))
    yield lambda name: _around(left[name], places[left[name]], width)
    for end in range(width - 1):
        yield lambda name, end=end: _split(left[name], width, end)  # type: ignore[misc]


def _parts(text: str, width: int) -> Iterator[str]:
    """Yield the parts of a text that consist of whole words and fit a width, the later ones first."""
    words = [(word.start(), word.end()) for word in _WORDS.finditer(text)]
    for start, _ in reversed(words):
        for _, end in words:
            if end > start:
                part = ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
                if len(part) > width:
                    break
                if _width(part) <= width:
                    yield part


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
    """Return the length of the common beginning, up to the end of a word."""
    first = min(texts)
    return len(_WORD_AT_END.sub("", first[: _same(first, max(texts))]))


def _same(one: str, other: str) -> int:
    """Return the number of characters at the beginning that are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _first_word(name: str) -> str:
    word = _WORDS.search(name)
    return name[: word.end()] if word else ""


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
