"""The lines of events in a pack."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring as quoted
from typing import Any

from ...db.codes import KINDS, SEQ_BITS, SEQ_MASK
from ...log.chain_walk import MOST_NAMES, Names, WalkedPage
from ..fields import bytes_field


class EventLines:
    """Writes events as `json.dumps` would write an object of their fields; most of a line is the same for many."""

    def __init__(self, ordinals: dict[int, int]) -> None:
        self._ordinals = ordinals
        """Ordinals of the recorders by id: causes name these."""
        self._names: dict[Names, str] = {}

    def of(self, page: WalkedPage) -> list[str]:
        """Return the lines of a page whose values have the right types, without line feeds."""
        lines = []
        for row, of in page.with_names():
            (
                _, _, _, _, _, _, _,
                ts, kind, flags, msg_id, duration, receivers, cause, meta, payload, arrival, origin_seq,
            ) = row  # fmt: skip
            names = self._names.get(of)
            line = f'{{"ts": {ts}, "kind": "{KINDS[kind - 1]}"{self._add(of) if names is None else names}'
            if flags:
                line += f', "flags": {flags}'
            if msg_id is not None:
                line += f', "msg_id": {quoted(msg_id)}'
            if duration is not None:
                line += f', "duration_ns": {duration}'
            if receivers is not None:
                line += f', "receivers": {receivers}'
            if cause is not None:
                line += f', "cause": [{self._ordinals.get(cause >> SEQ_BITS, 0)}, {cause & SEQ_MASK}]'
            if meta is not None:
                line += f', "meta": {quoted(meta)}'
            if arrival is not None:
                line += f', "arrival": {arrival}'
            if of.origin is not None:
                line += f', "origin": [{quoted(of.origin.decode())}, {"null" if origin_seq is None else origin_seq}]'
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
