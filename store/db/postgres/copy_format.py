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
    *("id", "experiment_id", "ts", "kind", "flags", "channel_id", "from_id", "to_id"),
    *("msg_id", "duration_ns", "receivers", "cause", "meta", "payload"),
    *("messager_id", "arrival", "origin_id", "origin_seq"),
)
"""The columns in the order of sending: those that are never null come first."""

_NULL = b"\xff\xff\xff\xff"
_NO_SCHEDULE = _NULL * 4
_FIRST = Struct(">hiqiqiqihih").pack
_NAMES = Struct(">iqiqiq").pack
_bigint = Struct(">iq").pack
_integer = Struct(">ii").pack
_length = Struct(">i").pack


def encode(rows: list[Row]) -> bytes:
    """Return rows encoded for COPY. Raises `struct.error` for a number that its column does not hold."""
    parts: list[bytes] = []
    columns = len(COLUMNS)
    for (
        number, experiment, ts, kind, channel, sender, recipient,
        flags, msg_id, duration, receivers, cause, meta, payload, *schedule,
    ) in rows:  # fmt: skip
        if channel is None or sender is None or recipient is None:
            names = b"".join([_NULL if name is None else _bigint(8, name) for name in (channel, sender, recipient)])
        else:
            names = _NAMES(8, channel, 8, sender, 8, recipient)
        parts += (
            _FIRST(columns, 8, number, 8, experiment, 8, ts, 2, kind, 2, flags),
            names,
            _NULL if msg_id is None else _text(msg_id),
            _NULL if duration is None else _bigint(8, duration),
            _NULL if receivers is None else _integer(4, receivers),
            _NULL if cause is None else _bigint(8, cause),
            _NULL if meta is None else _text(meta),
            _length(len(payload)),
            payload,
            _NO_SCHEDULE
            if schedule == [None, None, None, None]
            else b"".join([_NULL if value is None else _bigint(8, value) for value in schedule]),
        )
    return b"".join(parts)


def _text(value: str) -> bytes:
    encoded = nul_text.encode(value)
    return _length(len(encoded)) + encoded
