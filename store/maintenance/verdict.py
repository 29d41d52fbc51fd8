"""Result of a verification."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_PROBLEMS = 100
"""Maximum number of problems listed per experiment; the rest are only counted."""


@dataclass(slots=True)
class Verdict:
    """Result of the verification of one experiment, or of the store around the experiments."""

    exp_id: str
    head: str
    events: int = 0
    batches: int = 0
    recorders: int = 0
    problems: list[str] = field(default_factory=list)
    """Each violated guarantee, with its place. Empty if all guarantees hold."""
    more_problems: int = 0
    notes: list[str] = field(default_factory=list)
    """Facts that violate no guarantee: running recorders, gaps, redactions."""

    @property
    def ok(self) -> bool:
        """Return whether all guarantees hold."""
        return not self.problems

    def add(self, problems: Iterable[str], place: str = "") -> None:
        """Add problems, found at `place`."""
        for problem in problems:
            if len(self.problems) < MOST_PROBLEMS:
                self.problems.append(f"{place}: {problem}" if place else problem)
            else:
                self.more_problems += 1
