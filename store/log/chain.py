"""The hash chain, which reveals a changed, moved or missing event.

Every event has one encoding. It contains its fixed fields, its names instead of their
ids in the store, its attributes as they are stored, and its payload. The digest of a batch is the SHA-256 over
the encodings of its events; its chain hash extends that of the batch before with the digest, the seqs, the times, the
commit time and the wait of the batch. The head of a recorder is its last chain hash, once it has ended the seal over
its row, which covers that hash (`experiments/seal.py`). The head of an experiment is the hash of its recorders' heads
in order of uuid: the same in every store. The CRC-32 of each event, stored with the digest, locates a changed event in
its batch.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from ..experiments.records import RecorderRow

_HEAD = struct.Struct("<qqBBiiiiiq")
_BATCH = struct.Struct("<qqqqqq")
Names = tuple[tuple[int, int, int, int], bytes]
"""The lengths of a channel, a sender, a recipient and a Messager (-1 for none), and the four of them joined."""


def names(channel: bytes | None, from_id: bytes | None, to_id: bytes | None, messager: bytes | None = None) -> Names:
    """Return names in the form that `encode_event` takes. The result can be reused for events with the same names."""
    lengths = (
        -1 if channel is None else len(channel),
        -1 if from_id is None else len(from_id),
        -1 if to_id is None else len(to_id),
        -1 if messager is None else len(messager),
    )
    return lengths, (channel or b"") + (from_id or b"") + (to_id or b"") + (messager or b"")


def encode_event(
    seq: int,
    ts: int,
    kind: int,
    flags: int,
    lengths: tuple[int, int, int, int],
    joined: bytes,
    attributes: str | None,
    payload: bytes,
) -> bytes:
    """Return the encoding of an event.

    The lengths come first, so that no two events have the same encoding. Raises `struct.error` for a number that is
    not an int64.
    """
    text = b"" if attributes is None else attributes.encode("utf-8", "surrogatepass")
    of_text = -1 if attributes is None else len(text)
    return b"".join((_HEAD.pack(seq, ts, kind, flags, *lengths, of_text, len(payload)), joined, text, payload))


class BatchDigest:
    """The digest and the checks of one batch, from its events in order of seq."""

    __slots__ = ("_sha", "checks")

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self.checks: list[int] = []
        """CRC-32 of each event so far."""

    def extend(self, encoded: Sequence[bytes]) -> None:
        """Add encoded events."""
        self._sha.update(b"".join(encoded))
        self.checks += map(crc32, encoded)

    def digest(self) -> bytes:
        """Return the SHA-256 over the events."""
        return self._sha.digest()

    def packed_checks(self) -> bytes:
        """Return the CRC-32s, four little-endian bytes each."""
        return struct.pack(f"<{len(self.checks)}I", *self.checks)


def unpack_checks(packed: bytes) -> tuple[int, ...]:
    """Return the CRC-32s that `packed_checks` packed."""
    return struct.unpack(f"<{len(packed) // 4}I", packed[: len(packed) // 4 * 4])


def first_link(recorder_uuid: str) -> bytes:
    """Return the chain hash that precedes a recorder's first batch."""
    return hashlib.sha256(b"messager recorder " + recorder_uuid.encode()).digest()


def next_link(
    previous: bytes,
    digest: bytes,
    first_seq: int,
    count: int,
    min_ts: int,
    max_ts: int,
    committed_at: int,
    unacknowledged: int,
) -> bytes:
    """Return the chain hash of a batch. Raises `struct.error` for a number that is not an int64."""
    facts = _BATCH.pack(first_seq, count, min_ts, max_ts, committed_at, unacknowledged)
    return hashlib.sha256(previous + digest + facts).digest()


def facts(part: Mapping[Any, Any]) -> tuple[int, int, int, int, int, int]:
    """Return what `next_link` takes of a batch's row besides the digest."""
    return (
        part["first_seq"],
        part["count"],
        part["min_ts"],
        part["max_ts"],
        part["committed_at"],
        part["unacknowledged"],
    )


def head(recorders: Iterable[tuple[str, bytes]]) -> str:
    """Return the head of an experiment, in hex, from the uuids and heads of its recorders."""
    whole = hashlib.sha256()
    for uuid, head_ in sorted(recorders):
        whole.update(uuid.encode())
        whole.update(head_)
    return whole.hexdigest()


def head_of(recorders: Iterable[RecorderRow]) -> str:
    """Return the head of an experiment, in hex, from the rows of its recorders."""
    return head((row.uuid, row.head) for row in recorders)
