"""Events as rows of the table `event`, and rows as events: the one place that knows the order of both.

Both directions are hot: recording costs a few microseconds an event, and reading less than one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, case, func, null, select

from .. import json_text, limits
from ..db.codes import KINDS, NO_TEXT, SEQ_BITS, SEQ_MASK
from ..db.schema import event
from ..db.statements import Row
from ..errors import BadEvent
from ..json_text import escapes_half, is_no_text
from . import chain
from .event import Event, Fields
from .names import EventNames
from .writer import Writer

MAX_PAYLOAD = 900_000_000
"""Bytes of an event's payload. SQLite holds a thousand million in a row by default, PostgreSQL 2**30 in a value."""
MAX_FETCHED = 32 * 1024
"""Bytes of a payload that is selected with its row; a larger one is fetched by itself, so that a page stays small."""
_RECEIVERS = 2**31
"""The column `receivers` has 32 bits."""
_CODE = {kind: code for code, kind in enumerate(KINDS, 1)}
_KIND = (None, *KINDS)


def pack(
    writer: Writer, events: Sequence[Fields], names: Sequence[EventNames], at: int, max_bytes: int
) -> tuple[list[Row], list[bytes], int]:
    """Return events as rows, each event's encoding for the chain, and the sum of their payload bytes.

    The events are those of a batch from index `at` on. Packing stops after the event whose payload makes the sum
    `max_bytes`. Raises `BadEvent` for an event that the log cannot hold.
    """
    base, experiment_id = writer.id << SEQ_BITS, writer.experiment.id
    encode = chain.encode_event
    rows: list[Row] = []
    encoded: list[bytes] = []
    size = 0
    seq = first = writer.last_seq + 1 + at
    for (
        kind, ts, _, payload, _, _, flags, msg_id, duration, receivers, cause, meta, _, arrival, origin,
    ), (
        channel_id, from_id, to_id, messager_id, lengths, joined,
    ) in zip(events, names, strict=True):  # fmt: skip
        try:
            code = _CODE.get(kind)
            if code is None:
                raise ValueError(f"{kind!r} is not a kind of event")
            if len(payload) > MAX_PAYLOAD:
                raise ValueError(f"its payload has {len(payload):,} bytes, the maximum is {MAX_PAYLOAD:,}")
            if (not payload.isascii() or escapes_half(payload)) and is_no_text(payload):
                flags |= NO_TEXT
            caused_by = hashed_cause = origin_id = origin_seq = hashed_origin = None
            if cause is not None:
                if not 0 < cause[1] < 1 << SEQ_BITS:
                    raise ValueError(f"its cause has the seq {cause[1]}, which no event has")
                number, uuid = writer.identities[cause[0]]
                caused_by = number << SEQ_BITS | cause[1]
                hashed_cause = uuid, cause[1]
            if origin is not None:
                if not 0 < origin[1] < 1 << SEQ_BITS:
                    raise ValueError(f"its origin has the seq {origin[1]}, which no event has")
                origin_id, origin_seq = writer.origins[origin[0]], origin[1]
                hashed_origin = (origin[0].encode(), origin_seq)
            details = None if meta is None else json_text.dump(meta)
            if details is not None and len(details) > limits.MOST_META:
                raise ValueError(f"its meta has {len(details):,} characters, the maximum is {limits.MOST_META:,}")
            if receivers is not None and not -_RECEIVERS <= receivers < _RECEIVERS:
                raise ValueError(f"{receivers} receivers do not fit into 32 bits")
            if msg_id is not None:
                msg_id.encode()  # no database holds a lone surrogate
            encoded.append(
                encode(
                    seq,
                    ts,
                    code,
                    flags,
                    lengths,
                    joined,
                    msg_id,
                    duration,
                    receivers,
                    hashed_cause,
                    details,
                    payload,
                    arrival,
                    hashed_origin,
                )
            )
        except Exception as error:  # of any kind: one bad event must not stop the events behind it
            reason = "a number does not fit into 64 bits" if isinstance(error, struct.error) else str(error)
            raise BadEvent(at + seq - first, f"a {kind} event of ts {ts} cannot be kept: {reason}") from None
        rows.append((
            base | seq, experiment_id, ts, code, channel_id, from_id, to_id,
            flags, msg_id, duration, receivers, caused_by, details, payload,
            messager_id, arrival, origin_id, origin_seq,
        ))  # fmt: skip
        seq += 1
        size += len(payload)
        if size >= max_bytes:
            break
    return rows, encoded, size


def columns(*, brief: bool = False) -> Select[Any]:
    """Return the SELECT of rows as `unpack` takes them. A payload above `MAX_FETCHED` bytes is NULL.

    With `brief`, only position, kind, channel, flags and payload are read; all other columns are NULL.
    """
    row = event.c
    payload = case((func.length(row.payload) <= MAX_FETCHED, row.payload), else_=null())
    if brief:
        nothing = null()
        return select(
            *(row.id, row.ts, row.kind, row.channel_id, nothing, nothing, row.flags, nothing),
            *(nothing, nothing, nothing, nothing, payload),
            *(nothing, nothing, nothing, nothing),
        )
    return select(
        *(row.id, row.ts, row.kind, row.channel_id, row.from_id, row.to_id, row.flags, row.msg_id),
        *(row.duration_ns, row.receivers, row.cause, row.meta, payload),
        *(row.messager_id, row.arrival, row.origin_id, row.origin_seq),
    )


def position(row: Row) -> tuple[int, int]:
    """Return a row's place in replay order, as `replay_place` is compared: its ts and its id."""
    return row[1], row[0]


def name_ids(rows: Sequence[Row]) -> set[int]:
    """Return the ids of all names in rows of `columns`."""
    return {number for row in rows for number in (*row[3:6], row[13], row[15]) if number is not None}


def unpack(
    rows: Sequence[Row], ordinals: Mapping[int, int], names: Mapping[int | None, Any], last_seqs: Mapping[int, int]
) -> list[Event]:
    """Return rows of `columns` as events, without those behind the last seq of their recorder, and of no recorder.

    `ordinals` and `last_seqs` are by recorder id, `names` by name id. Raises `KeyError` for a name that is not known.
    """
    # The fields are set one by one: a call of Event() with 17 arguments costs as much as everything else here.
    new, mask, bits, kinds = object.__new__, SEQ_MASK, SEQ_BITS, _KIND
    recorder = ordinal = last = 0
    events: list[Event] = []
    add = events.append
    for (
        number, ts, kind, channel, from_id, to_id, flags, msg_id, duration, receivers, cause, meta, payload,
        messager, arrival, origin, origin_seq,
    ) in rows:  # fmt: skip
        if number >> bits != recorder:
            recorder = number >> bits
            ordinal, last = ordinals.get(recorder, 0), last_seqs.get(recorder, 0)
        seq = number & mask
        if not 0 < seq <= last:
            continue
        entry = new(Event)
        entry.ts = ts
        entry.recorder = ordinal
        entry.seq = seq
        entry.kind = kinds[kind]  # type: ignore[assignment]
        entry.channel = names[channel]
        entry.payload = payload
        entry.from_id = names[from_id]
        entry.to_id = names[to_id]
        entry.flags = flags
        entry.msg_id = msg_id
        entry.duration_ns = duration
        entry.receivers = receivers
        entry.cause = None if cause is None else (ordinals.get(cause >> bits, 0), cause & mask)
        entry.meta = None if meta is None else json.loads(meta)
        entry.messager = names[messager]
        entry.arrival = arrival
        entry.origin = None if origin is None else (names[origin], origin_seq)
        add(entry)
    return events
