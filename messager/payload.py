"""Payloads as text on the wire."""

from __future__ import annotations

import json
from typing import Any

from .msg import Msg, as_dict


def _default(value: object) -> Any:
    """Return what replaces an object without a JSON form."""
    message = as_dict(value)
    return str(value) if message is None else message


_encode = json.JSONEncoder(default=_default).encode
"""One encoder for all messages; `json.dumps` with these options would make one for each."""


def to_wire(payload: Any) -> str:
    """Return the text of a payload on the wire: `json.dumps(payload, default=str)`, as AgentSociety writes it.

    A `Msg` is written as its dict.
    """
    return _encode(payload.to_dict() if payload.__class__ is Msg else payload)
