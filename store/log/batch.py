"""What one append writes: a batch of events as rows, with the digest that seals them.

Nothing here waits and nothing here knows a database, so it runs wherever that one has the time.
It is the hottest room of the house: a few microseconds an event are all that recording costs.
"""

from __future__ import annotations

import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import json_text
from ..db.schema import KINDS, NO_TEXT, SEQ_BITS
from ..db.statements import Commit
from ..errors import BadEvent
from ..json_text import escapes_half, is_no_text
from . import chain
from .event import Fields
from .names import Unknown

if TYPE_CHECKING:
    from .writer import Writer

_KIND = {kind: code for code, kind in enumerate(KINDS, 1)}
MOST_PAYLOAD = 900_000_000
"""Bytes of an event's payload. SQLite holds a thousand million in a row by default, PostgreSQL 2**30 in a value."""
_RECEIVERS = 2**31
"""How many receivers no column holds any more."""


class Batch:
    """Events on their way to be the next batch in a writer's chain: made into rows part by part, then sealed."""

    def __init__(
        self, writer: Writer, events: Sequence[Fields], unacknowledged_ns: int, complete_until: int | None
    ) -> None:
        self._writer = writer
        self._events = events
        self._unacknowledged_ns = unacknowledged_ns
        self._complete_until = complete_until
        self.made = 0
        """How many events are rows by now."""
        self._payload_bytes = 0
        self.size = 0
        """Bytes of the events made into rows, about."""
        self._digest = chain.BatchDigest()

    @property
    def expected(self) -> dict[str, Any]:
        """What the writer takes its recorder's row for: parameters of `LOCK`, and of `ADVANCE`."""
        writer = self._writer
        return {
            "recorder_id": writer.id,
            "recorder_uuid": writer.uuid,
            "old_epoch": writer.epoch,
            "old_last_seq": writer.last_seq,
        }

    def rows(self, most: int | None = None, most_bytes: int = sys.maxsize) -> list[Any]:
        """The values of the next rows, one behind the other; none after the last.

        At most `most` rows, if given, and none behind the one whose payload makes it `most_bytes`. Raises `BadEvent`
        for an event that the log cannot hold, and `Unknown`.
        """
        part = self._events[self.made : None if most is None else self.made + most]
        values, encoded, payload_bytes = _rows(self._writer, part, self.made, most_bytes)
        self.made += len(encoded)
        self._payload_bytes += payload_bytes
        self.size += self._digest.extend(encoded)
        return values

    def seal(self) -> Commit:
        """What else is to be written with the rows, all of which were made."""
        writer, events = self._writer, self._events
        first, last = writer.last_seq + 1, writer.last_seq + len(events)
        times = [entry[1] for entry in events]
        low, high = min(times), max(times)
        now, waited = time.time_ns(), self._unacknowledged_ns
        digest, version = self._digest.digest(), writer.experiment.schema_version
        link = chain.next_link(version, writer.head_hash, digest, first, len(events), low, high, now, waited)
        counts = Counter([entry[0] for entry in events])
        advance = self.expected | {f"new_{kind}_count": counts[kind] for kind in KINDS}
        advance |= {
            "new_last_seq": last,
            "new_head_hash": link,
            "now": now,
            "new_payload_bytes": self._payload_bytes,
            "low": low,
            "high": high,
            "unacknowledged": waited,
            "complete": high if self._complete_until is None else self._complete_until,
        }
        part = {
            "recorder_id": writer.id,
            "first_seq": first,
            "count": len(events),
            "min_ts": low,
            "max_ts": high,
            "digest": digest,
            "checks": self._digest.packed_checks(),
            "chain_hash": link,
            "committed_at": now,
            "unacknowledged": waited,
        }
        return Commit(advance, part)


def _rows(writer: Writer, events: Sequence[Fields], at: int, most_bytes: int) -> tuple[list[Any], list[bytes], int]:
    """The values of the rows of a batch's events from `at` on, each event's encoding for the chain, and the bytes of
    their payloads."""
    base = writer.id << SEQ_BITS
    experiment_id = writer.experiment.id
    known, encode = writer.names.together, chain.encode_event
    values: list[Any] = []
    encoded: list[bytes] = []
    size = 0
    seq = first = writer.last_seq + 1 + at
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
            if len(payload) > MOST_PAYLOAD:
                raise ValueError(
                    f"its payload has {len(payload):,} bytes, and none may have more than {MOST_PAYLOAD:,}"
                )
            if (not payload.isascii() or escapes_half(payload)) and is_no_text(payload):
                flags |= NO_TEXT
            origin = caused_by = None
            if cause is not None:
                origin = (cause[0] or writer.ordinal) << SEQ_BITS | cause[1]
                if not 0 < cause[1] < 1 << SEQ_BITS:
                    raise ValueError(f"no event has the seq {cause[1]} of its cause")
                if cause[0] not in writer.ids:
                    raise Unknown
                caused_by = writer.ids[cause[0]] << SEQ_BITS | cause[1]
            details = None if meta is None else json_text.dump(meta)
            if receivers is not None and not -_RECEIVERS <= receivers < _RECEIVERS:
                raise ValueError(f"{receivers} receivers do not fit into 32 bits")
            if msg_id is not None:
                msg_id.encode()  # no database holds half a character
            encoded.append(
                encode(seq, ts, code, flags, lengths, joined, msg_id, duration, receivers, origin, details, payload)
            )
        except Unknown as unknown:
            unknown.index = at + seq - first
            raise
        except Exception as error:  # whatever it is: one event must not stop those behind it
            reason = "a number does not fit into 64 bits" if isinstance(error, struct.error) else str(error)
            raise BadEvent(at + seq - first, f"a {kind} event of ts {ts} cannot be kept: {reason}") from None
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
        size += len(payload)
        if size >= most_bytes:
            break
    return values, encoded, size
