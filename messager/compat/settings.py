"""Settings of another system as plain JSON, without what is secret in them."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from datetime import date
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel, SecretBytes, SecretStr

_SECRET = re.compile(
    r"passw|passphrase|(?<!com)(?<!by)pass$|pwd$|secret|credential|.key$|token$|(?<!max[_-])tokens$"
    r"|bearer|jwt|authorization|dsn$|connection_string|session_?id|(api|access|private|auth)[_-]?key|^(auth|cookie)$",
    re.I,
)
_USER = re.compile(r"(?<=//)(?:[^/@\s:]*:[^/\n]*@|\S*@)")  # a password may have blanks
_QUERY = re.compile(r"(?<=[?&])([^=&\s]*(?:key|token|secret|passw|sig)[^=&\s]*)=[^&\s]*", re.I)
_SAID = re.compile(
    r"""(?<![?&\w])(\w*(?:password|token|secret)["']?\s*[=:]\s*|bearer\s+)(?:"[^"]*"|'[^']*'|\S+)""", re.I
)
_DEEPEST = 30


def without_secrets(value: Any) -> Any:
    """What JSON can hold of a pydantic model, a dataclass, or whatever these hold.

    Fields are left out whose name says that they are secret (passwords, tokens, API keys, a DSN) or whose
    type does (`SecretStr`); URLs lose their user and password, and what is secret in their query; other texts,
    what follows `password=`, `token:`, `Bearer` and the like. Classes and functions are their names; of any
    other object stays only what it is, as its text could hold anything.
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
        return _QUERY.sub(r"\1=***", _SAID.sub(r"\1***", _USER.sub("***@", value)))
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
            if not _SECRET.search(str(key)) and not isinstance(part, SecretStr | SecretBytes)
        }
    if isinstance(value, list | tuple | set | frozenset):
        parts = [part for part in value if not isinstance(part, SecretStr | SecretBytes)]
        before = [None, *parts]  # a command line has its secrets behind their options
        return [
            "***" if isinstance(part, str) and _is_secret_option(option) else _plain(part, depth + 1)
            for option, part in zip(before, parts, strict=False)
        ]
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if isinstance(name, str) else f"<{type(value).__qualname__}>"


def _is_secret_option(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"-[\w-]+", value) is not None and bool(_SECRET.search(value))
