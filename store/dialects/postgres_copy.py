"""Events as PostgreSQL's COPY takes them in its binary format.

The format: https://www.postgresql.org/docs/current/sql-copy.html (Binary Format). asyncpg can make it, too, but
in the agents' own loop, and sends nothing of it before half a megabyte is there; the server waits meanwhile.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from ..commit import EVENT_COLUMNS
from . import postgres_text

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""What every COPY begins with: the signature, no flags, no extension."""
TRAILER = b"\xff\xff"
"""What every COPY ends with."""

_NULL = b"\xff\xff\xff\xff"
_ROW = Struct(">hiqiqiqih").pack
_bigint = Struct(">iq").pack
_integer = Struct(">ii").pack
_smallint = Struct(">ih").pack
_length = Struct(">i").pack


def encode(values: list[Any]) -> bytes:
    """The values of `Batch.rows`, encoded. Raises `struct.error` for a number that its column does not hold."""
    parts: list[bytes] = []
    width = len(EVENT_COLUMNS)
    for (
        number, experiment, ts, kind, channel, sender, recipient,
        flags, msg_id, duration, receivers, cause, meta, payload,
    ) in zip(*[iter(values)] * width, strict=True):  # fmt: skip
        parts += (
            _ROW(width, 8, number, 8, experiment, 8, ts, 2, kind),
            _NULL if channel is None else _bigint(8, channel),
            _NULL if sender is None else _bigint(8, sender),
            _NULL if recipient is None else _bigint(8, recipient),
            _smallint(2, flags),
            _NULL if msg_id is None else _text(msg_id),
            _NULL if duration is None else _bigint(8, duration),
            _NULL if receivers is None else _integer(4, receivers),
            _NULL if cause is None else _bigint(8, cause),
            _NULL if meta is None else _text(meta),
            _length(len(payload)),
            payload,
        )
    return b"".join(parts)


def _text(value: str) -> bytes:
    encoded = postgres_text.encode(value)
    return _length(len(encoded)) + encoded
