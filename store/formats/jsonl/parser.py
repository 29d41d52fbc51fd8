"""Parser of JSON Lines files: a header and events, every value checked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from messager import channels

from ... import limits
from ...db.codes import FROM_DERIVED, KINDS, REDACTED, TO_DERIVED
from ...errors import BadFile, StoreError
from ...experiments import validation
from ...log import attributes
from ...log.attributes import ATTRIBUTES, KEYS
from ...log.event import SEAL, Fields
from ..fields import (
    INT64,
    NO_CHANNEL,
    InvalidEntry,
    bytes_of,
    check_depth,
    check_meta,
    integer_of,
    text,
    text_of,
)
from ..input_file import InputFile
from ..unique_keys import parse_unique

FORMAT = "messager/1"
_MOST_RECORDERS = 1000
"""Maximum number of recorders without a header that describes them."""
MOST_TOLD = 10_000
"""Maximum number of recorders in a header."""
MOST_TAGS = 1000
_HEADER_FIELDS = {"format", "name", "tags", "meta", "recorders", "parent"}
_ATTRIBUTES = tuple(attribute.name for attribute in ATTRIBUTES if attribute.name not in ("cause", "meta"))
"""Attributes that a line has as they are. A cause is a label, and meta has limits of its own."""
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
    "label",
    "redacted",
    "messager",
    *(attribute.name for attribute in ATTRIBUTES),
}


class Parser(InputFile):
    """Parser of a JSON Lines file: the header, then the events, each checked."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._length = 0
        self._first: dict[str, Any] | None = None
        self._most_recorders = _MOST_RECORDERS
        self._channels: dict[str, str] = {}
        """Channels that were checked, as the log has them."""

    def header(self) -> dict[str, Any]:
        """Return the header, or an empty dict if the first line is an event."""
        first = self._next()
        if first is None:
            raise BadFile(self.path, None, "it is empty")
        if "ts" in first:
            self._first = first
            return {}
        version = first.get("format", FORMAT)
        unknown = first.keys() - _HEADER_FIELDS
        if unknown:
            raise InvalidEntry(f"neither an event (no ts) nor a header (unknown field {sorted(unknown)[0]!r})")
        if version != FORMAT:
            if str(first["format"]).startswith("messager-pack/"):
                raise InvalidEntry("this is a pack, not an export; read it with `messager unpack`")
            raise InvalidEntry(f"format {first['format']!r} is not known, only {FORMAT!r}")
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
        check_meta(first.get("meta", {}))
        for facts in first.get("recorders", []):
            check_depth(facts, "the description of a recorder")
            check_meta(facts)
        self._most_recorders = max(_MOST_RECORDERS, len(first.get("recorders", [])))
        return first

    def events(self) -> Iterator[tuple[int, Fields, int | None, int | None, int]]:
        """Yield (ordinal of the recorder, event, its label, label of its cause, bytes) for every line."""
        data, self._first = self._first or self._next(), None
        while data is not None:
            yield self._event(data)
            data = self._next()

    def _next(self) -> dict[str, Any] | None:
        """Return the next line that is not empty, as an object."""
        while line := self._line():
            if not line.isspace():
                self._length = len(line)
                return parse_unique(line)
        return None

    def _event(self, data: dict[str, Any]) -> tuple[int, Fields, int | None, int | None, int]:
        get = data.get
        ts, kind, channel = get("ts"), get("kind", "sent"), get("channel")
        from_id, to_id, meta = get("from_id"), get("to_id"), get("meta")
        basic = data.keys() <= _BASIC_FIELDS
        if not basic and not data.keys() <= _EVENT_FIELDS:
            raise InvalidEntry(f"unknown field {sorted(data.keys() - _EVENT_FIELDS)[0]!r}")
        if ts.__class__ is not int or not -INT64 <= ts < INT64:
            ts = integer_of(data, "ts", -INT64, INT64 - 1)
            if ts is None:
                raise InvalidEntry("no ts (an integer, ns UTC)")
        if kind not in KINDS:
            raise InvalidEntry(f"kind {kind!r} is none of {', '.join(KINDS)}")
        if channel.__class__ is not str or channel not in self._channels or "channel_base64" in data:
            channel = self._channel(data, kind)
        if not (from_id.__class__ in _SIMPLE and to_id.__class__ in _SIMPLE and meta is None):
            for field, value in (("from_id", from_id), ("to_id", to_id), ("meta", meta)):
                check_depth(value, field)
        if self._length > limits.MOST_NAME:
            _check_names(None if channel is None else channels.encode(channel), data)
        if meta is not None and not isinstance(meta, dict):
            raise InvalidEntry("meta is not an object")
        if meta and self._length > limits.MOST_META:
            check_meta(meta)
        if basic:
            (bits, ordinal, messager, label, cause), attributes = _FEW, (*_NO_ATTRIBUTES, meta)
        else:
            (bits, ordinal, messager, label, cause), attributes = self._rest(data), _attributes(data)
        payload = get("payload")
        try:
            wire = payload.encode() if payload.__class__ is str and "payload_base64" not in data else _payload(data)
        except UnicodeEncodeError:
            wire = _payload(data)  # raises the error in words
        entry = (kind, ts, channel, wire, from_id, to_id, bits, messager, *attributes)
        return ordinal, entry, label, cause, self._length

    def _channel(self, data: dict[str, Any], kind: str) -> str | None:
        """Return the channel of an event."""
        encoded = bytes_of(data, "channel")
        if encoded is None:
            if kind not in NO_CHANNEL:
                raise InvalidEntry("no channel")
            return None
        channel = channels.decode(encoded)
        if channel == data.get("channel") and len(self._channels) < _MOST_CHANNELS and len(channel) < 1000:
            self._channels[channel] = channel
        return channel

    def _rest(self, data: dict[str, Any]) -> _Rest:
        """Return the values of the less frequent fields, and check the attributes."""
        derived = data.get("derived") or []
        if not isinstance(derived, list) or not all(item in ("from_id", "to_id") for item in derived):
            raise InvalidEntry("derived is not a list of from_id and to_id")
        bits = (FROM_DERIVED if "from_id" in derived else 0) | (TO_DERIVED if "to_id" in derived else 0)
        bits |= _redacted(data)
        for name in _ATTRIBUTES:
            if (value := data.get(name)) is not None:
                try:
                    attributes.check(name, value)
                except ValueError as error:
                    raise InvalidEntry(str(error)) from None
        if data.get("origin") is not None:
            data["origin"] = tuple(data["origin"])
        ordinal = integer_of(data, "recorder", 1, self._most_recorders)
        return (
            bits,
            ordinal or 1,
            text_of(data, "messager"),
            integer_of(data, "label", 1, INT64 - 1),
            integer_of(data, "cause", 1, INT64 - 1),
        )


def _attributes(data: dict[str, Any]) -> tuple[Any, ...]:
    """Return the attributes of an event, which were checked, in the order of its fields, without its cause."""
    get = data.get
    return tuple([None if name == "cause" else get(name) for name in KEYS])


_SIMPLE = (str, int, type(None))
_BASIC_FIELDS = {"ts", "kind", "channel", "from_id", "to_id", "payload", "meta"}
_MOST_CHANNELS = 10_000
_Rest = tuple[int, int, str | None, int | None, int | None]
"""Flags, recorder, Messager, label, and label of the cause."""
_FEW: _Rest = (0, 1, None, None, None)
"""The values of these in an event without them."""
_NO_ATTRIBUTES = (None,) * (len(KEYS) - 1)
"""The attributes of such an event before its meta, which is the last one."""


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
        if size > limits.MOST_NAME:
            raise InvalidEntry(f"{field} is longer than {limits.MOST_NAME:,} bytes")


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
