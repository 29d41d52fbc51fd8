"""Registration: find or create the experiment of a recorder, and insert its row.

A recorder registers itself. If its store stays unreachable, its registration is kept in the spool, and the process
that drains the spool registers the recorder.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any

from ..errors import ExperimentClosed, StoreError
from ..experiments import lifecycle, validation
from ..log.event_log import EventLog
from ..log.writer import Writer
from .spool_format import is_number

log = logging.getLogger("messager_store")

_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("uuid", "exp_id", "role", "durability", "spool"), str),
    **dict.fromkeys(("if_exists", "name"), (str, type(None))),
    **dict.fromkeys(("tags", "patterns"), list),
    **dict.fromkeys(("meta", "facts", "row"), dict),
}


def _is_text(value: object) -> bool:
    """Return whether a value is a string that every database holds."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)


_ROW: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("host", "boot_id", "broker"), _is_text),
    **dict.fromkeys(("started_at", "anchor_wall", "anchor_monotonic", "broker_offset"), is_number),
    "pid": lambda value: isinstance(value, int) and 0 <= value < 1 << 31,
}
"""Columns of a row that a recorder sets itself."""
NOTED = ("git", "command", "host")
"""Keys of the facts of a recorder that are noted in the meta of a new experiment too."""


@dataclass(slots=True)
class Registration:
    """Description of a recorder and its experiment, with a JSON form."""

    uuid: str
    exp_id: str
    if_exists: str | None
    """As in `Recorder`."""
    name: str | None
    tags: list[str]
    meta: dict[str, Any]
    """Meta of the experiment."""
    role: str
    patterns: list[str]
    durability: str
    spool: str
    facts: dict[str, Any]
    """Meta of the recorder: git commit, command, host and so on."""
    row: dict[str, Any]
    """Other columns of the recorder: its process, the anchor of its clock, its start."""

    def as_dict(self) -> dict[str, Any]:
        """Return the keyword arguments of an equal registration."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def parsed(cls, given: dict[str, Any]) -> Registration:
        """Return the registration whose `as_dict` was kept in a file. Raises `StoreError` for any other content."""
        known = {each.name for each in fields(cls)}
        if strange := given.keys() ^ known:
            raise StoreError(f"its registration does not fit this version: {', '.join(sorted(strange))}")
        made = cls(**given)
        validation.checked_exp_id(str(made.exp_id))
        for name, kind in _KINDS.items():
            value = getattr(made, name)
            if not isinstance(value, kind) or (kind is str and not _is_text(value)):
                raise StoreError(f"its registration has {value!r:.50} as {name}")
        if unknown := made.row.keys() - _ROW:
            raise StoreError(f"its recorder has columns unknown to this version: {', '.join(sorted(unknown))}")
        for name, value in made.row.items():
            if not (value is None or _ROW[name](value)):
                raise StoreError(f"its registration has {value!r:.50} as {name} of its recorder")
        if made.durability not in ("buffered", "strict") or not is_number(made.row.get("started_at")):
            raise StoreError("its registration has no durability, or no time of its start")
        return made

    def check(self) -> None:
        """Raise `StoreError` if the name, the tags or the meta are invalid."""
        validation.checked_name(self.name)
        validation.checked_tags(self.tags)
        validation.meta_text(self.meta)

    def drop_invalid_labels(self) -> None:
        """Drop an invalid name, tags and meta with a warning, as they must not prevent a recording."""
        try:
            self.name = validation.checked_name(self.name)
        except StoreError as error:
            log.warning("%s; %s is registered without a name", error, self.exp_id)
            self.name = None
        try:
            self.tags = validation.checked_tags(self.tags)
        except StoreError as error:
            log.warning("%s; %s is registered without tags", error, self.exp_id)
            self.tags = []
        for field in ("meta", "facts"):
            try:
                validation.meta_text(getattr(self, field))
            except StoreError as error:
                log.warning("%s; %s is registered without it", error, self.exp_id)
                setattr(self, field, {})


async def register(
    store: EventLog, registration: Registration, first: Callable[[str], Awaitable[None]] | None = None
) -> Writer:
    """Find or create the experiment and register the recorder; `first` is awaited with the exp_id in between.

    Safe to repeat after a lost answer: the row is the same. An invalid name, tags and meta are dropped with a
    warning. Raises `ExperimentClosed`, `ExperimentExists`, `RecorderFenced`, or `StoreUnavailable`.
    """
    registration.drop_invalid_labels()
    noted = {key: value for key, value in registration.facts.items() if key in NOTED}
    while True:
        of = await lifecycle.join(
            store.database,
            registration.exp_id,
            registration.if_exists,
            uuid=registration.uuid,
            name=registration.name,
            tags=registration.tags,
            meta=registration.meta,
            noted=noted,
        )
        if first is not None:
            await first(of.exp_id)
        try:
            return await store.register(
                of,
                role=registration.role,
                patterns=registration.patterns,
                meta=registration.facts,
                name=registration.uuid,
                durability=registration.durability,
                spool=registration.spool,
                row=registration.row,
            )
        except ExperimentClosed:
            if registration.if_exists != "next":
                raise  # with "next", it was closed meanwhile: join the next one
