"""What an export changes for those it is shared with. The log it comes from stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..log.event import Event
from ..privacy.json_paths import PathRedactor, changes_of
from ..privacy.pseudonyms import Pseudonyms
from ..privacy.redaction import structure
from ..recording.derived_ids import DerivedIds

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
"""Keys of meta that tell of people and machines, at any depth."""
_ROLES = ("messager", "tap", "import", "repair")
_TOLD = ("role", "patterns", "started_at", "ended_at")
"""What a header still says of a recorder: what a replay of the copy needs."""


class Sharing:
    """The changes of one export: paths taken out, agents under pseudonyms, or both."""

    def __init__(self, paths: Iterable[str] = (), *, pseudonymise: bool = False) -> None:
        paths = tuple(paths)
        self.clean = PathRedactor(*paths) if paths else None
        """Counts what was changed."""
        self.pseudonymise = pseudonymise
        self.no_text = 0
        """Payloads that are no text, in which no name was looked for."""
        self._names: Pseudonyms | None = None
        self._identifier = DerivedIds()

    def begin(self, agents: Iterable[Any]) -> None:
        """Start an export of an experiment that has these agents."""
        self._names = Pseudonyms(agents) if self.pseudonymise else None

    def event(self, entry: Event) -> Event:
        """The event as it is shared."""
        if self.clean is not None:
            changes = changes_of(self.clean, self._identifier, entry)
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
            meta=None if entry.meta is None else self._event_meta(entry.meta),
        )

    def header(self, data: dict[str, Any]) -> dict[str, Any]:
        """The header as it is shared."""
        if self.clean is not None:
            data = {**data, "meta": self.clean.cleaned(data["meta"])}
        if self._names is None:
            return data
        names = self._names
        return {
            **data,
            "name": None if data["name"] is None else names.text(data["name"]),
            "tags": sorted({names.text(tag) for tag in data["tags"]}),
            "meta": self._meta(data["meta"]),
            "recorders": [
                {
                    key: self._patterns(row[key]) if key == "patterns" else row[key]
                    for key in _TOLD
                    if key in row and _is_told(key, row[key])
                }
                for row in data["recorders"]
            ],
        }

    def _patterns(self, patterns: Any) -> Any:
        assert self._names is not None
        if not isinstance(patterns, list):  # a file that was imported can say anything here
            return []
        return [self._names.channel(word) for word in patterns if isinstance(word, str)]

    def _event_meta(self, meta: dict[str, Any]) -> dict[str, Any] | None:
        """What the log itself put there, and a mark's fields. Why there is a gap can name a broker's host."""
        assert self._names is not None
        kept = {
            key: self._names.text(item) if isinstance(item, str) else item
            for key, item in structure(meta).items()
            if key != "reason"
        }
        if isinstance(meta.get("fields"), dict):
            kept["fields"] = self._meta(meta["fields"])
        return kept or None

    def _meta(self, meta: dict[str, Any]) -> dict[str, Any]:
        """Meta without what tells of machines, agents under their pseudonyms."""
        assert self._names is not None
        found: dict[str, Any] = self._names.value(_impersonal(meta))
        return found


def _is_told(key: str, value: Any) -> bool:
    """Whether a value of a recorder is what the log would put there; an imported header can say anything."""
    return key == "patterns" or (value in _ROLES if key == "role" else value is None or type(value) is int)


def _impersonal(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _impersonal(item) for key, item in data.items() if key.lower() not in _MACHINE}
    return [_impersonal(item) for item in data] if isinstance(data, list) else data


def sharing(paths: Iterable[str], *, pseudonymise: bool) -> Sharing | None:
    """What to change, or None for nothing. Raises `StoreError` for a path that is none."""
    paths = tuple(paths)
    return Sharing(paths, pseudonymise=pseudonymise) if paths or pseudonymise else None
