"""Folders of the user for one store, for stores beside which there is no place for them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def state_folder(location: str) -> str:
    """Return the folder for the spools of the store at this location, in `XDG_STATE_HOME`."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    name = hashlib.sha256(location.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return str(Path(state, "messager", "spool", name))


def cache() -> str:
    """Return the cache of the user."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("MESSAGER_CACHE") or os.path.join(home, "messager")


def cache_folder(location: str) -> str:
    """Return the folder for files of the store at a location, in the cache of the user."""
    return os.path.join(cache(), hashlib.sha256(location.encode("utf-8", "surrogatepass")).hexdigest()[:16])
