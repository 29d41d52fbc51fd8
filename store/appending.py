"""What one append writes: a batch of events as rows, with the digest that seals them.

Nothing here waits and nothing here knows a database, so it runs in the thread that writes.
It is the hottest room of the house: a few microseconds an event are all that recording costs.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import chain, jsontext
from .commit import Commit
from .errors import BadEvent
from .event import Fields
from .jsontext import is_no_text
from .names import Unknown
from .schema import KINDS, NO_TEXT, SEQ_BITS

if TYPE_CHECKING:
    from .log import Writer

_KIND = {kind: code for code, kind in enumerate(KINDS, 1)}
_RECEIVERS = 2**31
"""How many receivers no column holds any more."""


def prepare(writer: Writer, events: Sequence[Fields], unacknowledged_ns: int, complete_until: int | None) -> Commit:
    """The batch that is next in this writer's chain.

    Raises `BadEvent` for an event that the log cannot hold, and `Unknown`.
    """
    first = writer.last_seq + 1
    values, encoded = _rows(writer, first, events)
    digest, checks = chain.sealed(encoded)
    times = [entry[1] for entry in events]
    low, high = min(times), max(times)
    now = time.time_ns()
    version = writer.experiment.schema_version
    link = chain.next_link(version, writer.head_hash, digest, first, len(events), low, high, now, unacknowledged_ns)
    counts = Counter([entry[0] for entry in events])
    advance: dict[str, Any] = {f"new_{kind}_count": counts[kind] for kind in KINDS}
    advance |= {
        "recorder_id": writer.id,
        "recorder_uuid": writer.uuid,
        "old_epoch": writer.epoch,
        "old_last_seq": writer.last_seq,
        "new_last_seq": first + len(events) - 1,
        "new_head_hash": link,
        "now": now,
        "new_payload_bytes": sum([len(entry[3]) for entry in events]),
        "low": low,
        "high": high,
        "unacknowledged": unacknowledged_ns,
        "complete": high if complete_until is None else complete_until,
    }
    part = {
        "recorder_id": writer.id,
        "first_seq": first,
        "count": len(events),
        "min_ts": low,
        "max_ts": high,
        "digest": digest,
        "checks": checks,
        "chain_hash": link,
        "committed_at": now,
        "unacknowledged": unacknowledged_ns,
    }
    return Commit(advance, values, part)


def _rows(writer: Writer, first: int, events: Sequence[Fields]) -> tuple[list[Any], list[bytes]]:
    """The values of a batch's rows, one behind the other, and each event's encoding for the chain."""
    base = writer.id << SEQ_BITS
    experiment_id = writer.experiment.id
    known, encode = writer.names.together, chain.encode_event
    values: list[Any] = []
    encoded: list[bytes] = []
    seq = first
    for kind, ts, channel, payload, from_id, to_id, given, msg_id, duration, receivers, cause, meta in events:
        try:
            code = _KIND.get(kind)
            if code is None:
                raise ValueError(f"{kind!r} is no kind of event")
            try:
                names = known[channel, from_id, from_id.__class__, to_id, to_id.__class__]
            except (KeyError, TypeError):  # not met together yet, or ids that no dict takes for a key
                names = writer.names.of(channel, from_id, to_id)
            channel_id, sender, recipient, lengths, joined = names
            flags = given
            if (b"\\u" in payload or not payload.isascii()) and is_no_text(payload):
                flags |= NO_TEXT
            origin = caused_by = None
            if cause is not None:
                origin = (cause[0] or writer.ordinal) << SEQ_BITS | cause[1]
                if cause[0] not in writer.ids:
                    raise Unknown
                caused_by = writer.ids[cause[0]] << SEQ_BITS | cause[1]
            details = None if meta is None else jsontext.dump(meta)
            if receivers is not None and not -_RECEIVERS <= receivers < _RECEIVERS:
                raise ValueError(f"{receivers} receivers do not fit into 32 bits")
            if msg_id is not None:
                msg_id.encode()  # no database holds half a character
            encoded.append(
                encode(seq, ts, code, flags, lengths, joined, msg_id, duration, receivers, origin, details, payload)
            )
        except Unknown as unknown:
            unknown.index = seq - first
            raise
        except Exception as error:  # whatever it is: one event must not stop those behind it
            reason = "a number does not fit into 64 bits" if isinstance(error, struct.error) else str(error)
            raise BadEvent(seq - first, f"a {kind} event of ts {ts} cannot be kept: {reason}") from None
        values += (
            base | seq,
            experiment_id,
            ts,
            code,
            channel_id,
            sender,
            recipient,
            flags,
            msg_id,
            duration,
            receivers,
            caused_by,
            details,
            payload,
        )
        seq += 1
    return values, encoded
