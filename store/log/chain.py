"""The hash chain, which reveals a changed, moved or missing event.

Every event has one encoding. It contains names, not their ids in the store. The digest of a batch is the SHA-256 over
the encodings of its events; its chain hash extends that of the batch before; the head of an experiment is the hash of
its recorders' heads. The CRC-32 of each event, stored with the digest, locates a changed event in its batch.

| version of               | 1                           | 2                            | 3                       |
|--------------------------|-----------------------------|------------------------------|-------------------------|
| `recorder.chain_version` | a link covers digest, seqs  | and the time of its commit   | and events cover their  |
|                          | and times of a batch        | and the wait of its oldest   | Messager, arrival and   |
|                          |                             | event                        | origin; a cause names a |
|                          |                             |                              | uuid, not an ordinal    |
| `experiment.             | the head covers recorders   | as 1                         | in order of uuid: it is |
| schema_version`          | in order of ordinal         |                              | the same in every store |
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from ..db.codes import SEQ_BITS, SEQ_MASK

if TYPE_CHECKING:
    from ..experiments.records import Experiment, RecorderRow

_HEAD_2 = struct.Struct("<qqBBqqqiiiiiq")
_HEAD_3 = struct.Struct("<qqBBqqqqqiiiiiiiiq")
_BATCH_1 = struct.Struct("<qqqq")
_BATCH_2 = struct.Struct("<qqqqqq")
_ABSENT = -(2**63)


Names = tuple[tuple[int, int, int, int], bytes]
"""The lengths of a channel, a sender, a recipient and a Messager (-1 for none), and the four of them joined."""

Reference = tuple[bytes, int]
"""An event of any store: the uuid of its recorder, and its seq."""


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
    msg_id: str | None,
    duration_ns: int | None,
    receivers: int | None,
    cause: Reference | None,
    meta: str | None,
    payload: bytes,
    arrival: int | None,
    origin: Reference | None,
) -> bytes:
    """Return the encoding of an event in version 3.

    The lengths come first, so that no two events have the same encoding. Raises `struct.error` for a number that is
    not an int64.
    """
    message = b"" if msg_id is None else msg_id.encode("utf-8", "surrogatepass")
    details = b"" if meta is None else meta.encode("utf-8", "surrogatepass")
    of_cause, cause_seq = cause or (b"", _ABSENT)
    of_origin, origin_seq = origin or (b"", _ABSENT)
    head = _HEAD_3.pack(
        seq,
        ts,
        kind,
        flags,
        _ABSENT if duration_ns is None else duration_ns,
        _ABSENT if receivers is None else receivers,
        _ABSENT if arrival is None else arrival,
        cause_seq,
        origin_seq,
        *lengths,
        len(of_cause),
        len(of_origin),
        -1 if msg_id is None else len(message),
        -1 if meta is None else len(details),
        len(payload),
    )
    return b"".join((head, joined, of_cause, of_origin, message, details, payload))


def encode_event_2(
    seq: int,
    ts: int,
    kind: int,
    flags: int,
    lengths: tuple[int, int, int, int],
    joined: bytes,
    msg_id: str | None,
    duration_ns: int | None,
    receivers: int | None,
    cause: int | None,
    meta: str | None,
    payload: bytes,
    arrival: int | None = None,
    origin: Reference | None = None,
) -> bytes:
    """Return the encoding of an event in versions 1 and 2; `cause` is its recorder's ordinal << SEQ_BITS | seq.

    Raises `struct.error` for a number that is not an int64, and `TypeError` for an event with a Messager, an arrival or
    an origin, which these versions do not cover.
    """
    if lengths[3] >= 0 or arrival is not None or origin is not None:
        raise TypeError("versions 1 and 2 of the chain do not cover messager, arrival and origin")
    message = b"" if msg_id is None else msg_id.encode("utf-8", "surrogatepass")
    details = b"" if meta is None else meta.encode("utf-8", "surrogatepass")
    head = _HEAD_2.pack(
        seq,
        ts,
        kind,
        flags,
        _ABSENT if duration_ns is None else duration_ns,
        _ABSENT if receivers is None else receivers,
        _ABSENT if cause is None else cause,
        *lengths[:3],
        -1 if msg_id is None else len(message),
        -1 if meta is None else len(details),
        len(payload),
    )
    return b"".join((head, joined, message, details, payload))


class Identity(NamedTuple):
    """A recorder as causes name it: in versions 1 and 2 by ordinal, since version 3 by uuid."""

    id: int
    """In this store."""
    ordinal: int
    """In its experiment in this store."""
    uuid: bytes


class Encoder:
    """The encoding of the events of one recorder, by its chain version."""

    def __init__(self, version: int, identities: Iterable[Identity]) -> None:
        self.version = version
        self.encode: Callable[..., bytes] = encode_event if version >= 3 else encode_event_2
        """`encode_event` or `encode_event_2`."""
        self._identities = {each.id: each for each in identities}

    def cause(self, number: int | None) -> Reference | int | None:
        """Return the cause in a row, `recorder.id << SEQ_BITS | seq`, as `encode` takes it."""
        if number is None:
            return None
        found, seq = self._identities.get(number >> SEQ_BITS), number & SEQ_MASK
        if self.version >= 3:
            return b"" if found is None else found.uuid, seq
        return (0 if found is None else found.ordinal) << SEQ_BITS | seq


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
    """Return the chain hash of a batch, by the chain version of its recorder. Raises `struct.error` if not int64."""
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


def head(version: int, recorders: Iterable[tuple[str, bytes]]) -> str:
    """Return the head of an experiment, in hex, by its schema version.

    `recorders` are their uuids and head hashes, in order of ordinal.
    """
    whole = hashlib.sha256()
    for uuid, head_hash in sorted(recorders) if version >= 3 else recorders:
        whole.update(uuid.encode())
        whole.update(head_hash)
    return whole.hexdigest()


def head_of(of: Experiment, recorders: Iterable[RecorderRow]) -> str:
    """Return the head of an experiment, in hex, from its recorders' rows in order of ordinal."""
    return head(of.schema_version, ((row.uuid, row.head_hash) for row in recorders))


def encoder(row: RecorderRow, recorders: Iterable[RecorderRow]) -> Encoder:
    """Return the encoder of a recorder; `recorders` are all of its experiment."""
    return Encoder(row.chain_version, [Identity(each.id, each.ordinal, each.uuid.encode()) for each in recorders])
