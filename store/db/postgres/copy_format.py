"""Rows in the binary format of PostgreSQL's COPY.

The format: https://www.postgresql.org/docs/current/sql-copy.html (Binary Format). asyncpg can produce it, too, but
sends nothing before half a megabyte is complete, while the server waits.
"""

from __future__ import annotations

from struct import Struct

from ..statements import Row
from . import nul_text

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""The start of every COPY: the signature, no flags, no extension."""
TRAILER = b"\xff\xff"
"""The end of every COPY."""

COLUMNS = (
    *("id", "experiment_id", "ts", "kind", "flags"),
    *("channel_id", "from_id", "to_id", "messager_id", "attributes", "payload"),
)
"""The columns in the order of sending: those that are never null come first."""

_NULL = b"\xff\xff\xff\xff"
_FIRST = Struct(">hiqiqiqihih").pack
_NAMES = Struct(">iqiqiqiq").pack
_bigint = Struct(">iq").pack
_length = Struct(">i").pack


def encode(rows: list[Row]) -> bytes:
    """Return rows encoded for COPY. Raises `struct.error` for a number that its column does not hold."""
    parts: list[bytes] = []
    columns = len(COLUMNS)
    for number, experiment, ts, kind, channel, sender, recipient, messager, flags, attributes, payload in rows:
        names = channel, sender, recipient, messager
        parts += (
            _FIRST(columns, 8, number, 8, experiment, 8, ts, 2, kind, 2, flags),
            b"".join([_NULL if name is None else _bigint(8, name) for name in names])
            if None in names
            else _NAMES(8, channel, 8, sender, 8, recipient, 8, messager),
            _NULL if attributes is None else _text(attributes),
            _length(len(payload)),
            payload,
        )
    return b"".join(parts)


def _text(value: str) -> bytes:
    encoded = nul_text.encode(value)
    return _length(len(encoded)) + encoded
