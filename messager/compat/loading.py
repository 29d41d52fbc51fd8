"""Adapters that are installed when a program imports their framework, for programs started by `messager run`."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

log = logging.getLogger("messager")


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter: its module in `messager.compat`, which has an `install()`, and the modules that call for it."""

    module: str
    triggers: tuple[str, ...]


ADAPTERS = {
    "agentscope": Adapter("agentscope_bus", ("agentscope.app.message_bus",)),
    "agentsociety": Adapter("agentsociety", ("agentsociety.message.messager", "agentsociety.message")),
    "agentsociety2": Adapter("agentsociety2", ("agentsociety2.env",)),
    "ag2": Adapter("ag2", ("ag2.network",)),
    "autogen": Adapter("autogen", ("autogen_core",)),
    "a2a": Adapter("a2a", ("a2a.client", "a2a.server")),
}
"""By name, as `messager run --compat` takes it."""


def watch(names: Iterable[str] = ADAPTERS) -> None:
    """Install adapters, now if their framework is imported already, else when it is.

    An adapter that cannot be installed is an error in the log of `messager`, and the program continues without it.
    """
    wanted: dict[str, Adapter] = {}
    for adapter in (ADAPTERS[name] for name in names):
        if any(trigger in sys.modules for trigger in adapter.triggers):
            _install(adapter)
        else:
            wanted |= dict.fromkeys(adapter.triggers, adapter)
    if wanted:
        sys.meta_path.insert(0, _Finder(wanted))


def _install(adapter: Adapter) -> None:
    try:
        importlib.import_module(f"messager.compat.{adapter.module}").install()
    except Exception:
        log.exception("messager.compat.%s cannot be installed: its messages are not recorded", adapter.module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as without it, and installs the adapter of a module once that was imported."""

    def __init__(self, wanted: dict[str, Adapter]) -> None:
        self._wanted = wanted

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        adapter = self._wanted.pop(fullname, None)  # first, as the others are asked here
        if adapter is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, adapter)  # type: ignore[assignment]
                return spec
        self._wanted[fullname] = adapter
        return None


class _Loader:
    """Loader that installs an adapter behind the module that it has loaded."""

    def __init__(self, loader: Any, adapter: Adapter) -> None:
        self._loader = loader
        self._adapter = adapter

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        _install(self._adapter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
