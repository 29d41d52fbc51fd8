"""Settings of another system as plain JSON, without secrets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import date
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel, SecretBytes, SecretStr

from ..credentials import MASK, is_secret, is_secret_option, mask_text

_DEEPEST = 30


def without_secrets(value: Any) -> Any:
    """Return a pydantic model, a dataclass, or a value in them, as plain JSON.

    Fields with secret names (passwords, tokens, API keys, a DSN) or types (`SecretStr`) are left out; texts are masked
    by `messager.credentials`. Classes and functions become their names. Any other object becomes the name of its type,
    as its text could contain anything.
    """
    return _plain(value, 0)


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):
        return _plain(value.value, depth)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, UUID | PurePath | date):
        return str(value)
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields} | (value.model_extra or {})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {
            str(key): _plain(part, depth + 1)
            for key, part in value.items()
            if not is_secret(str(key), part) and not isinstance(part, SecretStr | SecretBytes)
        }
    if isinstance(value, list | tuple | set | frozenset):
        parts = [part for part in value if not isinstance(part, SecretStr | SecretBytes)]
        before = [None, *parts]  # in a command line, a secret follows its option
        return [
            MASK if isinstance(part, str) and is_secret_option(option) else _plain(part, depth + 1)
            for option, part in zip(before, parts, strict=False)
        ]
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if isinstance(name, str) else f"<{type(value).__qualname__}>"
