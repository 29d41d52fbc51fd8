"""Settings of a replay in live programs: the value of `MESSAGER_REPLAY`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from messager import channels

from ..errors import StoreError
from ..matching.match import Match
from .shared import PATIENCE_S

VARIABLE = "MESSAGER_REPLAY"
AGENTS = "MESSAGER_AGENTS"
"""Variable with the agents that the Messagers of a process play, as a JSON list or as ids joined by commas."""


@dataclass(slots=True)
class Settings:
    """Settings of a live program in a replay.

    `MESSAGER_REPLAY` is an exp_id, or the name of a JSON file that ends in `.json`, with these fields.
    """

    experiment: str
    """Exp_id of the recording, or a unique prefix or name of it."""
    store: str | None = None
    """Store of the recording; default `MESSAGER_STORE`, else ./messager.db."""
    live: list[Any] | str = "all"
    """Agents that are live."""
    agents: list[Any] | None = None
    """Agents that the Messagers of this program play; default `MESSAGER_AGENTS`, else found by their subscriptions and
    senders."""
    match: Match = field(default_factory=Match)
    """An object with the fields of `Match`."""
    patience: float = PATIENCE_S
    on_timeout: Literal["continue", "stop"] = "continue"
    map: dict[str, str] | None = None
    """Channels that are renamed, as by `messager replay --map`. The exp_id in channels is that of the Messager."""
    report: str | None = None
    """Folder to which each Messager writes its report as JSON."""

    @classmethod
    def from_environment(cls) -> Settings:
        """Return the settings of this process. Raises `StoreError` for a file or variable that cannot be read."""
        value = os.environ[VARIABLE]
        settings = cls._from_file(Path(value)) if value.endswith(".json") else cls(value)
        if not _is_text(settings.experiment):
            raise StoreError(f"{VARIABLE} is {value!r:.100}: it is not valid UTF-8. Name a JSON file, or an exp_id.")
        settings.store = settings.store or os.environ.get("MESSAGER_STORE") or "messager.db"
        if settings.agents is None and (named := os.environ.get(AGENTS)):
            settings.agents = _agents(named)
        return settings

    @classmethod
    def _from_file(cls, path: Path) -> Settings:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise StoreError(f"{VARIABLE}: {path} cannot be read: {error}. Name a JSON file, or an exp_id.") from None
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{VARIABLE}: {path} is not JSON: {error}. Correct the file.") from None
        if not isinstance(data, dict) or not data.get("experiment") or not _is_text(data["experiment"]):
            raise StoreError(f'{VARIABLE}: {path} does not name an experiment: write {{"experiment": "exp-1"}}')
        known = set(cls.__dataclass_fields__)
        if unknown := sorted(set(data) - known):
            raise StoreError(
                f"{VARIABLE}: {path}: unknown field {unknown[0]!r:.100}. The fields are {', '.join(sorted(known))}."
            )
        for name, (fits, remedy) in _FIELDS.items():
            if name in data and not fits(data[name]):
                raise StoreError(f"{VARIABLE}: {path}: {name} is {data[name]!r:.100}: give {remedy}")
        try:
            match = Match.from_dict(data.pop("match", {}))
        except StoreError as error:
            raise StoreError(f"{VARIABLE}: {path}: match: {error}") from None
        return cls(**data, match=match)


def _is_text(value: Any) -> bool:
    """Return whether a value is null, or a text that databases and file systems can hold."""
    if not isinstance(value, str):
        return value is None
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _is_map(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(map(_is_channel, [*value, *value.values()])))


def _is_channel(value: Any) -> bool:
    try:
        channels.encode(value)
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _is_list_of_ids(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_id, value))


def _is_id(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool) and value != ""


_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "store": (lambda value: _is_text(value) and value != "", "a file name or a URL"),
    "live": (lambda value: value == "all" or _is_list_of_ids(value), 'a list of agents, or "all"'),
    "agents": (lambda value: value is None or _is_list_of_ids(value), "a list of agents"),
    "patience": (_is_time, "seconds, more than zero"),
    "on_timeout": (lambda value: value in ("continue", "stop"), "continue or stop"),
    "map": (_is_map, "an object of channels"),
    "report": (lambda value: value is None or (_is_text(value) and value != ""), "a folder"),
}
"""Values that the fields of a file may have, and the remedy for others."""


def _agents(text: str) -> list[Any]:
    """Return the agents of the variable. Raises `StoreError` for text that has the form of JSON and lists no ids."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None if text.lstrip().startswith(("[", "{")) else [name.strip() for name in text.split(",")]
    found = [found] if _is_id(found) else found
    if not found or not _is_list_of_ids(found):
        raise StoreError(f"{AGENTS} is {text!r:.100}: give a JSON list of agents, or ids joined by commas, such as 3,7")
    return list(found)
