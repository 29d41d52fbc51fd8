"""Exports that are imported when they are first used, so that a `Msg` does not wait for a Redis client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, namespace: dict[str, Any], names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package; `names` has those of each module, with spaces."""
    modules = {name: module for module, listed in names.items() for name in listed.split()}

    def getattribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = namespace[name] = getattr(import_module(f".{modules[name]}", package), name)
        return found

    return getattribute, lambda: sorted({*namespace, *modules}), sorted(modules)
