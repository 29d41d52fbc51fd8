"""Changes of an export before it is shared: erased paths and pseudonyms. The log itself is not changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from messager.record import SUBSCRIBED

from ..log.event import Event
from ..privacy.blanking import log_fields
from ..recording.derived_ids import DerivedIds
from ..sharing.json_paths import PathRedactor, changes_of
from ..sharing.pseudonyms import Pseudonyms

_MACHINE = frozenset(
    [
        "host",
        "hostname",
        "machine",
        "node",
        "ip",
        "address",
        "pid",
        "ppid",
        "boot_id",
        "cwd",
        "home",
        "path",
        "user",
        "username",
        "login",
        "email",
        "author",
        "git",
        "command",
        "cmd",
        "argv",
        "args",
        "platform",
        "broker",
        "redis",
        "server",
        "url",
        "store",
        "spool",
        "versions",
        "environment",
        "env",
    ]
)
"""Keys of meta that describe people or machines, at any depth; they are left out."""
_ROLES = ("messager", "tap", "import", "repair")
_KEPT = ("role", "patterns", "started_at", "ended_at")
"""Fields of a recorder that stay in the header: a replay of the copy needs them."""


class Sharing:
    """The changes of one export: paths are erased, agents get pseudonyms, or both."""

    def __init__(self, paths: Iterable[str] = (), *, pseudonymise: bool = False) -> None:
        paths = tuple(paths)
        self.clean = PathRedactor(*paths) if paths else None
        """The redactor, which counts its changes."""
        self.pseudonymise = pseudonymise
        self.no_text = 0
        """Number of payloads that are not text, in which no names are replaced."""
        self._names: Pseudonyms | None = None
        self._derived = DerivedIds()

    def begin(self, agents: Iterable[Any]) -> None:
        """Start the export of an experiment with these agents."""
        self._names = Pseudonyms(agents) if self.pseudonymise else None

    def text(self, text: str) -> str:
        """Return text with pseudonyms for names of agents, if they get any."""
        return text if self._names is None else self._names.text(text)

    def experiment(self, exp_id: str) -> str:
        """Return the id of an experiment; its pseudonym, if agents get any."""
        return exp_id if self._names is None else self._names.experiment(exp_id)

    def event(self, entry: Event) -> Event:
        """Return the changed event."""
        if self.clean is not None:
            changes = changes_of(self.clean, self._derived, entry)
            entry = replace(entry, **changes) if changes else entry
        if self._names is None:
            return entry
        names = self._names
        try:
            entry.payload.decode()
        except UnicodeDecodeError:
            self.no_text += 1
        return replace(
            entry,
            channel=None if entry.channel is None else names.channel(entry.channel),
            payload=names.payload(entry.payload, entry.msg_id),
            from_id=names.agent(entry.from_id),
            to_id=names.agent(entry.to_id),
            msg_id=None if entry.msg_id is None else names.message_id(entry.msg_id),
            meta=None if entry.meta is None else self._event_meta(entry.kind, entry.meta),
            messager=None if entry.messager is None else names.message_id(entry.messager),
            origin=None,  # it names a recorder
        )

    def header(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the changed header."""
        if self.clean is not None:
            data = {**data, "meta": self.clean.cleaned(data["meta"])}
        if self._names is None:
            return data
        names = self._names
        return {
            **{key: value for key, value in data.items() if key != "parent"},  # it names an experiment and a recorder
            "name": None if data["name"] is None else names.text(data["name"]),
            "tags": sorted({names.text(tag) for tag in data["tags"]}),
            "meta": self._meta(data["meta"]),
            "recorders": [
                {
                    key: self._patterns(row[key]) if key == "patterns" else row[key]
                    for key in _KEPT
                    if key in row and _is_kept(key, row[key])
                }
                for row in data["recorders"]
            ],
        }

    def _patterns(self, patterns: Any) -> Any:
        assert self._names is not None
        if not isinstance(patterns, list):  # an imported header can hold any value here
            return []
        return [self._names.channel(word) for word in patterns if isinstance(word, str)]

    def _event_meta(self, kind: str, meta: dict[str, Any]) -> dict[str, Any] | None:
        """Return the fields written by the log, and those of a mark. The reason of a gap may name a host."""
        assert self._names is not None
        kept = {
            key: self._names.text(item) if isinstance(item, str) else item
            for key, item in log_fields(kind, meta).items()
            if key != "reason"
        }
        if isinstance(meta.get("fields"), dict):
            kept["fields"] = self._meta(meta["fields"])
            if meta.get("name") == SUBSCRIBED:
                added = {"added": True} if meta["fields"].get("added") is True else {}
                kept["fields"] = {"patterns": self._patterns(meta["fields"].get("patterns")), **added}
        return kept or None

    def _meta(self, meta: dict[str, Any]) -> dict[str, Any]:
        """Return meta without machines, and with pseudonyms."""
        assert self._names is not None
        found: dict[str, Any] = self._names.value(_impersonal(meta))
        return found


def _is_kept(key: str, value: Any) -> bool:
    """Return whether a value of a recorder is one that the log writes; an imported header can hold any value."""
    return key == "patterns" or (value in _ROLES if key == "role" else value is None or type(value) is int)


def _impersonal(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _impersonal(item) for key, item in data.items() if key.lower() not in _MACHINE}
    return [_impersonal(item) for item in data] if isinstance(data, list) else data


def sharing(paths: Iterable[str], *, pseudonymise: bool) -> Sharing | None:
    """Return the changes of an export, or None. Raise `StoreError` for an invalid path."""
    paths = tuple(paths)
    return Sharing(paths, pseudonymise=pseudonymise) if paths or pseudonymise else None
