"""Meta that no recorder writes, and that an import accepts."""

from __future__ import annotations

from typing import Any

HOSTILE_GAPS: list[dict[str, Any]] = [
    {"since": "x", "until": 5},
    {"since": 0, "until": 10**400, "count": -(10**400)},
    {"since": [1], "until": {"a": 1}, "count": "3", "reason": ["\0"], "recorder": [1]},
    {"since": True, "until": 1.5, "count": float("nan"), "reason": None, "recorder": 10**400},
    {"since": -(2**63), "until": 2**63 - 1, "count": -1, "recorder": 1.0},
]
