"""Properties of events by which an imported file is split into experiments."""

from __future__ import annotations

import json
import re
from typing import Any

from ..errors import StoreError
from ..json_path import compiled
from ..log.event import Fields, fields
from ..queries.counting.dimensions import Of, dimensions
from ..queries.counting.groups import NOT_JSON, channel_part, payload_field
from .importing import Split

_PROPERTY = re.compile(r"channel(\[-?[0-9]{1,4}\])?|\$.*", re.DOTALL | re.A)
_CONTENT = fields("channel", "payload")


def is_property(name: str) -> bool:
    """Return True for a property that events of each format have, such as `channel[1]`; False for a column of CSV."""
    return _PROPERTY.fullmatch(name) is not None


def split_by(name: str) -> Split:
    """Return the split by a property, as `count --by` names it. Raises `StoreError` for any other name.

    Texts are values as they are, other JSON as its text. Null, an empty text and a missing value are none.
    """
    if not is_property(name):
        raise StoreError(
            f"cannot split by {name!r}. Give channel, channel[1] (a part of it, from 0), a path into the payload that "
            "begins with $, such as $.game, or a column of a CSV file."
        )
    (dimension,) = dimensions([name])
    path = compiled([dimension.steps])

    def value(entry: Fields) -> str | None:
        channel, payload = _CONTENT(entry)
        match dimension.of:
            case Of.PART:
                return channel_part(channel, dimension.part) or None
            case Of.CHANNEL:
                return channel or None
        written: Any = payload_field(payload, path)
        found = None if written is NOT_JSON else json.loads(written)
        if found is None or isinstance(found, str):
            return found or None
        return str(written)

    return Split(name, value)
