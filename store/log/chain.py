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

_HEAD = struct.Struct("<qqBBiq")
_LENGTH = struct.Struct("<i")
NO_NAME = _LENGTH.pack(-1)
"""The result of `name` for None."""
_BATCH = struct.Struct("<qqqqqq")


def name(value: bytes | None) -> bytes:
    """Return a name as encodings contain it: its length (-1 for None), then the name."""
    return NO_NAME if value is None else _LENGTH.pack(len(value)) + value


def encode_event(
    seq: int,
    ts: int,
    kind: int,
    flags: int,
    names: bytes,
    attributes: str | None,
    payload: bytes,
) -> bytes:
    """Return the encoding of an event.

    `names` are the results of `name` for its channel, sender, recipient and Messager, joined. Each part is preceded by
    its length, so that no two events have the same encoding. Raises `struct.error` for a number that is not an int64.
    """
    if attributes is None:
        return b"".join((_HEAD.pack(seq, ts, kind, flags, -1, len(payload)), names, payload))
    text = attributes.encode("utf-8", "surrogatepass")
    return b"".join((_HEAD.pack(seq, ts, kind, flags, len(text), len(payload)), names, text, payload))


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
