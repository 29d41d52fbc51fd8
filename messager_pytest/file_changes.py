"""Recordings that the tests of a run changed, and those that no test uses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from .marks import BadMark, mark_of
from .recording_paths import folders, recordings_in, shown

_MOST_LISTED = 5


@dataclass(slots=True)
class Change:
    """Change of a recording by a test, in messages."""

    path: str
    made: int = 0
    changed: int = 0
    added: int = 0
    dropped: int = 0
    end: str = ""
    """Why a first recording ended, if not all of its agents had returned."""

    def __bool__(self) -> bool:
        return bool(self.made or self.changed or self.added or self.dropped)

    def add(self, other: Change) -> None:
        """Add the counts of another change."""
        self.made += other.made
        self.changed += other.changed
        self.added += other.added
        self.dropped += other.dropped
        self.end = self.end or other.end

    def to_dict(self) -> dict[str, Any]:
        """Return the change as it travels in the report of a test."""
        return asdict(self)


def lines(changes: Iterable[Mapping[str, Any]], base: Path) -> list[str]:
    """Return a line for each recording that was changed, for a person in the folder `base`."""
    total: dict[str, Change] = {}
    for change in changes:
        total.setdefault(change["path"], Change(change["path"])).add(Change(**change))
    return [f"{shown(Path(path), base)}: {_counts(change)}" for path, change in sorted(total.items())]


def _counts(change: Change) -> str:
    named = (("recorded", change.made), ("changed", change.changed), ("added", change.added))
    counts = [(word, count) for word, count in (*named, ("dropped", change.dropped)) if count]
    (word, count), *rest = counts
    first = f"{count:,} message{'' if count == 1 else 's'} {word}"
    return ", ".join([first, *(f"{count:,} {word}" for word, count in rest), *filter(None, [change.end])])


def used_by(items: Iterable[pytest.Item], fixture: str, root: Path) -> tuple[set[str], set[str]]:
    """Return the recordings that these tests use, and the folders of recordings beside them."""
    used, files = set(), set()
    for item in items:
        files.add(item.path)
        if fixture in getattr(item, "fixturenames", ()):
            try:
                used.add(str(mark_of(item).path))
            except BadMark:  # reported when the test runs
                continue
    return used, {str(folder) for folder in folders(files, root)}


def unused_lines(
    used: Iterable[str],
    found: Collection[str],
    base: Path,
    modules: Collection[str],
    patterns: Iterable[str],
    named: Sequence[str],
) -> list[str]:
    """Return a line for each recording in these folders that is not used, for a person in the folder `base`.

    A note says if tests that may use them were not collected: those of other test files, which match `patterns`, than
    `modules`, or other tests than those that are `named`.
    """
    known = {Path(path).resolve() for path in used}
    paths = sorted({path for path in recordings_in(map(Path, found)) if path.resolve() not in known})
    if not paths:
        return ["none: the collected tests use every recording"]
    lines = [shown(path, base) for path in paths]
    files = {path for folder in found for pattern in patterns for path in Path(folder).parent.rglob(pattern)}
    left = sorted(shown(path, base) for path in files - set(map(Path, modules)))
    if left:
        listed = ", ".join(left[:_MOST_LISTED]) + (", ..." if len(left) > _MOST_LISTED else "")
        total = len(files | set(map(Path, modules)))
        lines.append(f"note: {len(left)} of {total} test files were not collected, and may use them: {listed}")
    elif named:
        lines.append(f"note: only {', '.join(named[:_MOST_LISTED])} was collected, other tests may use them")
    return lines
