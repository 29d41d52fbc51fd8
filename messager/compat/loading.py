"""Adapters that are installed when a program imports their framework, for programs started by `messager run`."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from ..on_import import on_import

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
_begun: set[Adapter] = set()


def watch(names: Iterable[str] = ADAPTERS) -> None:
    """Install adapters, now if their framework is imported already, else when it is.

    An adapter that cannot be installed is an error in the log of `messager`, and the program continues without it.
    """
    for adapter in (ADAPTERS[name] for name in names):
        on_import(adapter.triggers, partial(_install, adapter))


def _install(adapter: Adapter) -> None:
    if adapter in _begun:
        return  # its installation imports another of its modules
    _begun.add(adapter)
    try:
        importlib.import_module(f"messager.compat.{adapter.module}").install()
    except Exception:
        log.exception("messager.compat.%s cannot be installed: its messages are not recorded", adapter.module)
