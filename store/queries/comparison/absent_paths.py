"""Paths that no payload of a comparison has: probably misspelt, because such a rule of a `Match` does nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ...json_path import PathState, compiled, may_hold_json, parse

__all__ = ["AbsentPaths"]


class AbsentPaths:
    """Paths that were in none of the payloads so far. A payload is decoded only while there are any."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._keep(paths)

    def _keep(self, paths: Iterable[str]) -> None:
        self.paths = list(dict.fromkeys(paths))
        """In the order in which they were given."""
        self._root = compiled(*([parse(path)] for path in self.paths))

    def search(self, payload: bytes) -> None:
        """Drop the paths that the payload has."""
        if not self.paths:
            return
        try:
            found = _groups(json.loads(payload.decode()), self._root)
        except (ValueError, RecursionError):  # compared as bytes, without paths
            return
        if found:
            self._keep(path for at, path in enumerate(self.paths) if not found >> at & 1)


def _groups(value: Any, state: PathState) -> int:
    """Return the groups of the state with a path to a value, as in `PathState.ends`."""
    found = state.ends
    if not state.continues:
        return found
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= _groups(inner, state.child(key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            found |= _groups(inner, state.child(at))
    elif isinstance(value, str) and may_hold_json(value):
        try:
            return found | _groups(json.loads(value), state)
        except (ValueError, RecursionError):
            return found
    return found
