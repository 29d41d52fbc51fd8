"""Experiments in the order of a tree: forks below their parent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_STEM, _LAST, _PAST, _NONE = "├ ", "└ ", "│ ", "  "


def as_tree(rows: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any], str | None]]:
    """Return each row once, with its branch (text before its exp_id), and its parent's exp_id if that is not above it.

    Rows have an `exp_id` and a `parent` with an `exp_id`, or None. Siblings, and rows without a parent among them,
    keep their order. Of experiments that are each other's forks, which only forged files have, the first is a root.
    """
    listed = {row["exp_id"] for row in rows}
    forks: dict[str, list[dict[str, Any]]] = {}
    roots = []
    for row in rows:
        parent = _parent(row)
        if parent in listed and parent is not None:
            forks.setdefault(parent, []).append(row)
        else:
            roots.append(row)
    found: list[tuple[str, dict[str, Any], str | None]] = []
    drawn: set[str] = set()
    for root in [*roots, *rows]:  # a row that no root leads to is a root
        if root["exp_id"] in drawn:
            continue
        left = [("", "", root)]
        while left:
            branch, below, row = left.pop()
            if row["exp_id"] in drawn:
                continue
            drawn.add(row["exp_id"])
            found.append((branch, row, None if branch else _parent(row)))
            mine = [fork for fork in forks.get(row["exp_id"], ()) if fork["exp_id"] not in drawn]
            left += [
                (below + (_STEM if number else _LAST), below + (_PAST if number else _NONE), fork)
                for number, fork in enumerate(reversed(mine))
            ]
    return found


def _parent(row: dict[str, Any]) -> str | None:
    return None if row["parent"] is None else row["parent"]["exp_id"]
