"""Functions that run when a program imports a module: adapters and hooks are installed then, and only then."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def on_import(names: Sequence[str], function: Callable[[], None]) -> None:
    """Call a function once one of these modules is imported: now, if one is, else behind each of them that is.

    The function may run several times, and must not raise.
    """
    if any(name in sys.modules for name in names):
        function()
    else:
        sys.meta_path.insert(0, _Finder(names, function))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as without it, and calls the function behind the import of one."""

    def __init__(self, names: Sequence[str], function: Callable[[], None]) -> None:
        self._names = set(names)
        self._function = function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._names:
            return None
        self._names.remove(fullname)  # first, as the others are asked here
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._function)  # type: ignore[assignment]
                return spec
        self._names.add(fullname)
        return None


class _Loader:
    """Loader that calls a function behind the module that it has loaded."""

    def __init__(self, loader: Any, function: Callable[[], None]) -> None:
        self._loader = loader
        self._function = function

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._function()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
