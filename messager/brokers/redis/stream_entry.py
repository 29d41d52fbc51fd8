"""Entry of a stream as a message, and back, byte for byte.

An entry is a list of fields with values. Of one field, the payload is the value, and `meta` has the name in `field`. Of
several, the payload is a JSON object of all of them, in order and with their repetitions, and `meta` has their number
in `fields`. Bytes that are not UTF-8 are escaped lone surrogates, as in names of channels (see `messager.channels`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ... import channels


def message_of(entry_id: bytes, words: Sequence[bytes]) -> tuple[bytes, dict[str, Any]]:
    """Return the payload and the meta of an entry: its id, and the words of its fields (name, value, name ...)."""
    meta: dict[str, Any] = {"id": entry_id.decode("ascii", "replace")}
    if len(words) == 2:
        meta["field"] = channels.decode(words[0])
        return words[1], meta
    meta["fields"] = len(words) // 2
    texts = [channels.decode(word) for word in words]
    try:
        return _object(texts, ascii=False).encode(), meta
    except UnicodeEncodeError:  # a word is not UTF-8
        return _object(texts, ascii=True).encode(), meta


def _object(texts: Sequence[str], *, ascii: bool) -> str:
    words = [json.dumps(text, ensure_ascii=ascii) for text in texts]
    return f"{{{', '.join(f'{name}: {value}' for name, value in zip(words[::2], words[1::2], strict=True))}}}"


def fields_of(payload: bytes, meta: Mapping[str, Any] | None) -> list[bytes]:
    """Return the words of the fields of an entry, from what `message_of` returned. Raises `ValueError` for others."""
    field, number = (meta or {}).get("field"), (meta or {}).get("fields")
    if isinstance(field, str):
        return [channels.encode(field), payload]
    if not isinstance(number, int):
        raise ValueError(
            "it travelled through a stream, and the names of its fields were not recorded: record with "
            "`messager record --streams`"
        )
    try:
        pairs = json.loads(payload, object_pairs_hook=list)
        words = [channels.encode(word) for pair in pairs for word in pair]
    except (ValueError, TypeError, RecursionError):
        words = []
    if not words or len(words) != 2 * number:
        raise ValueError(
            f"it travelled through a stream, and its payload is not the {number} fields that its meta says"
        )
    return words
