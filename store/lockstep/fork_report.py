"""Report of a fork."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .report import CastReport


@dataclass(kw_only=True)
class ForkReport(CastReport):
    """Result of a fork, or what was done so far: what live agents repeated, and what was done besides."""

    exp_id: str
    parent: str
    cursor: str
    """End of the prefix, as a point of the parent: the first event that is not part of it."""
    events: int = 0
    """Events of the prefix."""
    excluded: int = 0
    """Events before the point that are not part of it, because they were caused from behind it."""
    published: int = 0
    """Recorded messages that were published."""
    repeated: int = 0
    """Events that live agents of this process repeated."""
    copied: int = 0
    """Events that were copied."""
    left_out: int = 0
    """Events among them that live agents were expected to repeat and did not, such as marks."""
    complete: bool = False
    """True once the whole prefix is in the fork and all gates are open."""
    stopped: str | None = None
    """Reason why the fork stopped."""

    @property
    def equal(self) -> bool:
        """Return whether the prefix is complete, and live agents said in it what they said in the recording."""
        return self.complete and super().equal

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        counts = ("events", "excluded", "published", "repeated", "copied", "left_out")
        return {
            "exp_id": self.exp_id,
            "parent": self.parent,
            "cursor": self.cursor,
            "complete": self.complete,
            "stopped": self.stopped,
            **{name: getattr(self, name) for name in counts},
            "cast": super().to_dict(),
        }
