"""Msg, the message that agents exchange.

Contract: `agentscope.message.Msg` of AgentScope 0.1.1 to 0.1.4. AgentScope's own objects can be sent, and their dicts
are read: those of 0.1.x, 1.x (no class name, no url) and 2.x (`created_at` in place of `timestamp`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

ROLES = ("system", "user", "assistant")
FIELDS = ("id", "name", "content", "role", "url", "metadata", "timestamp")
_CLASS_KEYS = ("__module__", "__name__")


class Msg:
    """One message: sender, content and role.

    Raises `ValueError` for a role other than system, user and assistant. Warns about content without a JSON form, and
    about unknown arguments, which are dropped.
    """

    __hash__ = None  # type: ignore[assignment]  # equal by value, and mutable

    def __init__(
        self,
        name: str,
        content: Any,
        role: str,
        url: str | list[str] | None = None,
        metadata: dict[str, Any] | str | None = None,
        echo: bool = False,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            warnings.warn(f"Msg drops unknown arguments: {sorted(kwargs)}", stacklevel=2)
        self.id = uuid4().hex
        """A uuid4 in hex."""
        self.name = name
        """Sender."""
        self.content = content
        self.role = role
        self.url = url
        self.metadata = metadata
        self.timestamp = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        """Local time, `YYYY-MM-DD HH:MM:SS`."""
        self.extra: dict[str, Any] = {}
        """Fields of a foreign dict that have no attribute here."""
        if echo:
            print(self.formatted_str(colored=True))

    @property
    def content(self) -> Any:
        """A string, or any value with a JSON form."""
        return self._content

    @content.setter
    def content(self, value: Any) -> None:
        if not isinstance(value, str):
            try:
                json.dumps(value, default=_form)
            except (TypeError, ValueError):
                warnings.warn(f"content of type {type(value).__name__} has no JSON form", stacklevel=3)
        self._content = value

    @property
    def role(self) -> str:
        """system, user or assistant."""
        return self._role

    @role.setter
    def role(self, value: str) -> None:
        if value not in ROLES:
            raise ValueError(f"invalid role {value!r}. Use one of {', '.join(ROLES)}.")
        self._role = value

    def __getitem__(self, field: str) -> Any:
        """Return a field by its name. Raises `AttributeError` for an unknown name, as AgentScope 0.1.1 does."""
        return getattr(self, field)

    def formatted_str(self, colored: bool = False) -> str:
        """Return `name: content`, then a line `name: url` for each url. The color of a name is AgentScope 0.1.1's."""
        name = str(self.name)
        if colored:
            digest = hashlib.sha256(name.encode("utf-8", "replace")).digest()
            name = f"\033[{90 + digest[-1] % 8}m{name}\033[0m"
        urls = [] if self.url is None else self.url if isinstance(self.url, list) else [self.url]
        return "\n".join(f"{name}: {line}" for line in (self.content, *urls))

    def to_dict(self) -> dict[str, Any]:
        """Return the seven fields with `__module__`, `__name__` and the fields of `extra`."""
        fields = {key: getattr(self, key) for key in FIELDS}
        return {"__module__": Msg.__module__, "__name__": Msg.__name__, **fields, **self.extra}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Msg:
        """Return the message of a dict written by `to_dict` or by AgentScope. Raises `ValueError` for others.

        Such dicts in its content and metadata become messages, as `agentscope.serialize.deserialize` makes them.
        """
        if data.get("__name__", "Msg") != "Msg":
            raise ValueError(f"not a Msg but a {data['__name__']!r}")
        module = data.get("__module__")
        if module is not None and module != Msg.__module__ and not str(module).startswith("agentscope."):
            raise ValueError(f"a Msg of an unknown module: {module!r}")
        # AgentScope 0.1.1 to 0.1.3 (and this class) write all seven; later versions left url out.
        needed = FIELDS if module == Msg.__module__ else ("name", "content", "role")
        missing = [key for key in needed if key not in data]
        if missing:
            raise ValueError(f"a Msg without {', '.join(missing)}")
        content, metadata = _with_messages(data["content"]), _with_messages(data.get("metadata"))
        msg = cls(data["name"], content, data["role"], data.get("url"), metadata)
        msg.id = data.get("id", msg.id)
        msg.timestamp = data.get("timestamp", data.get("created_at", msg.timestamp))
        msg.extra = {key: value for key, value in data.items() if key not in FIELDS and key not in _CLASS_KEYS}
        return msg

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Msg):
            return NotImplemented
        return self.extra == other.extra and all(getattr(self, key) == getattr(other, key) for key in FIELDS)

    def __repr__(self) -> str:
        return f"Msg(name={self.name!r}, content={self.content!r}, role={self.role!r}, id={self.id!r})"


def _with_messages(value: Any) -> Any:
    """Return a value with a `Msg` in place of each dict in it that has the class of one."""
    if isinstance(value, list):
        return [_with_messages(part) for part in value]
    if not isinstance(value, dict):
        return value
    if all(key in value for key in _CLASS_KEYS):
        with contextlib.suppress(ValueError):
            return Msg.from_dict(value)
    return {key: _with_messages(part) for key, part in value.items()}


def _form(value: object) -> dict[str, Any]:
    """Return the dict of a message object, or raise `TypeError`."""
    message = as_dict(value)
    if message is None:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return message


def as_dict(value: object) -> dict[str, Any] | None:
    """Return the dict that is sent for a message object, our own or AgentScope's; None for any other object.

    AgentScope's objects are recognised by the name of their class, so that AgentScope is not imported.
    """
    if isinstance(value, Msg):
        return value.to_dict()
    if not any(base.__name__ == "Msg" and base.__module__.startswith("agentscope.") for base in type(value).__mro__):
        return None
    message: Any = value
    if hasattr(message, "to_dict"):  # 0.1.x and 1.x
        data = dict(message.to_dict())
        if "__module__" not in data:  # 1.x: `from_dict` reads more than `to_dict` writes
            data |= {key: field for key, field in vars(message).items() if key[0] != "_" and key not in data}
        return data
    if not hasattr(message, "model_dump"):
        return dataclasses.asdict(message)
    try:
        return dict(message.model_dump(mode="json"))
    except ValueError:  # values of its metadata without a JSON form become text
        return dict(message.model_dump())


def is_msg(data: object) -> bool:
    """Return True if a decoded payload is a `Msg`, our own or AgentScope's."""
    if not isinstance(data, dict):
        return False
    if "__name__" in data:
        return data["__name__"] == "Msg" and {"name", "content", "role"} <= data.keys()
    return {"id", "name", "content", "role"} <= data.keys() and data["role"] in ROLES


def view(payload: bytes, *, ts: int, from_id: Any = None, event_id: str | None = None) -> Msg:
    """Return the `Msg` in a payload, or for any other payload a view with its sender and content.

    `ts` is in ns UTC. A view has the role "user", the field `content` of the payload or else the whole decoded
    payload, and the id `event_id`, empty by default.
    """
    text = payload.decode("utf-8", "replace")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = text
    if is_msg(data):
        try:
            return Msg.from_dict(data)
        except (ValueError, RecursionError):
            pass  # treated as any other payload
    name, content = from_id, data
    if isinstance(data, dict):
        name = data.get("from") if name is None else name
        content = data.get("content", data)
    msg = Msg("" if name is None else str(name), content, "user")
    msg.timestamp = datetime.fromtimestamp(ts / 1e9, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    msg.id = event_id or ""
    return msg
