"""Paths that alone make many messages differ, such as the time of sending in a raw comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ...json_path import general_path
from ...matching.match import Match
from .result import Difference

__all__ = ["SharedPaths", "shared_paths"]

FEWEST = 3
"""Changed messages of which that can be said."""
MOST = 3
"""Paths in which a message may differ."""
MOST_VALUES = 100
"""Values in which a message may differ, such as the times of the elements of an array."""
_BY_VALUE = Match()


class SharedPaths(NamedTuple):
    """The paths in which most changed messages differ, and in nothing else."""

    paths: tuple[str, ...]
    """As `Match.ignore` takes them (see `general_path`)."""
    messages: int
    """Changed messages that differ there only."""
    changed: int
    """Changed messages that were examined."""


def shared_paths(differences: Iterable[Difference]) -> SharedPaths | None:
    """Return the paths in which more than half of the changed messages differ only; None if there are none.

    Memory use is bounded by the paths of the differences.
    """
    found: Counter[tuple[str, ...]] = Counter()
    changed = 0
    for difference in differences:
        if difference.kind == "changed":
            changed += 1
            found[_paths(difference)] += 1
    del found[()]
    if not found or changed < FEWEST:
        return None
    [(paths, messages)] = found.most_common(1)
    return SharedPaths(paths, messages, changed) if messages * 2 > changed else None


def _paths(difference: Difference) -> tuple[str, ...]:
    """Return the paths in which a message differs; () if these are more than `MOST`, or no JSON values differ."""
    a, b, match = difference.a, difference.b, difference.match
    if a is None or b is None:
        return ()
    rules = _BY_VALUE if match is None or match.bytes_only else match
    found = rules.differences(a.payload, b.payload, MOST_VALUES + 1) or ()
    paths = {general_path(one.path) for one in found}
    fewest = tuple(sorted(path for path in paths if f"**.{path}" not in paths))
    return () if len(found) > MOST_VALUES or len(fewest) > MOST or "$" in paths else fewest
