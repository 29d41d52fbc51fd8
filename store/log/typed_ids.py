"""Ids of agents as text, which does not tell their JSON type: as typed on the command line, or as tables show them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def typed_ids(word: str) -> list[Any]:
    """Return the ids that a text means: `5` the string "5" and the number 5, `"5"` only the string."""
    if len(word) > 1 and word[0] == word[-1] == '"':
        return [word[1:-1]]
    try:
        value = json.loads(word, parse_constant=_refuse)
        shown = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return [word]
    return [word] if value is None or shown != word else [word, value]


def ids_among(word: str, known: Sequence[Any]) -> list[Any]:
    """Return those of the ids that a text means which are among `known`; the last one if none is."""
    ids = typed_ids(word)
    return [one for one in ids if any(type(one) is type(agent) and one == agent for agent in known)] or ids[-1:]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
