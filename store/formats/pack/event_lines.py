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
        self._names: dict[Any, str] = {}
        """The fields of names, by their ids."""

    def of(self, page: WalkedPage) -> list[str]:
        """Return the lines of a page whose values have the right types, without line feeds."""
        lines = []
        for _, _, *ids, ts, kind, flags, attributes, payload in page.rows:
            names = self._names.get(of := tuple(ids))
            if names is None:
                names = self._add(of, page.names)
            line = f'{{"ts": {ts}, "kind": "{KINDS[kind - 1]}"{names}'
            if flags:
                line += f', "flags": {flags}'
            if attributes is not None:
                line += f', "attributes": {quoted(attributes)}'
            try:
                lines.append(f'{line}, "payload": {quoted(payload.decode())}}}')
            except UnicodeDecodeError:
                lines.append(f'{line}, "payload_base64": "{base64.b64encode(payload).decode()}"}}')
        return lines

    def _add(self, ids: tuple[Any, ...], names: Names) -> str:
        """Return the fields of names given by their ids."""
        fields: dict[str, Any] = {}
        for key, number in zip(("channel", "from_id", "to_id", "messager"), ids, strict=True):
            if (value := names.values.get(number)) is not None:
                fields |= bytes_field(key, value)
        if len(self._names) >= MOST_NAMES:
            self._names.clear()
        text = json.dumps(fields, ensure_ascii=False)[1:-1]
        self._names[ids] = found = f", {text}" if text else ""
        return found
