"""Installation of the hooks: each when its library is imported, or at once if it is imported already."""

from __future__ import annotations

import importlib
import logging
import sys
from functools import partial

from ..on_import import on_import
from . import exchange
from .exchange import Begin, Selects

log = logging.getLogger("messager")

HOOKS = {
    "httpx": "httpx_hook",
    "httpx2": "httpx_hook",
    "urllib3": "urllib3_hook",
    "aiohttp": "aiohttp_hook",
}
"""Modules of the hooks, which have an `install(library)`, by the module of the library."""

_awaited: set[str] = set()


def install(begin: Begin, selects: Selects) -> None:
    """Report the calls of this process to `begin`, if they are selected. Called again, it replaces both."""
    exchange.begin, exchange.selects = begin, selects
    for library in HOOKS.keys() - _awaited:
        _awaited.add(library)
        on_import([library], partial(_install, library))


def _install(library: str) -> None:
    try:
        importlib.import_module(f"{__package__}.{HOOKS[library]}").install(sys.modules[library])
    except Exception:
        log.exception("calls through %s are not recorded: its hook cannot be installed", library)
