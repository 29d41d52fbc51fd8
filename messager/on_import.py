"""Functions that run when a program imports a module: adapters and hooks are installed then, and only then."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
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
        self._asking = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._names or getattr(self._asking, "now", False):
            return None
        self._asking.now = True  # the others are asked here, and they may ask all of them in turn
        try:
            found = (
                finder.find_spec(fullname, path, target) for finder in sys.meta_path if hasattr(finder, "find_spec")
            )
            spec = next((one for one in found if one is not None), None)
        finally:
            self._asking.now = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, partial(self._imported, fullname))  # type: ignore[assignment]
        return spec

    def _imported(self, name: str) -> None:
        if name in self._names:
            self._names.discard(name)
            self._function()


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
