"""Labels of marks: the phases of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class MarkLabels:
    """Labels of marks in replay order: `NAME`, and `NAME#2` for the second mark of a name, as in `mark:NAME#2`."""

    def __init__(self) -> None:
        self.last: str | None = None
        """The label of the last mark; None before the first one."""
        self._times: dict[str, int] = {}

    def next(self, name: str) -> str:
        """Return the label of the next mark, which has this name."""
        number = self._times[name] = self._times.get(name, 0) + 1
        self.last = name if number == 1 else f"{name}#{number}"
        return self.last

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to go on from here, as JSON holds it."""
        return {"last": self.last, "times": self._times}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the `state` of other labels."""
        self.last, self._times = state["last"], dict(state["times"])
