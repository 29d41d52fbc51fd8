"""Labels of marks: the phases of a run."""

from __future__ import annotations


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
