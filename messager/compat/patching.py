"""Attributes of another system that an adapter replaces, and restores."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class Patches:
    """Replaced attributes. A context manager that restores them."""

    def __init__(self) -> None:
        self._changes: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Patches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()

    def change(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute and keep its old value."""
        self._changes.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def uninstall(self) -> None:
        """Restore everything, the last change first. Has no effect a second time."""
        while self._changes:
            owner, name, value = self._changes.pop()
            setattr(owner, name, value)
