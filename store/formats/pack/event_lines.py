"""The lines of events in a pack."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring as quoted
from typing import Any

from ...db.codes import KINDS
from ...log.chain_walk import MOST_NAMES, Names, WalkedPage
from ..fields import bytes_field


class EventLines:
    """Writes events as `json.dumps` would write an object of their fields; most of a line is the same for many."""

    def __init__(self) -> None:
        self._names: dict[Names, str] = {}

    def of(self, page: WalkedPage) -> list[str]:
        """Return the lines of a page whose values have the right types, without line feeds."""
        lines = []
        for (_, _, _, _, _, _, ts, kind, flags, attributes, payload), of in page.with_names():
            names = self._names.get(of)
            line = f'{{"ts": {ts}, "kind": "{KINDS[kind - 1]}"{self._add(of) if names is None else names}'
            if flags:
                line += f', "flags": {flags}'
            if attributes is not None:
                line += f', "attributes": {quoted(attributes)}'
            try:
                lines.append(f'{line}, "payload": {quoted(payload.decode())}}}')
            except UnicodeDecodeError:
                lines.append(f'{line}, "payload_base64": "{base64.b64encode(payload).decode()}"}}')
        return lines

    def _add(self, of: Names) -> str:
        """Return the fields of an event's names."""
        fields: dict[str, Any] = {}
        for key, value in (
            ("channel", of.channel),
            ("from_id", of.sender),
            ("to_id", of.recipient),
            ("messager", of.messager),
        ):
            if value is not None:
                fields |= bytes_field(key, value)
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        text = json.dumps(fields, ensure_ascii=False)[1:-1]
        self._names[of] = found = f", {text}" if text else ""
        return found
