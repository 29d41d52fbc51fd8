"""Parser of JSON Lines files: a header and events, every value checked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from messager import channels

from ...db.schema import FROM_DERIVED, KINDS, REDACTED, SEQ_BITS, TO_DERIVED
from ...errors import BadFile, StoreError
from ...experiments import validation
from ...log.event import NewEvent
from ...log.redaction_records import SEAL
from ..fields import INT64, NO_CHANNEL, InvalidEntry, bytes_of, check_depth, integer, integer_of, text, text_of
from ..input_file import InputFile, parse_object

FORMATS = ("messager/1", "messager/2")
"""Known formats. The first has no fields of revision 0003."""
FORMAT = FORMATS[-1]
_MOST_RECORDERS = 1000
"""Maximum number of recorders without a header that describes them."""
MOST_TOLD = 10_000
"""Maximum number of recorders in a header."""
MOST_TAGS = 1000
MOST_NAME = 1024 * 1024
"""Maximum bytes of a channel, an id or a message id."""
_HEADER_FIELDS = {"format", "name", "tags", "meta", "recorders"}
_HEADER_FIELDS_2 = _HEADER_FIELDS | {"parent"}
_EVENT_FIELDS = {
    "ts",
    "kind",
    "channel",
    "channel_base64",
    "from_id",
    "to_id",
    "payload",
    "payload_base64",
    "recorder",
    "derived",
    "msg_id",
    "duration_ns",
    "receivers",
    "meta",
    "label",
    "cause",
    "redacted",
}
_EVENT_FIELDS_2 = _EVENT_FIELDS | {"messager", "arrival", "origin"}
_UUID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of key-value pairs. Raise `ValueError` for a repeated key, which is ambiguous."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:100]!r} is there twice")
    return found


class Parser(InputFile):
    """Parser of a JSON Lines file: the header, then the events, each checked."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._length = 0
        self._first: dict[str, Any] | None = None
        self._most_recorders = _MOST_RECORDERS
        self._event_fields = _EVENT_FIELDS_2

    def header(self) -> dict[str, Any]:
        """Return the header, or an empty dict if the first line is an event."""
        first = self._next()
        if first is None:
            raise BadFile(self.path, None, "it is empty")
        if "ts" in first:
            self._first = first
            return {}
        version = first.get("format", FORMATS[0])
        self._event_fields = _EVENT_FIELDS if version == FORMATS[0] else _EVENT_FIELDS_2
        unknown = first.keys() - (_HEADER_FIELDS if version == FORMATS[0] else _HEADER_FIELDS_2)
        if unknown:
            raise InvalidEntry(f"neither an event (no ts) nor a header (unknown field {sorted(unknown)[0]!r})")
        if version not in FORMATS:
            if str(first["format"]).startswith("messager-pack/"):
                raise InvalidEntry("this is a pack, not an export; read it with `messager unpack`")
            raise InvalidEntry(f"format {first['format']!r} is not known, only {' and '.join(map(repr, FORMATS))}")
        if not isinstance(first.get("name"), str | None):
            raise InvalidEntry("the name is not a string")
        for field, kind in (("tags", str), ("recorders", dict)):
            items = first.get(field, [])
            if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
                raise InvalidEntry(f"{field} is not a list of {'strings' if kind is str else 'objects'}")
        if not isinstance(first.get("meta", {}), dict):
            raise InvalidEntry("meta is not an object")
        for field, most in (("tags", MOST_TAGS), ("recorders", MOST_TOLD)):
            if len(first.get(field, [])) > most:
                raise InvalidEntry(f"{len(first[field]):,} {field}; at most {most:,} are allowed")
        _check_parent(first.get("parent"))
        for word in (first.get("name") or "", *first.get("tags", [])):
            text(word, "name or tag")
        try:
            validation.checked_name(first.get("name"))
            validation.checked_tags(first.get("tags", []))
        except StoreError as error:
            raise InvalidEntry(str(error)) from None
        check_depth(first.get("meta"), "meta")
        for facts in first.get("recorders", []):
            check_depth(facts, "the description of a recorder")
        self._most_recorders = max(_MOST_RECORDERS, len(first.get("recorders", [])))
        return first

    def events(self) -> Iterator[tuple[int, NewEvent, int | None, int | None, int]]:
        """Yield (ordinal of the recorder, event, its label, label of its cause, bytes) for every line."""
        data, self._first = self._first or self._next(), None
        while data is not None:
            yield *self._event(data), self._length
            data = self._next()

    def _next(self) -> dict[str, Any] | None:
        """Return the next line that is not empty, as an object."""
        while line := self._line():
            self._length = len(line)
            if line.strip():
                return parse_object(line, _once)
        return None

    def _event(self, data: dict[str, Any]) -> tuple[int, NewEvent, int | None, int | None]:
        unknown = data.keys() - self._event_fields
        if unknown:
            raise InvalidEntry(f"unknown field {sorted(unknown)[0]!r}")
        ts = integer_of(data, "ts", -INT64, INT64 - 1)
        if ts is None:
            raise InvalidEntry("no ts (an integer, ns UTC)")
        kind = data.get("kind", "sent")
        if kind not in KINDS:
            raise InvalidEntry(f"kind {kind!r} is none of {', '.join(KINDS)}")
        channel = bytes_of(data, "channel")
        if channel is None and kind not in NO_CHANNEL:
            raise InvalidEntry("no channel")
        for field in ("from_id", "to_id", "meta"):
            check_depth(data.get(field), field)
        if self._length > MOST_NAME:
            _check_names(channel, data)
        meta = data.get("meta")
        if meta is not None and not isinstance(meta, dict):
            raise InvalidEntry("meta is not an object")
        msg_id = text_of(data, "msg_id")
        derived = data.get("derived") or []
        if not isinstance(derived, list) or not all(item in ("from_id", "to_id") for item in derived):
            raise InvalidEntry("derived is not a list of from_id and to_id")
        bits = (FROM_DERIVED if "from_id" in derived else 0) | (TO_DERIVED if "to_id" in derived else 0)
        bits |= _redacted(data)
        ordinal = integer_of(data, "recorder", 1, self._most_recorders)
        entry = NewEvent(
            kind,
            ts,
            None if channel is None else channels.decode(channel),
            _payload(data),
            data.get("from_id"),
            data.get("to_id"),
            bits,
            msg_id,
            integer_of(data, "duration_ns", 0, INT64 - 1),
            integer_of(data, "receivers", 0, 2**31 - 1),
            None,
            meta,
            text_of(data, "messager"),
            integer_of(data, "arrival", 0, INT64 - 1),
            _origin(data.get("origin")),
        )
        label, cause = (integer_of(data, field, 1, INT64 - 1) for field in ("label", "cause"))
        return ordinal or 1, entry, label, cause


def _origin(given: Any) -> tuple[str, int] | None:
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != 2 or not isinstance(given[0], str) or not _UUID.fullmatch(given[0]):
        raise InvalidEntry("origin is not a recorder's uuid and a seq")
    return given[0], integer(given[1], "the seq of an origin", 1, (1 << SEQ_BITS) - 1)


def _check_parent(parent: Any) -> None:
    """Raise `InvalidEntry` if the description of the parent experiment is invalid."""
    if parent is None:
        return
    if not isinstance(parent, dict) or parent.keys() != {"exp_id", "head", "cursor"}:
        raise InvalidEntry("parent is not an object with exp_id, head and cursor")
    for field, value in parent.items():
        text(value, f"{field} of parent")
    if not re.fullmatch(r"[0-9a-f]{64}", parent["head"]):
        raise InvalidEntry("head of parent is not a SHA-256 in hex")


def _check_names(channel: bytes | None, data: dict[str, Any]) -> None:
    """Raise `InvalidEntry` for a very long name: names stay in memory until the import ends."""
    for field in ("channel", "from_id", "to_id", "msg_id", "messager"):
        value = channel if field == "channel" else data.get(field)
        size = len(value) if isinstance(value, bytes) else len(json.dumps(value))
        if size > MOST_NAME:
            raise InvalidEntry(f"{field} is longer than {MOST_NAME:,} bytes")


def _redacted(data: dict[str, Any]) -> int:
    """Return the flag of an event that was redacted in its original store."""
    if not isinstance(data.get("redacted", False), bool):
        raise InvalidEntry("redacted is not true or false")
    if not data.get("redacted"):
        return 0
    if data.get("payload") or data.get("payload_base64"):
        raise InvalidEntry("it is redacted, but has a payload")
    if SEAL in (data.get("meta") or {}):
        raise InvalidEntry(f"meta.{SEAL} belongs to the log it comes from")
    return REDACTED


def _payload(data: dict[str, Any]) -> bytes:
    if "payload" in data and not isinstance(data["payload"], str):
        if "payload_base64" in data:
            raise InvalidEntry("both payload and payload_base64")
        try:
            return json.dumps(data["payload"]).encode()  # as a Messager encodes it
        except RecursionError:
            raise InvalidEntry("payload is nested too deep") from None
    return bytes_of(data, "payload") or b""
