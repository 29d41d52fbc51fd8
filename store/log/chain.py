"""The hash chain, which reveals a changed, moved or missing event.

Every event has one encoding. It contains names, not their ids in the store. The digest of a batch is the SHA-256 over
the encodings of its events; its chain hash extends that of the batch before; the head of an experiment is the hash of
its recorders' heads. The CRC-32 of each event, stored with the digest, locates a changed event in its batch.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from ..experiments.records import RecorderRow

_HEAD = struct.Struct("<qqBBqqqiiiiiq")
_BATCH_1 = struct.Struct("<qqqq")
_BATCH_2 = struct.Struct("<qqqqqq")
_ABSENT = -(2**63)


Names = tuple[tuple[int, int, int], bytes]
"""The lengths of a channel, a sender and a recipient (-1 for none), and the three of them joined."""


def names(channel: bytes | None, from_id: bytes | None, to_id: bytes | None) -> Names:
    """Return names in the form that `encode_event` takes. The result can be reused for events with the same names."""
    lengths = (
        -1 if channel is None else len(channel),
        -1 if from_id is None else len(from_id),
        -1 if to_id is None else len(to_id),
    )
    return lengths, (channel or b"") + (from_id or b"") + (to_id or b"")


def encode_event(
    seq: int,
    ts: int,
    kind: int,
    flags: int,
    lengths: tuple[int, int, int],
    joined: bytes,
    msg_id: str | None,
    duration_ns: int | None,
    receivers: int | None,
    cause: int | None,
    meta: str | None,
    payload: bytes,
) -> bytes:
    """Return the encoding of an event; `cause` is its recorder's ordinal << SEQ_BITS | seq, the same in every store.

    The lengths come first, so that no two events have the same encoding. Raises `struct.error` for a number that is
    not an int64.
    """
    message = b"" if msg_id is None else msg_id.encode("utf-8", "surrogatepass")
    details = b"" if meta is None else meta.encode("utf-8", "surrogatepass")
    head = _HEAD.pack(
        seq,
        ts,
        kind,
        flags,
        _ABSENT if duration_ns is None else duration_ns,
        _ABSENT if receivers is None else receivers,
        _ABSENT if cause is None else cause,
        *lengths,
        -1 if msg_id is None else len(message),
        -1 if meta is None else len(details),
        len(payload),
    )
    return b"".join((head, joined, message, details, payload))


class BatchDigest:
    """The digest and the checks of one batch, from its events in order of seq."""

    __slots__ = ("_sha", "checks")

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self.checks: list[int] = []
        """CRC-32 of each event so far."""

    def add(
        self,
        seq: int,
        ts: int,
        kind: int,
        flags: int,
        channel: bytes | None,
        from_id: bytes | None,
        to_id: bytes | None,
        msg_id: str | None,
        duration_ns: int | None,
        receivers: int | None,
        cause: int | None,
        meta: str | None,
        payload: bytes,
    ) -> None:
        """Add one event; see `encode_event`."""
        of = names(channel, from_id, to_id)
        encoded = encode_event(seq, ts, kind, flags, *of, msg_id, duration_ns, receivers, cause, meta, payload)
        self._sha.update(encoded)
        self.checks.append(crc32(encoded))

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
    version: int,
    previous: bytes,
    digest: bytes,
    first_seq: int,
    count: int,
    min_ts: int,
    max_ts: int,
    committed_at: int,
    unacknowledged: int,
) -> bytes:
    """Return the chain hash of a batch, by the schema version of its experiment. Raises `struct.error` if not int64."""
    if version == 1:
        facts = _BATCH_1.pack(first_seq, count, min_ts, max_ts)
    else:
        facts = _BATCH_2.pack(first_seq, count, min_ts, max_ts, committed_at, unacknowledged)
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
    """Return the head of an experiment, in hex, from its recorders' uuids and head hashes in order of ordinal."""
    whole = hashlib.sha256()
    for uuid, head_hash in recorders:
        whole.update(uuid.encode())
        whole.update(head_hash)
    return whole.hexdigest()


def head_of(recorders: Iterable[RecorderRow]) -> str:
    """Return the head of an experiment, in hex, from its recorders' rows in order of ordinal."""
    return head((row.uuid, row.head_hash) for row in recorders)
